"""Run several methods on the same drawn pictures."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fair_tta.adapters import (
    TPT,
    Adapter,
    FairTPT,
    FairTPTMO,
    OrthCali,
    Zero,
    ZeroShot,
)
from fair_tta.backends import resolve
from fair_tta.benchmarks.summary import measure
from fair_tta.classifier import FairTPTClassifier
from fair_tta.miniature.world import MiniatureTask, Picture, Split
from fair_tta.prediction import Prediction

METHODS: dict[str, Adapter] = {
    "ZeroShot": ZeroShot(),
    "Zero": Zero(),
    "TPT": TPT(),
    "OrthCali": OrthCali(),
    "FairTPT": FairTPT(),
    "FairTPT-MO": FairTPTMO(),
    "FairTPT>>Orth": FairTPT() >> OrthCali(lam=0),
}
"""The methods of the paper with its hyper-parameters."""


@dataclass(frozen=True)
class Episode:
    """The answers of one method on the pictures of one seed of one task."""

    task: MiniatureTask
    seed: int
    method: str
    pictures: list[Picture]
    predictions: list[Prediction]
    seconds: float

    @property
    def truth(self) -> list[str]:
        """The true target of each picture."""
        return [picture.target for picture in self.pictures]

    @property
    def sensitive(self) -> dict[str, list[str]]:
        """The true value of each attribute of each picture."""
        return {a: [p.sensitive[a] for p in self.pictures] for a in self.task.sensitive}

    @property
    def metrics(self) -> dict[str, float]:
        """See `fair_tta.benchmarks.summary.measure`."""
        return measure(self.truth, self.sensitive, self.predictions)


def run(
    tasks: Iterable[MiniatureTask],
    methods: Mapping[str, Adapter] = METHODS,
    *,
    seeds: Iterable[int] = range(5),
    pictures: int = 120,
    split: Split = Split.TEST,
    model: Any = "miniature",
) -> Iterator[Episode]:
    """Every method on every task and seed; the views of a picture are encoded once for all.

    `Episode.seconds` counts, for a method that looks at views, making and encoding them too.

    Args:
        tasks: of `fair_tta.miniature.TASKS`.
        methods: ``{name: adapter}``
        seeds: of pictures and of their views.
        pictures: how many for each seed.
        split: `Split.TEST` to report, `Split.VALIDATION` to choose.
        model: what `FairTPTClassifier` takes.
    """
    model = resolve(model)  # once for all tasks
    for task in tasks:
        clf = FairTPTClassifier(
            model, task.targets, task.sensitive, task.template, adapter=ZeroShot(), batch_size=32
        )
        for seed in seeds:
            drawn = task.draw(pictures, seed, split=split)
            images = [picture.image for picture in drawn]
            clf = clf.with_views(clf.vision.views, seed)
            first, warm = (_timed(clf.with_adapter(Zero()), images)[1] for _ in range(2))
            for name, adapter in methods.items():
                predictions, seconds = _timed(clf.with_adapter(adapter), images)
                seconds += max(0.0, first - warm) if adapter.needs_views else 0.0
                yield Episode(task, seed, name, drawn, predictions, seconds)


def _timed(clf: FairTPTClassifier, images: list[Any]) -> tuple[list[Prediction], float]:
    start = time.perf_counter()
    return clf.predict(images), time.perf_counter() - start
