"""Many predictions in one process: memory, threads, files and hooks must not grow.

    python benchmarks/soak.py                        # `make soak`: 100,000 predictions
    python benchmarks/soak.py --predictions 5000
    python benchmarks/soak.py --predictions 20000 --classifiers 4 --out four.json
    python benchmarks/soak.py --draw                 # docs/soak.svg again, from docs/soak.json

Pictures of the drawn world, each other than all before, on the embedded model: several methods on
lists, streams, files and single pictures, from one thread and from four; new names and templates
now and then; pictures that cannot be used; `encode`, `audit`, `examine` and its page. The cache of
all classifiers is small (`CACHE`), so that it is full soon. With `--classifiers` that many are used
in turn to the end, each with its part of that room as a cache of its own. Needs /proc (Linux).

The exit code is 1 if memory grows after the caches are full, or if a thread, a file, a hook, a
weight or a state of a random generator is another at the end than at the beginning.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import random
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import soak_chart
import torch
from PIL import Image
from torch import nn

from fair_tta import FairTPTClassifier, Features
from fair_tta._cache import Cache
from fair_tta._identity import environment, weights_hash
from fair_tta.errors import ImageError
from fair_tta.extend import AugMix
from fair_tta.methods._registry import parse_adapter
from fair_tta.metrics import Bootstrap
from fair_tta.miniature._world import TASKS, DrawnImage
from fair_tta.models import resolve

BATCH, CACHE = 32, 2**24
ON_FEATURES = (
    "zero-shot tpt fair-tpt fair-tpt-mo zero orthcali association-correction "
    "perception-clip roboshot umfc logit-balance fair-tpt:lam=inf"
).split()
ON_PIXELS = "tent memo sar deyo seraser".split()
WARM = 40
"""Rounds in which everything is done once: threads and files of libraries are there then."""
LIBRARIES = ("threads", "python_threads", "files", "random_states")
"""What is compared after the first rounds: rich draws a random number when it is imported."""
MEMORY = 0.02
"""By how much the resident memory may be larger in the last fifth than in the second."""
BLOCKS = 0.1
"""How many of Python's blocks of memory may stay, per prediction, between the same fifths."""


class Soak:
    """All that is done, again and again, and how many predictions it has made."""

    def __init__(self, backend: Any, folder: Path, classifiers: int = 0) -> None:
        self.backend, self.folder = backend, folder
        self.caches = [
            Cache(CACHE // max(1, classifiers)) for _ in range(max(1, classifiers))
        ]
        self.predictions = self.pictures = self.refused = self.texts = self.calls = 0
        self._drawn = {name: task.stream(1) for name, task in TASKS.items()}
        self._features, self._pixels = cycle(ON_FEATURES), cycle(ON_PIXELS)
        self._bad = cycle(_bad_pictures(folder))
        self._tasks = cycle(TASKS.values())
        self._kept: list[dict[str, Any]] = []
        for cache in self.caches:
            self.new_text(cache)
            self._kept.append(
                {n: getattr(self, n) for n in ("task", "classifier", "_fitted")}
            )

    def new_text(self, cache: Cache | None) -> None:
        """Another task in words that were not there before."""
        self.task, self.texts = next(self._tasks), self.texts + 1
        self.classifier = FairTPTClassifier(
            self.backend,
            self.task.targets,
            self.task.sensitive,
            f"{self.task.template} Number {self.texts}.",
            views=AugMix(5),
            batch_size=BATCH,
            cache=cache,
        )
        reference = [drawn.image for drawn in self.draw(64)]
        self._fitted = {
            name: self.classifier.with_adapter(name).fit(reference).adapter
            for name in ("logit-balance", "umfc")
        }

    def draw(self, n: int) -> list[DrawnImage]:
        """Pictures that were not there before."""
        self.pictures += n
        return list(islice(self._drawn[self.task.name], n))

    def method(self, name: str) -> FairTPTClassifier:
        """The classifier with a method."""
        return self.classifier.with_adapter(
            self._fitted.get(name) or parse_adapter(name)
        )

    def round(self, number: int) -> None:
        """A batch of pictures with three methods, and one of the other things in turn."""
        images = [drawn.image for drawn in self.draw(BATCH)]
        for name in islice(self._features, 3):
            self._count(self.method(name).predict(images))
        other_jobs = (
            self.single, self.on_pixels, self.files, self.stream, self.threads,
            self.encoded, self.bad, self.audit, self.examine,
        )  # fmt: skip
        other_jobs[number % len(other_jobs)]()
        if len(self._kept) > 1:
            vars(self).update(self._kept[number % len(self._kept)])
        elif number % 20 == 19:  # a fifth has a cache of its own
            self.new_text(None if self.texts % 5 == 4 else self.caches[0])

    def single(self) -> None:
        """One after the other."""
        for name, drawn in zip(islice(self._features, 4), self.draw(4), strict=True):
            self._count([self.method(name).predict(drawn.image)])

    def on_pixels(self) -> None:
        """A method that looks at the pictures itself, and may tune the vision tower's copy."""
        self._count(
            self.method(next(self._pixels)).predict([d.image for d in self.draw(4)])
        )

    def files(self) -> None:
        """A list of paths, decoded by threads, and one of bytes."""
        paths = []
        for index, drawn in enumerate(self.draw(BATCH)):
            paths.append(
                self.folder / f"{index}.{('png', 'jpg', 'webp', 'gif')[index % 4]}"
            )
            drawn.image.save(paths[-1])
        self._count(self.method(next(self._features)).predict(paths))
        self._count(
            self.method("zero-shot").predict([path.read_bytes() for path in paths])
        )

    def stream(self) -> None:
        """A stream that ends, and one that breaks at a picture that cannot be used."""
        clf = self.method(next(self._features))
        self._count(clf.predict(drawn.image for drawn in self.draw(BATCH)))
        broken = iter([*(drawn.image for drawn in self.draw(3)), next(self._bad)])
        self._refused(lambda: self._count(clf.predict(broken)))

    def threads(self) -> None:
        """Four threads with the same classifier."""
        clf = self.method(next(self._features))
        parts = [[drawn.image for drawn in self.draw(4)] for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            for answers in pool.map(clf.predict, parts):
                self._count(answers)

    def encoded(self) -> None:
        """Features once, then several methods of them."""
        features = self.classifier.encode([drawn.image for drawn in self.draw(BATCH)])
        for name in islice(self._features, 4):
            self._count(self.method(name).predict(Features(features)))

    def bad(self) -> None:
        """Pictures that cannot be used, alone and in lists."""
        clf = self.method(next(self._features))
        for _ in range(8):
            self._refused(lambda: clf.predict(next(self._bad)))
            self._refused(lambda: clf.predict([self.draw(1)[0].image, next(self._bad)]))

    def audit(self) -> None:
        """Answers and labels, with intervals."""
        drawn = self.draw(BATCH)
        values = {a: [d.sensitive[a] for d in drawn] for a in self.task.sensitive}
        images, labels = [d.image for d in drawn], [d.target for d in drawn]
        clf, few_resamples = self.method(next(self._features)), Bootstrap(resamples=20)
        clf.audit(images, labels, values, interval=few_resamples).to_dict()
        self.predictions += BATCH

    def examine(self) -> None:
        """Without labels; every fourth time the page too."""
        images, few_resamples = (
            [drawn.image for drawn in self.draw(BATCH)],
            Bootstrap(resamples=20),
        )
        methods = {
            "a": self.method("fair-tpt").adapter,
            "b": self._fitted["logit-balance"],
        }
        examination = self.classifier.examine(images, methods, interval=few_resamples)
        self.predictions += 3 * BATCH
        self.calls += 1
        if self.calls % 4 == 0:
            examination.to_html()

    def _count(self, answers: Any) -> None:
        for answer in answers:
            assert answer.label in self.classifier.targets
            self.predictions += 1

    def _refused(self, call: Callable[[], object]) -> None:
        try:
            call()
        except ImageError:
            self.refused += 1
        else:
            raise AssertionError("a picture that cannot be used was answered")


def _bad_pictures(folder: Path) -> list[Any]:
    complete_file = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(complete_file, "PNG")
    (folder / "empty.png").touch()
    return [
        b"", b"\x89PNG\r\n\x1a\n nonsense", complete_file.getvalue()[:60],
        folder / "missing.png", folder, folder / "empty.png", np.zeros((0, 4, 3), np.uint8),
        np.full((8, 8, 3), np.nan, np.float32),
        np.zeros((8, 8, 7), np.uint8), torch.zeros(2, 3, 4, 5, 6), object(),
    ]  # fmt: skip


def counts(model: nn.Module) -> dict[str, Any]:
    """What may not change: threads and open files, and of the model and random states all."""
    hooks = sum(
        len(value)
        for module in model.modules()
        for name, value in vars(module).items()
        if name.endswith("_hooks") and isinstance(value, dict)
    )
    time.sleep(0.5)  # a thread that was waited for may take a moment to go
    states = [random.getstate(), np.random.get_state(), torch.get_rng_state().tolist()]  # noqa: NPY002
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "python_threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
        "hooks": hooks,
        "attributes": sum(len(vars(module)) for module in model.modules()),
        "trained": sum(p.requires_grad for p in model.parameters()),
        "gradients": sum(p.grad is not None for p in model.parameters()),
        "weights": weights_hash(model),
        "random_states": sha256(pickle.dumps(states)).hexdigest(),
    }


def sample(soak: Soak) -> dict[str, float]:
    """Where the curve is."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "predictions": soak.predictions,
        "resident_mib": round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
        "python_blocks": sys.getallocatedblocks(),
        "cache_mib": round(sum(cache.bytes for cache in soak.caches) / 2**20, 2),
        "threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
    }


def growth(curve: list[dict[str, float]]) -> dict[str, float]:
    """From the second fifth to the last: of memory in parts, of blocks per prediction."""
    fifth = max(1, len(curve) // 5)
    early, late = curve[fifth : 2 * fifth] or curve, curve[-fifth:]

    def middle(part: list[dict[str, float]], name: str) -> float:
        return median(point[name] for point in part)

    def increase(name: str) -> float:
        return middle(late, name) - middle(early, name)

    return {
        "memory": increase("resident_mib") / middle(early, "resident_mib"),
        "blocks_per_prediction": increase("python_blocks")
        / max(1, increase("predictions")),
    }


def run(predictions: int, every: int, classifiers: int) -> Iterator[dict[str, Any]]:
    """What is known so far, whenever a point is added to the curve."""
    backend = resolve("miniature")
    record: dict[str, Any] = {
        "environment": environment(),
        "cache_limit_mib": CACHE / 2**20,
    }
    record |= {"start": counts(backend.model), "warm": None, "curve": []}
    start_time, number = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(backend, Path(folder), classifiers)
        while soak.predictions < predictions:
            soak.round(number)
            number += 1
            if number == WARM:
                record["warm"] = counts(backend.model)
            is_over = soak.predictions >= predictions
            if soak.predictions >= every * len(record["curve"]) or is_over:
                record["curve"].append(sample(soak))
                record |= {
                    "end": counts(backend.model),
                    "growth": growth(record["curve"]),
                }
                for name in ("predictions", "pictures", "refused", "texts"):
                    record[name] = getattr(soak, name)
                record["minutes"] = round((time.monotonic() - start_time) / 60, 1)
                yield record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--predictions", type=int, default=100_000)
    parser.add_argument(
        "--every", type=int, default=500, help="predictions between two points"
    )
    parser.add_argument(
        "--classifiers", type=int, default=0, help="used in turn to the end"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/soak.json"))
    parser.add_argument("--draw", action="store_true", help="the picture only")
    options = parser.parse_args()
    if not options.draw:
        warnings.simplefilter("ignore")  # of small references and groups
        torch.set_num_threads(1)
        for record in run(options.predictions, options.every, options.classifiers):
            point = record["curve"][-1]
            print(f"{point['predictions']:7} predictions, {record['minutes']:5.1f} min: "
                  f"{point['resident_mib']:.0f} MiB", file=sys.stderr, flush=True)  # fmt: skip
            options.out.write_text(json.dumps(record) + "\n")
    record = json.loads(options.out.read_text())
    soak_chart.draw(record, options.out.with_suffix(".svg"))
    print(summary(record))
    return verdict(record)


def summary(record: dict[str, Any]) -> str:
    """What came of it, in one line."""
    grown, curve = record["growth"], record["curve"]
    return (
        f"{record['predictions']} predictions on {record['pictures']} pictures "
        f"in {record['texts']} "
        f"tasks, {record['refused']} pictures refused, {record['minutes']} min: "
        f"{curve[len(curve) // 5]['resident_mib']:.0f} MiB after a fifth, "
        f"{curve[-1]['resident_mib']:.0f} at the end; from the second fifth to the last "
        f"{grown['memory']:+.2%} of memory, {grown['blocks_per_prediction']:+.3f} blocks of Python "
        f"per prediction; changed: {', '.join(changed(record)) or 'nothing'}"
    )


def changed(record: dict[str, Any]) -> list[str]:
    """What is another at the end."""
    first = record["start"] | {
        name: (record["warm"] or record["end"])[name] for name in LIBRARIES
    }
    return [name for name, value in first.items() if record["end"][name] != value]


def verdict(record: dict[str, Any]) -> int:
    """1 if anything has grown or changed."""
    grown = record["growth"]
    has_grown = grown["memory"] > MEMORY or grown["blocks_per_prediction"] > BLOCKS
    return 1 if changed(record) or has_grown else 0


if __name__ == "__main__":
    sys.exit(main())
