"""Reference images of a table: of the training split, or what was not sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import DatasetError, FairTTAError
from fair_tta.lab._runs.bank import ImageSource
from fair_tta.lab._runs.reference import fit_on_images
from fair_tta.lab.bench._grids import Grid
from fair_tta.lab.bench._sources import Reader, TaskSamples
from fair_tta.lab.data import BenchmarkTask, Dataset, Record
from fair_tta.methods._base import Adapter


@dataclass(frozen=True)
class TableReference:
    """Fits the methods of a table that need a reference, task by task.

    Args:
        read: reads the dataset that the samples are of.
        train: reads images that are never sampled, None if there are none; where it finds nothing,
            what was not sampled is used.
        images: how many.
        seed: chooses them.
        say: receives which were taken, and how many.

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
            FairTTAError: there are no images.
        """
        waiting: dict[int, Any] = {
            place: setting.adapter
            for place, setting in enumerate(grid.settings)
            if not setting.adapter.is_fitted
        }
        if not waiting:
            return {}
        chosen, origin = self._choose(part)
        images = [ImageSource(record.key, str(record.path)) for record in chosen]
        fitted = fit_on_images(classifier, waiting, images, [r.sensitive for r in chosen])
        if not fitted.contents:
            names = ", ".join(type(adapter).__name__ for adapter in waiting.values())
            raise FairTTAError(
                f"{part.task}: there are no images left for a reference, which {names} need: ask "
                "for fewer `images`, or leave these methods out."
            )
        self.said[str(part.task)] = f"{len(fitted.contents)} images of {origin}"
        self.say(f"{part.task}: reference, {self.said[str(part.task)]}")
        return fitted.adapters

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
