"""What every reader gives: records of images with their labels, and how they came about."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter
from pathlib import Path

from fair_tta.data.problems import Problem, ProblemKind, Problems
from fair_tta.data.sampling import seeded_order
from fair_tta.data.tasks import BenchmarkTask
from fair_tta.errors import FairTTAError


class DatasetError(FairTTAError):
    """A dataset on disk is missing, is not what it should be, or holds nothing that can be used.

    Args:
        text: what is wrong.
        short: the same on one line, if it is not the first of `text`.
    """

    def __init__(self, text: str, short: str = "") -> None:
        super().__init__(text)
        self.short = short or text.partition("\n")[0]


class Split(Enum):
    """The part of a dataset that is read."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Record:
    """One image and what is known of it. The image is not opened.

    Attributes:
        path: where the image is.
        target: the label to be predicted.
        sensitive: ``{attribute: value}``.
        key: the name of the image within its dataset, the same on every machine.
    """

    path: Path
    target: str
    sensitive: Mapping[str, str]
    key: str

    @property
    def group(self) -> tuple[str, ...]:
        """``(target, sensitive value, ...)``"""
        return (self.target, *self.sensitive.values())


@dataclass(frozen=True)
class Dataset:
    """The records of one task, and how they came about.

    Attributes:
        name: the name of the dataset.
        records: the images that can be used, in the order of the label file.
        problems: what was left out or repaired.
        parameters: the choices that were made: split, thresholds of age, folders.
        task: names and template for `FairTPTClassifier`; None for a folder without a task.
    """

    name: str
    records: tuple[Record, ...]
    problems: Problems
    parameters: Mapping[str, str | int]
    task: BenchmarkTask | None = None

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def groups(self) -> dict[tuple[str, ...], int]:
        """How many records there are of each ``(target, sensitive value, ...)``."""
        return dict(Counter(r.group for r in self.records))

    def sample(self, k: int = 1000, seed: int = 0) -> Dataset:
        """A uniform sample of `k` records without replacement, all of them if there are fewer.

        Taken are the records whose digest of seed and key is smallest, in the order of the
        digests. So the sample depends neither on the order of files nor on the machine, a
        smaller sample is the beginning of a larger one, and an image that is missing on one
        machine costs one place there and changes nothing else.
        """
        if k < 1:
            raise DatasetError(f"`k` should be a positive number of images (got {k!r}).")
        chosen = heapq.nsmallest(k, self.records, key=lambda r: (seeded_order(seed, r.key), r.key))
        problems = self.problems
        if len(chosen) < k:
            problems = problems.add(Problem(ProblemKind.SMALL, f"{len(chosen)} instead of {k}"))
        parameters = {**self.parameters, "sample": k, "seed": seed}
        return replace(self, records=tuple(chosen), problems=problems, parameters=parameters)

    def __str__(self) -> str:
        chosen = ", ".join(f"{name} {value}" for name, value in self.parameters.items())
        title = self.name if self.task is None else str(self.task)
        return f"{title}: {len(self)} records ({chosen})\n{self.problems}"


def collect(
    rows: Iterable[Record | Problem], name: Callable[[Record], str] = attrgetter("key")
) -> tuple[tuple[Record, ...], Problems]:
    """Gather records and problems. An image that comes twice with other labels is left out.

    Args:
        rows: what a reader found.
        name: by which an image is known; by its key if not given.
    """
    records: dict[str, Record | None] = {}
    problems = Problems()
    for row in rows:
        if isinstance(row, Problem):
            problems = problems.add(row)
            continue
        image = name(row)
        if image not in records:
            records[image] = row
            continue
        first = records[image]
        if first is not None and (first.target, first.sensitive) == (row.target, row.sensitive):
            problems = problems.add(Problem(ProblemKind.DUPLICATE, row.key))
        else:
            records[image] = None
            problems = problems.add(Problem(ProblemKind.CONFLICT, row.key))
    return tuple(record for record in records.values() if record is not None), problems
