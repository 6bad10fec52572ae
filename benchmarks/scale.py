"""What grows with classes, images and machines: CPU time of one thread, ratios, and memory.

    OMP_NUM_THREADS=1 python benchmarks/scale.py classes --classes 2 100 --rounds 3
    OMP_NUM_THREADS=1 python benchmarks/scale.py audit --images 200
    OMP_NUM_THREADS=1 python benchmarks/scale.py batch --classes 1000 --images 16
    OMP_NUM_THREADS=1 python benchmarks/scale.py memory --images 40

Weights are random: time does not depend on them. Jobs take turns and medians are printed.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from speed import photo, transformers_model

from fair_tta import TPT, FairTPT, FairTPTClassifier, FairTPTMO
from fair_tta.datasets._labels import Labels
from fair_tta.extend import AugMix
from fair_tta.images._stored import ImageSource
from fair_tta.lab import audit_folder
from fair_tta.lab.runs._job import make_job
from fair_tta.lab.runs._local import Local
from fair_tta.lab.runs._runner import Runner
from fair_tta.lab.runs._worker import Worker
from fair_tta.methods._registry import resolve_adapter

PART = 8  # of 64 views, which are timed for Zero


def classifier(targets: list[str], **options: Any) -> FairTPTClassifier:
    torch.manual_seed(0)
    model, processor = transformers_model("ViT-B-32")
    return FairTPTClassifier(
        model, targets, {"age": ["young", "old"]}, "a photo of a {sensitive} {target}.",
        processor=processor, scale=100.0, **options,
    )  # fmt: skip


def resident() -> float:
    """Gigabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e9


@contextmanager
def watched(title: str) -> Iterator[None]:
    """Print how much memory was taken above what there was."""
    before, most, is_over = resident(), [0.0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.005):
            most[0] = max(most[0], resident())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        print(f"{title}: {most[0] - before:.2f} GB above the model", flush=True)


def views(seed: int) -> torch.Tensor:
    """Features of 64 views of an image that nobody has seen."""
    noise = torch.randn(2, 64, 512, generator=torch.Generator().manual_seed(seed))
    noisy_views = noise[0, :1] + 0.2 * noise[1]
    return (noisy_views / noisy_views.norm(dim=-1, keepdim=True))[None]


def classes(count: int, rounds: int) -> None:
    """Methods against their floor: Zero and two forward passes of the text tower."""
    clf = classifier([f"thing {i}" for i in range(count)])
    backend: Any = clf._backend
    context = clf._task.context[None]
    pixels = torch.randn(PART, 3, 224, 224)

    def method(adapter: Any) -> Callable[[int], Any]:
        one_image, first = (
            clf.with_adapter(adapter),
            100 * len(jobs),
        )  # or methods would share gradients
        return lambda i: one_image._predict_encoded(views(first + i))

    jobs: dict[str, Callable[[int], Any]] = {
        "tower": lambda _: backend.encode_pixels(pixels),
        "views": lambda i: AugMix(64)(photo(i), (224, 224), np.random.default_rng(i)),
        "pass": lambda i: clf._task.encode_many(
            clf._task.target_prompts, context * (1 + 1e-3 * i)
        ),
    }
    for name, adapter in (
        ("TPT", TPT()),
        ("FairTPT", FairTPT()),
        ("FairTPT-MO", FairTPTMO()),
    ):
        jobs[name] = method(adapter)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    with watched(f"{count} classes, one image"):
        for i in range(rounds + 1):  # the first round warms up
            for name, job in jobs.items():
                start = time.process_time()
                job(i)
                times[name].append(time.process_time() - start)
    took = {
        name: statistics.median(timings[1:] or timings)
        for name, timings in times.items()
    }
    zero, one = took["tower"] * 64 / PART + took["views"], took["pass"]
    floor = zero + 2 * one
    print(
        f"{count} classes: Zero {zero:.2f} s, a pass {one:.3f} s, floor {floor / zero:.2f} Zero"
    )
    for name in ("TPT", "FairTPT", "FairTPT-MO"):
        total = zero + took[name]
        print(
            f"  {name}: {total / zero:.2f} Zero, {total / floor:.2f} floor, "
            f"{total / (floor + one):.2f} floor and a pass; text side {took[name] / one:.1f} passes"
        )


def batch(count: int, images: int) -> None:
    """Memory of FairTPT with many classes and images together, and what of it is kept."""
    clf = classifier([f"thing {i}" for i in range(count)], adapter=FairTPT())
    clf.with_adapter("zero-shot")._predict_encoded(views(0))
    with watched(f"{count} classes, {images} images together"):
        clf._predict_encoded(torch.cat([views(i) for i in range(images)]))
    print(f"of which the cache holds {clf._task.cache.bytes / 1e9:.2f} GB")


def labelled(folder: Path, count: int) -> Labels:
    """Photos of 500 x 375 pixels, and a table of their labels."""
    with open(folder / "labels.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["path", "kind", "age"])
        for i in range(count):
            photo(i).save(folder / f"{i}.jpg")
            table.writerow(
                [f"{i}.jpg", ["cat", "dog"][i % 2], ["young", "old"][i // 2 % 2]]
            )
    return Labels(folder, folder / "labels.csv", "kind", ("age",), path="path")


def audit(count: int) -> None:
    """How much of an audit's CPU time is predicting."""
    names = ["zero-shot", "orthcali", "association-correction"]
    spent = [0.0]
    process = Worker._process

    def timed(self: Worker, *arguments: Any) -> None:
        start = time.process_time()
        process(self, *arguments)
        spent[0] += time.process_time() - start

    Worker._process = timed  # type: ignore[assignment,method-assign]
    with tempfile.TemporaryDirectory() as folder:
        labels = labelled(Path(folder), count)
        clf = classifier(["cat", "dog"])
        clf._predict_encoded(torch.randn(1, 64, 512))  # loads what is loaded once
        start = time.process_time()
        audit_folder(
            clf, {name: resolve_adapter(name) for name in names}, labels.scan(),
            out=Path(folder) / "out",
        )  # fmt: skip
        total_seconds = time.process_time() - start
    print(
        f"audit of {count} images with {len(names)} methods: {total_seconds:.1f} s, "
        "of which predicting "
        f"{spent[0]:.1f} s, {spent[0] / total_seconds:.0%}"
    )


def memory(count: int) -> None:
    """Small files of 88 megapixels."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{i}.png" for i in range(count)]
        Image.new("L", (9400, 9362), 77).save(paths[0])
        for path in paths[1:]:
            Path(path).write_bytes(Path(paths[0]).read_bytes())
        clf = classifier(["cat", "dog"], adapter="zero-shot")
        clf.predict(photo(0))
        with watched(f"{count} files of 88 megapixels, predict"):
            clf.predict(paths)
        runner = Runner(make_job(clf, [clf.adapter], stores_rows=False), Local())
        with watched(f"{count} files of 88 megapixels, a run"):
            sources = [ImageSource(path, path) for path in paths]
            list(
                runner.stream(
                    sources, lambda source: source, size=16, seed=0, read_ahead=True
                )
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["classes", "batch", "audit", "memory"])
    parser.add_argument("--classes", type=int, nargs="+", default=[2, 100])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "classes":
        for count in options.classes:
            classes(count, options.rounds)
    elif options.part == "batch":
        batch(options.classes[0], options.images)
    else:
        {"audit": audit, "memory": memory}[options.part](options.images)


if __name__ == "__main__":
    main()
