"""What fairness costs next to the vision tower: ratios from one interleaved run, medians.

    python benchmarks/speed.py              all tables; ViT-L/14 takes long on a small machine
    python benchmarks/speed.py --quick      ViT-B/32 and a tiny CLIP, fewer repetitions
    python benchmarks/speed.py --part large --repeat 3      one part, so many repetitions
    OMP_NUM_THREADS=1 python benchmarks/speed.py --part views public one-view batches --repeat 2
                                            what counts the processor's time; some five minutes

Weights are random: time does not depend on them. Nothing here is asserted in a test.
"""

from __future__ import annotations

import argparse
import functools
import logging
import math
import os
import platform
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
import transformers
from PIL import Image

from fair_tta import (
    ELRA,
    TPT,
    FairTPT,
    FairTPTClassifier,
    FairTPTMO,
    Features,
    OrthCali,
    Zero,
    ZeroShot,
)
from fair_tta.auditing._classify import lacks_values
from fair_tta.extend import AugMix
from fair_tta.images._draw_batch import render_batch
from fair_tta.images._views import content_generator
from fair_tta.models._loading import find_device

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / part) for part in ("helpers", "oracles")]

TARGETS = ["male", "female"]
SENSITIVE = [
    "White", "Southeast Asian", "Middle Eastern", "Black", "Indian", "Latino Hispanic",
    "East Asian",
]  # fmt: skip
TEMPLATE = "A photo of a {sensitive} {target} person."


def photo(seed: int) -> Image.Image:
    """A smooth random picture of 500 x 375 pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((500, 375), Image.Resampling.BICUBIC)


def interleaved(
    jobs: dict[str, Callable[[int], Any]],
    repeat: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each job, run in turn so that the machine's moods hit all alike.

    `time.process_time` for the clock counts the processor's time, which others disturb less.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for i in range(repeat + 1):  # the first round warms up
        for name, job in jobs.items():
            start = clock()
            job(i)
            times[name].append(clock() - start)
    return {name: statistics.median(t[1:]) for name, t in times.items()}


def open_clip_model(name: str) -> Any:
    logging.disable(logging.WARNING)
    model, _, preprocess = open_clip.create_model_and_transforms(name)
    return model.eval(), preprocess, open_clip.get_tokenizer(name)


def transformers_model(name: str) -> Any:
    """A random CLIP of the size of OpenAI's, with the vocabulary that open_clip ships."""
    import families

    large = name == "ViT-L-14"
    text = {"hidden_size": 768 if large else 512, "intermediate_size": 3072 if large else 2048,
            "num_attention_heads": 12 if large else 8, "num_hidden_layers": 12}  # fmt: skip
    vision = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
              "num_hidden_layers": 24, "patch_size": 14} if large else {}  # fmt: skip
    config = transformers.CLIPConfig(
        text_config=text, vision_config=vision, projection_dim=768 if large else 512
    )
    processor = (transformers.CLIPImageProcessor(), families.clip_tokenizer())
    return transformers.CLIPModel(config).eval(), processor


@dataclass
class Timed:
    """An adapter that notes how long it takes once features of views are there."""

    adapter: Any
    seconds: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.adapter, name)

    def adapt(self, task: Any, features: torch.Tensor) -> Any:
        start = time.perf_counter()
        outcome = self.adapter.adapt(task, features)
        self.seconds.append(time.perf_counter() - start)
        return outcome


def methods(
    model: Any, name: str, repeat: int, chunks: tuple[int, ...] = (16, 32, 64)
) -> None:
    """Items 1 and 2: each method against Zero, and Zero against the bare vision tower."""
    torch.manual_seed(0)
    clf = FairTPTClassifier(model, TARGETS, SENSITIVE, TEMPLATE, scale=100.0)
    backend: Any = clf._backend
    pixels = torch.randn(64, 3, 224, 224)

    def bare(chunk: int) -> Callable[[int], Any]:
        return lambda _: [backend.encode_pixels(part) for part in pixels.split(chunk)]

    def predict_with(adapter: Any, first: int) -> Callable[[int], Any]:
        adapted = clf.with_adapter(adapter)

        def run(i: int) -> Any:
            adapted._vision.forget()  # every call makes its views and encodes them
            return adapted.predict(photo(first + i))

        return run

    adapters = {name: Timed(adapter) for name, adapter in (
        ("Zero", Zero()), ("TPT", TPT()), ("FairTPT", FairTPT()), ("FairTPT-MO", FairTPTMO()),
    )}  # fmt: skip
    jobs = {f"bare {chunk}": bare(chunk) for chunk in chunks}
    for number, (job, adapter) in enumerate(adapters.items()):
        # pictures of its own: methods share gradients on the same one
        jobs[job] = predict_with(adapter, 1000 * number)
    times = interleaved(jobs, repeat)
    best = min(t for job, t in times.items() if job.startswith("bare"))
    alone = {
        job: statistics.median(adapter.seconds[1:]) for job, adapter in adapters.items()
    }
    print(f"\n## {name}: seconds per image, 64 views, 2 targets, 7 sensitive names")
    print(f"{'bare vision tower, best chunk':34} {best:8.3f}")
    for job in adapters:
        # what a method adds to Zero within its own calls, which no mood of the machine can hide
        added = 1 + (alone[job] - alone["Zero"]) / times["Zero"]
        print(f"{job:34} {times[job]:8.3f}   {times[job] / times['Zero']:5.2f} x Zero  "
              f"{times[job] / best:5.2f} x bare   text side {alone[job]:6.3f}: {added:6.3f} x Zero",
              flush=True)  # fmt: skip


def views(repeat: int) -> None:
    """Item 3: making 64 views as tensors, with OpenCV, and one picture at a time with PIL."""
    from augmix_reference import reference_views

    device = find_device("auto")
    for size, edges, count in (((224, 224), (500, 375), 1), ((32, 32), (64, 48), 16)):
        photos = [photo(i).resize(edges) for i in range(count)]
        jobs: dict[str, Callable[[int], Any]] = {
            "PIL one by one": lambda i, size=size, photos=photos: [
                reference_views(p, 64, size, np.random.default_rng(i)) for p in photos
            ]
        }
        for name, strategy in (("AugMix", AugMix()),):
            jobs[f"{name}, OpenCV"] = lambda i, s=strategy, size=size, photos=photos: [
                s(p, size, content_generator(p, i)) for p in photos
            ]
            jobs[f"{name}, tensors on {device}"] = (
                lambda i, s=strategy, size=size, photos=photos: render_batch(
                    photos,
                    size,
                    [s._draw_recipes(p, size, content_generator(p, i)) for p in photos],
                    device,
                ).cpu()
            )
        times = interleaved(jobs, repeat, time.process_time)
        print(f"\n## 64 views of {size[0]} pixels, {count} of {edges} at once: seconds of the "
              "processor per picture")  # fmt: skip
        for job, seconds in times.items():
            ratio = times["PIL one by one"] / seconds
            print(f"{job:34} {seconds / count:8.4f}   {ratio:5.1f} x faster")


def public(repeat: int) -> None:
    """Whole calls against the public algorithm of TPT, 2 and 100 classes."""
    from public_tpt import PublicTPT

    model = open_clip_model("ViT-B-32")
    for count in (2, 100):
        names = [f"thing {i}" for i in range(count)]
        sentence = "a photo of a {target}."
        theirs = PublicTPT(*model, names)
        clf = FairTPTClassifier(
            model, names, template=sentence, adapter=TPT(), scale=100.0
        )

        def ours(i: int, clf: Any = clf) -> Any:
            clf._vision.forget()
            return clf.predict(photo(i))

        jobs = {"public algorithm": lambda i, f=theirs: f(photo(i), i), "TPT": ours}
        times = interleaved(jobs, repeat, time.process_time)
        print(
            f"\n## open_clip ViT-B-32, {count} classes, 64 views: seconds of the processor"
        )
        for job, seconds in times.items():
            print(
                f"{job:34} {seconds:8.3f}   {times['public algorithm'] / seconds:5.2f} x faster"
            )


def one_view(repeat: int) -> None:
    """Methods that look at the image alone, against the plain zero-shot pipeline."""
    from fair_tta.methods._registry import ADAPTERS

    model, processor = transformers_model("ViT-B-32")
    images, tokenizer = processor
    pipeline = transformers.ZeroShotImageClassificationPipeline(
        model=model, tokenizer=tokenizer, image_processor=images
    )
    clf = FairTPTClassifier(
        (model, processor), TARGETS, SENSITIVE, TEMPLATE, scale=100.0
    )
    names = [f"A photo of a {target} person." for target in TARGETS]
    texts = clf._task.target_features

    def kept(i: int) -> Any:
        with torch.no_grad():
            pixels = images(images=[photo(i)], return_tensors="pt")["pixel_values"]
            features = model.get_image_features(pixel_values=pixels)
            features = getattr(features, "pooler_output", features)
            return (
                100 * torch.nn.functional.normalize(features, dim=-1) @ texts.T
            ).softmax(-1)

    jobs: dict[str, Callable[[int], Any]] = {
        "transformers pipeline": lambda i: pipeline(photo(i), candidate_labels=names),
        "bare model, text features kept": kept,
    }
    warnings.simplefilter("ignore")  # small references
    few_features = clf.encode([photo(900 + k) for k in range(8)], with_views=False)
    reference = Features(few_features.repeat(40, 1, 1))
    values = [SENSITIVE[k % len(SENSITIVE)] for k in range(len(reference))]
    for name, method_type in ADAPTERS.items():
        method = method_type()
        if not method.needs.views and not method.needs.pixels:
            if method.needs.reference:
                labels = TARGETS * 200 if method.needs.reference_labels else None
                known = values if method.needs.reference_sensitive else None
                fitted = clf.with_adapter(method).fit(reference, labels, known)
                method = fitted.adapter
            method = method.knowing(SENSITIVE[0]) if lacks_values(method) else method
            adapted = clf.with_adapter(method)

            def run(i: int, adapted: Any = adapted) -> Any:
                adapted._vision.forget()
                return adapted.predict(photo(i))

            jobs[name] = run
    times = interleaved(jobs, 5 * repeat, time.process_time)
    print(
        "\n## transformers ViT-B/32, the image alone: seconds of the processor per image"
    )
    for job, seconds in times.items():
        plain, bare = (seconds / times[name] for name in list(times)[:2])
        print(f"{job:34} {seconds:8.4f}   {plain:5.2f} x pipeline  {bare:5.2f} x bare")


def text_side(model: Any, name: str, repeat: int) -> None:
    """Item 4: FairTPT's text time against the literal algorithm of the tests."""
    import literal

    clf = FairTPTClassifier(
        model, TARGETS, SENSITIVE, TEMPLATE, scale=100.0, adapter=FairTPT()
    )
    network, _, tokenizer = model
    text = literal.LiteralText(network, "openclip", tokenizer)
    templates = clf._task.templates

    def parts(prompts: Any) -> Any:
        return [
            [(part.text, part.slot is not None) for part in p.parts] for p in prompts
        ]

    names = next(iter(clf._task.sensitive.values()))
    plain = literal.Task(
        parts(templates._target_prompts(clf._task.targets)),
        [parts(templates._sensitive_prompts(names))],
    )
    features = torch.nn.functional.normalize(
        torch.randn(1, 64, clf._task.target_features.shape[1]), dim=-1
    )
    times = interleaved(
        {
            "literal": lambda _: literal.fair_tpt(text, plain, features[0]),
            "FairTPT": lambda _: clf.adapter.adapt(clf._task, features),
        },
        repeat,
    )
    print(f"\n## {name}: text side of FairTPT, seconds per image")
    for job, seconds in times.items():
        print(f"{job:34} {seconds:8.3f}   {times['literal'] / seconds:5.1f} x faster")


def batches(repeat: int) -> None:
    """Item 5: 32 images in one call against one by one, on a tiny CLIP."""
    import families

    tiny = families.seeded(families.clip)
    print(
        "\n## a tiny CLIP: milliseconds per image, 32 images in one call against one by one"
    )
    rows: list[tuple[str, Any, bool]] = [
        ("64 AugMix views", AugMix(64), False),
        ("8 AugMix views", AugMix(8), False),
        ("the image alone", AugMix(1), False),
        ("64 views, encoded before", AugMix(64), True),
    ]
    for label, strategy, kept in rows:
        for name, adapter in (
            ("TPT", TPT()),
            ("FairTPT", FairTPT()),
            ("FairTPT-MO", FairTPTMO()),
        ):
            clf = FairTPTClassifier(
                (tiny[0], tiny[1:]), TARGETS, SENSITIVE, TEMPLATE, adapter=adapter,
                views=strategy, batch_size=32,
            )  # fmt: skip
            photos = [photo(i).resize((64, 48)) for i in range(32)]
            clf.predict(photos)

            def run(
                together: bool, clf: Any = clf, photos: Any = photos, kept: bool = kept
            ) -> Any:
                if not kept:
                    clf._vision.forget()
                return (
                    clf.predict(photos)
                    if together
                    else [clf.predict(p) for p in photos]
                )

            times = interleaved(
                {"one": lambda _: run(False), "all": lambda _: run(True)},
                repeat,
                time.process_time,
            )
            single_ms, together = (1000 * times[job] / 32 for job in ("one", "all"))
            print(
                f"{label:30} {name:11} {single_ms:8.2f} {together:8.2f}   "
                f"{single_ms / together:5.1f} x faster"
            )


def many_classes(model: Any, name: str) -> None:
    """Item 6: TPT with many targets: time and memory above the loaded model."""
    print(f"\n## {name}: TPT with many targets, text side")
    base = 0.0
    for count in (250, 500, 1000):
        names = [f"thing {i}" for i in range(count)]
        clf = FairTPTClassifier(
            model, names, template="a photo of a {target}.", adapter=TPT()
        )
        features = torch.nn.functional.normalize(torch.randn(1, 64, 512), dim=-1)
        _ = clf._task.target_features
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        base = base or before
        start = time.perf_counter()
        clf.adapter.adapt(clf._task, features)
        seconds = time.perf_counter() - start
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 2**20
        print(f"{count:6} targets {seconds:8.2f} s   {1000 * seconds / count:6.1f} ms per target   "
              f"peak memory above the loaded model {peak:5.2f} GB")  # fmt: skip


def sweep(model: Any, name: str) -> None:
    """Item 7: twenty settings over the same images against one."""
    clf = FairTPTClassifier(model, TARGETS, SENSITIVE, TEMPLATE, scale=100.0)
    settings: list[Any] = [
        ZeroShot(),
        Zero(0.1),
        Zero(0.3),
        OrthCali(),
        OrthCali(0),
        TPT(),
    ]
    settings += [
        FairTPT(lam=lam, rho=rho)
        for lam in (0.0, 1.0, 100.0, math.inf)
        for rho in (0.5, 0.75)
    ]
    settings += [FairTPTMO(lam=lam) for lam in (1.0, 100.0, 5000.0)]
    settings += [
        TPT(rate=ELRA()),
        FairTPT(rate=ELRA(beta=0.02)),
        FairTPT(rate=ELRA(beta=0.05)),
    ]
    photos = [photo(i) for i in range(4)]

    def run(adapters: list[Any]) -> float:
        clf._vision.forget()
        start = time.perf_counter()
        for adapter in adapters:
            clf.with_adapter(adapter).predict(photos)
        return time.perf_counter() - start

    run(settings)
    single_seconds = statistics.median(run([FairTPT()]) for _ in range(3))
    all_of_them = statistics.median(run(settings) for _ in range(3))
    print(f"\n## {name}: {len(settings)} settings over 4 images")
    print(
        f"one setting {single_seconds:.2f} s, all {all_of_them:.2f} s: "
        f"{all_of_them / single_seconds:.2f} x"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="without ViT-L/14, fewer repetitions"
    )
    parser.add_argument(
        "--repeat", type=int, help="7 unless told, 3 if quick, 2 for ViT-L/14"
    )
    parser.add_argument("--part", help="only these", nargs="+",
                        choices=["views", "public", "one-view", "batches", "text", "classes",
                                 "methods", "sweep", "large"])  # fmt: skip
    options = parser.parse_args()
    repeat = options.repeat or (3 if options.quick else 7)
    print(f"python {platform.python_version()}, torch {torch.__version__}, {os.cpu_count()} cores, "
          f"{torch.get_num_threads()} threads, {platform.machine()}, load "
          f"{os.getloadavg()[0]:.1f}")  # fmt: skip
    name = "open_clip ViT-B-32"
    b32 = functools.cache(lambda: open_clip_model("ViT-B-32"))
    parts: dict[str, Callable[[], None]] = {
        "views": lambda: views(repeat),
        "public": lambda: public(repeat),
        "one-view": lambda: one_view(repeat),
        "batches": lambda: batches(repeat),
        "text": lambda: text_side(b32(), name, repeat),
        "classes": lambda: many_classes(b32(), name),
        "methods": lambda: both("ViT-B-32", repeat, (16, 32, 64)),
        "sweep": lambda: sweep(b32(), name),
        "large": lambda: both("ViT-L-14", options.repeat or 2, (32,)),
    }
    for part, run in parts.items():
        if part in (options.part or ()) or (
            not options.part and not (options.quick and part == "large")
        ):
            run()


def both(name: str, repeat: int, chunks: tuple[int, ...]) -> None:
    """Items 1 and 2 in both libraries."""
    methods(open_clip_model(name), f"open_clip {name}", repeat, chunks)
    methods(transformers_model(name), f"transformers {name}", repeat, chunks)


if __name__ == "__main__":
    main()
