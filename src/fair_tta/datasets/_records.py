"""Records of images with their labels, samples of them, and what can be wrong with a copy."""

from __future__ import annotations

import hashlib
import heapq
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from fair_tta._io import printable
from fair_tta.datasets._tasks import BenchmarkTask
from fair_tta.errors import DatasetError, FairTTAError

T = TypeVar("T")

KEPT_EXAMPLES, SHOWN_EXAMPLES = 20, 3
"""How many examples of each kind of problem are kept, and how many are shown."""


class ProblemKind(Enum):
    """What can be wrong with a row or a file. All but the notes leave the record out."""

    MISSING_IMAGE = "image file is missing"
    CLOSED_IMAGE = "image file may not be read (permission denied)"
    NOT_A_FILE = "image is a pipe, a socket or a device, not a file"
    CLOSED_FOLDER = "folder cannot be looked into"
    TOO_HIGH = "image lies above the folders that are the labels"
    NOT_UNICODE = "file name is not Unicode (rename the file)"
    EMPTY_IMAGE = "image file is empty (0 bytes)"
    UNREADABLE = "image cannot be read"
    NO_FEATURES = "id is not in the file of features"
    MALFORMED_ROW = "row does not have the fields of the header"
    MALFORMED_NAME = "file name does not hold age, gender and race"
    MISSING_VALUE = "value is missing"
    UNKNOWN_VALUE = "value is not one of those expected"
    OTHER_RACE = "race is 'Others', which is not one of the paper's four"
    BETWEEN_AGES = "age is neither young nor old"
    UNMATCHED = "row is not in all files"
    NO_SPLIT = "image is not in the file of splits"
    CONFLICT = "image came again with other labels"
    DUPLICATE = "image came again with the same labels (kept once)"
    REPAIRED_AGE = "age was changed to a date by a spreadsheet (repaired, record kept)"
    PARTIAL = "file does not have the official number of rows (records kept)"
    ENCODING = "file is not UTF-8 and was read as Windows-1252 (records kept)"
    OTHER_MACHINE = (
        "paths are of another machine and were matched by their ends (records kept)"
    )
    UNPAIRED = "images and rows do not all belong together (others are kept)"
    SMALL = "fewer records than the sample should have (all are taken)"

    @property
    def is_note(self) -> bool:
        """Whether no image was lost by it."""
        return self in _NOTES

    @property
    def is_of_file(self) -> bool:
        """Whether it is about a whole file and not about one row."""
        return self in _OF_FILES


_OF_FILES = frozenset(
    ProblemKind[name]
    for name in "PARTIAL ENCODING OTHER_MACHINE UNPAIRED SMALL".split()
)
_NOTES = _OF_FILES | {ProblemKind.DUPLICATE, ProblemKind.REPAIRED_AGE}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with one row or one file: its kind, and what it is about."""

    kind: ProblemKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.detail}"


@dataclass(frozen=True)
class Problems:
    """All problems of a dataset or a run: how many of each kind, and the first examples."""

    counts: Mapping[ProblemKind, int] = field(default_factory=dict)
    examples: Mapping[ProblemKind, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def rows(self) -> int:
        """How many rows were left out; some only repeat an image that is counted."""
        return sum(n for kind, n in self.counts.items() if not kind.is_of_file)

    @property
    def lost(self) -> int:
        """How many rows or files gave no record."""
        return sum(n for kind, n in self.counts.items() if not kind.is_note)

    def add(self, problem: Problem) -> Problems:
        """The same with one more."""
        kind = problem.kind
        kept = self.examples.get(kind, ())
        more = (printable(problem.detail),) if len(kept) < KEPT_EXAMPLES else ()
        return Problems(
            {**self.counts, kind: self.counts.get(kind, 0) + 1},
            {**self.examples, kind: (*kept, *more)},
        )

    def to_dict(self, *, named: bool = True) -> dict[str, dict[str, object]]:
        """For JSON: ``{kind: {"count": n, "examples": [...]}}``; no examples if not `named`."""
        return {
            kind.value: {
                "count": n,
                "examples": list(self.examples[kind]) if named else [],
            }
            for kind, n in self.counts.items()
        }

    def headline(self) -> str:
        """How many rows were left out, and how many of them cost nothing."""
        if not self.rows:
            return "No row was left out, but"
        text = f"{self.rows} {'row was' if self.rows == 1 else 'rows were'} left out"
        kept = self.rows - self.lost
        return (
            f"{text}, {kept} of them because the image is counted already"
            if kept
            else text
        )

    def lines(self) -> list[str]:
        """One line for each kind."""
        return [
            f"{n} x {kind.value}: {'; '.join(self.examples[kind][:SHOWN_EXAMPLES])}"
            + ("; ..." if n > SHOWN_EXAMPLES else "")
            for kind, n in self.counts.items()
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "no problems"


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
        cluster: the person or source it comes from, empty if not known; None if none are given.
    """

    path: Path
    target: str
    sensitive: Mapping[str, str]
    key: str
    cluster: str | None = None

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
            raise DatasetError(
                f"`k` should be a positive number of images (got {k!r}).", argument="k"
            )
        chosen = heapq.nsmallest(
            k, self.records, key=lambda r: (seeded_order(seed, r.key), r.key)
        )
        problems = self.problems
        if len(chosen) < k:
            problems = problems.add(
                Problem(ProblemKind.SMALL, f"{len(chosen)} instead of {k}")
            )
        parameters = {**self.parameters, "sample": k, "seed": seed}
        return replace(
            self, records=tuple(chosen), problems=problems, parameters=parameters
        )

    def __str__(self) -> str:
        chosen = ", ".join(f"{name} {value}" for name, value in self.parameters.items())
        title = self.name if self.task is None else str(self.task)
        return f"{title}: {len(self)} records ({chosen})\n{self.problems}"


def collect_records(
    rows: Iterable[Record | Problem],
) -> tuple[tuple[Record, ...], Problems]:
    """Gather records and problems, each image once: see `resolve_repeats`."""
    pairs = ((row, None) if isinstance(row, Record) else (None, row) for row in rows)
    records, problems = [], Problems()
    for row in resolve_repeats(pairs, attrgetter("key")):
        if isinstance(row, Record):
            records.append(row)
        else:
            problems = problems.add(row)
    return tuple(records), problems


def resolve_repeats(
    rows: Iterable[tuple[Record | None, Problem | None]], name: Callable[[Record], str]
) -> list[Record | Problem]:
    """For each row the record, or why it cannot be used. Of an image that comes again with the same
    labels the first row is kept, of one that comes again with other labels none. Images are known
    by their `name`.
    """
    found: list[Any] = []
    places: dict[str, list[int]] = {}  # of each image
    groups: dict[str, set[tuple[str, ...]]] = {}
    for place, (record, problem) in enumerate(rows):
        if record is not None:
            image = name(record)
            groups.setdefault(image, set()).add(record.group)
            if problem is None:
                places.setdefault(image, []).append(place)
        found.append(problem or record)
    for image, same in places.items():
        is_clear = len(groups[image]) == 1
        kind = ProblemKind.DUPLICATE if is_clear else ProblemKind.CONFLICT
        for place in same[is_clear:]:
            found[place] = Problem(kind, found[place].key)
    return found


def choose_sample(
    items: Iterable[T],
    limit: int | None,
    sample: int | None,
    seed: int,
    *,
    key: Callable[[T], str],
    group: Callable[[T], Hashable | None],
) -> Iterable[T]:
    """The first so many items, of these a sample in the order of the stream; None for all.

    Of each group the sample has its share and at least one, even if it becomes larger by that.
    Taken are the items whose digest of seed and key is smallest in their group. Items without a
    group are passed on and not counted.
    """
    check_limit_and_sample(limit, sample)
    some = items if limit is None else islice(items, min(limit, sys.maxsize))
    if sample is None:
        return some
    every = list(some)
    chosen: list[int] = []
    members: dict[Hashable, list[int]] = {}
    for place, item in enumerate(every):
        of = group(item)
        (chosen if of is None else members.setdefault(of, [])).append(place)
    shares = _shares({of: len(places) for of, places in members.items()}, sample)
    for of, places in members.items():
        chosen += sorted(places, key=lambda i: seeded_order(seed, key(every[i])))[
            : shares[of]
        ]
    return [every[place] for place in sorted(chosen)]


def check_limit_and_sample(limit: int | None, sample: int | None) -> None:
    """Raise if a number is not positive."""
    for name, number in (("limit", limit), ("sample", sample)):
        if number is not None and number < 1:
            raise FairTTAError(
                f"`{name}` should be at least 1 (got {number!r}).", argument=name
            )


def _shares(counts: Mapping[Hashable, int], size: int) -> dict[Hashable, int]:
    """In proportion, by largest remainders, and at least one of each."""
    total = sum(counts.values())
    if size >= total:
        return dict(counts)
    shares = {of: max(1, size * n // total) for of, n in counts.items()}
    rounded_down = (
        of for of, n in counts.items() if size * n >= total
    )  # others are rounded up
    for of in sorted(
        rounded_down, key=lambda of: (-(size * counts[of] % total), repr(of))
    ):
        if sum(shares.values()) >= size:
            break
        shares[of] += shares[of] < counts[of]
    while sum(shares.values()) > max(
        size, len(shares)
    ):  # the largest give what the rarest got
        shares[max(shares, key=lambda of: (shares[of], repr(of)))] -= 1
    return shares


def seeded_order(seed: int, key: str) -> int:
    """A digest of both: the smallest are chosen."""
    text = f"{seed}\0{key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
