"""Reference pictures of a table: of the training split, or what the samples have left over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import DatasetError, FairTTAError, ImageError
from fair_tta.lab._runs.runner import batched
from fair_tta.lab.bench._grids import Grid
from fair_tta.lab.bench._sources import Reader, TaskSamples
from fair_tta.lab.data import BenchmarkTask, Dataset, Record
from fair_tta.methods._base import Adapter


@dataclass(frozen=True)
class ReferencePictures:
    """Fits the methods of a table that need a reference, task by task.

    Args:
        read: reads the dataset that the samples are of.
        train: reads pictures that no sample is taken from, None if there are none; where it finds
            nothing, what the samples have left over is taken.
        images: how many pictures.
        seed: chooses them.
        say: is told which were taken, and how many.

    Attributes:
        said: ``{task: which and how many}``
    """

    read: Reader
    train: Reader | None = None
    images: int = 1000
    seed: int = 0
    say: Callable[[str], None] = lambda _: None
    said: dict[str, str] = field(default_factory=dict)

    def fit(
        self, grid: Grid, part: TaskSamples, classifier: FairTPTClassifier
    ) -> dict[int, Adapter]:
        """Fitted methods by their place among the settings.

        Raises:
            FairTTAError: there are no pictures.
        """
        waiting: dict[int, Any] = {
            place: setting.adapter
            for place, setting in enumerate(grid.settings)
            if not setting.adapter.is_fitted
        }
        if not waiting:
            return {}
        chosen, origin = self._choose(part)
        records, features = _encode(classifier, chosen)
        if not records:
            names = ", ".join(type(adapter).__name__ for adapter in waiting.values())
            raise FairTTAError(
                f"{part.task}: there are no pictures left for a reference, which {names} need: ask "
                "for fewer `images`, or leave these methods out."
            )
        self.said[str(part.task)] = f"{len(records)} pictures of {origin}"
        self.say(f"{part.task}: reference, {self.said[str(part.task)]}")
        labels = {a: [record.sensitive[a] for record in records] for a in part.task.sensitive}
        return {
            place: adapter.fit_encoded(classifier, features, labels)
            if adapter.needs.labels
            else adapter.fit_encoded(classifier, features)
            for place, adapter in waiting.items()
        }

    def _choose(self, part: TaskSamples) -> tuple[Sequence[Record], str]:
        used = {record.path for records in part.samples.values() for record in records}
        for reader, origin in ((self.train, "another split"), (self.read, "what was not sampled")):
            found = None if reader is None else _read(reader, part.task)
            rest = [] if found is None else [r for r in found.records if r.path not in used]
            if found is not None and rest:
                split = found.parameters.get("split")
                named = f"the split {split!r}" if split and origin == "another split" else origin
                return replace(found, records=tuple(rest)).sample(
                    self.images, self.seed
                ).records, named
        return (), ""


def _read(reader: Reader, task: BenchmarkTask) -> Dataset | None:
    try:
        return reader(task)
    except DatasetError:  # no such split here
        return None


def _encode(
    classifier: FairTPTClassifier, records: Sequence[Record]
) -> tuple[list[Record], Tensor]:
    """Features ``[images, 1, dim]`` of the pictures that can be read."""
    readable: list[Record] = []
    parts = [classifier.encode([], with_views=False)[:, :1]]

    def pictures(some: Sequence[Record]) -> Iterator[Any]:
        for record in some:
            try:
                yield classifier.vision.load(record.path)
            except ImageError:
                continue
            readable.append(record)

    for some in batched(records, classifier.batch_size):
        if images := list(pictures(some)):
            parts.append(classifier.encode(images, with_views=False))
    return readable, torch.cat(parts)
