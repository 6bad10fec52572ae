"""Records of images with their labels, samples of them, and problems of rows and files."""

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
from typing import Any, Literal, TypeAlias, TypeVar

from fair_tta._io import printable
from fair_tta.datasets._tasks import BenchmarkTask
from fair_tta.errors import DatasetError, FairTTAError

Split: TypeAlias = Literal["train", "validation", "test", "all"]
"""The part of a dataset that is read."""

T = TypeVar("T")

# Examples of each kind of problem that documents list, and that messages show
_KEPT_EXAMPLES = 20
_SHOWN_EXAMPLES = 3


class ProblemKind(Enum):
    """Kinds of problems with a row or a file. All except the notes cost a record."""

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
        """True if no image was lost by it."""
        return self in _NOTES

    @property
    def is_of_file(self) -> bool:
        """True if it is about a whole file and not about one row."""
        return self in _OF_FILES


# Problems of a whole file, and all problems that cost no record
_OF_FILES = frozenset(
    {
        ProblemKind.PARTIAL,
        ProblemKind.ENCODING,
        ProblemKind.OTHER_MACHINE,
        ProblemKind.UNPAIRED,
        ProblemKind.SMALL,
    }
)
_NOTES = _OF_FILES | {ProblemKind.DUPLICATE, ProblemKind.REPAIRED_AGE}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with one row or file: its kind, and the row or file in words."""

    kind: ProblemKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.detail}"


@dataclass(frozen=True)
class Problems:
    """The problems of a dataset or a run: counts of each kind, and the first examples."""

    counts: Mapping[ProblemKind, int] = field(default_factory=dict)
    examples: Mapping[ProblemKind, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def rows(self) -> int:
        """Number of rows left out; some only repeat an image that is counted."""
        return sum(n for cause, n in self.counts.items() if not cause.is_of_file)

    @property
    def lost(self) -> int:
        """Number of rows or files that gave no record."""
        return sum(n for cause, n in self.counts.items() if not cause.is_note)

    def add(self, problem: Problem) -> Problems:
        """Return these problems and one more."""
        count = self.counts.get(problem.kind, 0)
        examples = self.examples.get(problem.kind, ())
        if count < _KEPT_EXAMPLES:
            examples = (*examples, printable(problem.detail))
        return Problems(
            {**self.counts, problem.kind: count + 1},
            {**self.examples, problem.kind: examples},
        )

    def to_dict(self, *, named: bool = True) -> dict[str, dict[str, object]]:
        """Return ``{kind: {"count": n, "examples": [...]}}``; no examples unless `named`."""
        document: dict[str, dict[str, object]] = {}
        for cause, count in self.counts.items():
            examples = list(self.examples[cause]) if named else []
            document[cause.value] = {"count": count, "examples": examples}
        return document

    def headline(self) -> str:
        """Return how many rows were left out, and how many of them cost nothing."""
        if not self.rows:
            return "No row was left out, but"
        text = f"{self.rows} {'row was' if self.rows == 1 else 'rows were'} left out"
        n_repeats = self.rows - self.lost
        if n_repeats:
            text += f", {n_repeats} of them because the image is counted already"
        return text

    def lines(self) -> list[str]:
        """Return one line for each kind."""
        lines = []
        for cause, count in self.counts.items():
            examples = "; ".join(self.examples[cause][:_SHOWN_EXAMPLES])
            ellipsis = "; ..." if count > _SHOWN_EXAMPLES else ""
            lines.append(f"{count} x {cause.value}: {examples}{ellipsis}")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "no problems"


@dataclass(frozen=True, slots=True)
class Record:
    """One image with its labels. The image is not opened.

    Attributes:
        path: where the image is.
        target: the label to be predicted.
        sensitive: ``{attribute: value}``.
        key: the name of the image within its dataset, the same on every machine.
        cluster: the person or source it comes from, empty if unknown; None if none are given.
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
    """The records of one task, and the choices that they rest on.

    Attributes:
        name: the name of the dataset.
        records: the images that can be used, in the order of the label file.
        problems: what was left out or repaired.
        parameters: the choices: split, thresholds of age, folders.
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
        """Return the number of records of each ``(target, sensitive value, ...)``."""
        return dict(Counter(record.group for record in self.records))

    def sample(self, k: int = 1000, seed: int = 0) -> Dataset:
        """Draw `k` records uniformly without replacement, all of them if there are fewer.

        The sample is the records with the smallest digests of seed and key, in that order. So
        it depends neither on the order of files nor on the machine, a smaller sample is the
        beginning of a larger one, and an image that is missing on one machine costs one record
        there and changes nothing else.
        """
        if k < 1:
            raise DatasetError(
                f"`k` should be an integer >= 1 (got {k!r}).", argument="k"
            )
        chosen = heapq.nsmallest(
            k,
            self.records,
            key=lambda record: (seeded_order(seed, record.key), record.key),
        )
        problems = self.problems
        if len(chosen) < k:
            detail = f"{len(chosen)} instead of {k}"
            problems = problems.add(Problem(ProblemKind.SMALL, detail))
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
    records = []
    problems = Problems()
    for row in resolve_repeats(pairs, attrgetter("key")):
        if isinstance(row, Record):
            records.append(row)
        else:
            problems = problems.add(row)
    return tuple(records), problems


def resolve_repeats(
    rows: Iterable[tuple[Record | None, Problem | None]],
    identify: Callable[[Record], str],
) -> list[Record | Problem]:
    """Return for each row the record, or why it cannot be used.

    Of an image that comes again with the same labels the first row is kept; of one that comes
    again with other labels, none. Images are the same if `identify` returns the same text.
    """
    # Find the rows of each image and the groups that they put it into
    resolved: list[Any] = []
    usable_rows: dict[str, list[int]] = {}
    groups: dict[str, set[tuple[str, ...]]] = {}
    for index, (record, problem) in enumerate(rows):
        if record is not None:
            image = identify(record)
            # Labels contradict each other even if one of the rows has another problem
            groups.setdefault(image, set()).add(record.group)
            if problem is None:
                usable_rows.setdefault(image, []).append(index)
        resolved.append(problem or record)

    # Replace repeated rows, or all rows of an image whose labels contradict each other
    for image, indices in usable_rows.items():
        cause = ProblemKind.CONFLICT
        rejected = indices
        if len(groups[image]) == 1:
            cause = ProblemKind.DUPLICATE
            rejected = indices[1:]
        for index in rejected:
            resolved[index] = Problem(cause, resolved[index].key)
    return resolved


def choose_sample(
    items: Iterable[T],
    limit: int | None,
    sample: int | None,
    seed: int,
    *,
    key: Callable[[T], str],
    group: Callable[[T], Hashable | None],
) -> Iterable[T]:
    """Return the first `limit` items or, of these, `sample` in the order of the stream.

    Each group has its share of the sample and at least one item, even if the sample becomes
    larger by that. Chosen are the items with the smallest digests of seed and key in their
    group. Items without a group are passed on and not counted. None means all.
    """
    check_limit_and_sample(limit, sample)
    # `islice` takes no larger number
    limited = items if limit is None else islice(items, min(limit, sys.maxsize))
    if sample is None:
        return limited

    # Collect the indices of each group
    candidates = list(limited)
    chosen: list[int] = []
    indices_of_group: dict[Hashable, list[int]] = {}
    for index, candidate in enumerate(candidates):
        name = group(candidate)
        if name is None:
            chosen.append(index)
        else:
            indices_of_group.setdefault(name, []).append(index)

    # Of each group, take the first of its share in an order that depends on seed and key only
    counts = {name: len(indices) for name, indices in indices_of_group.items()}
    shares = _proportional_counts(counts, sample)
    for name, indices in indices_of_group.items():
        indices.sort(key=lambda index: seeded_order(seed, key(candidates[index])))
        chosen += indices[: shares[name]]
    return [candidates[index] for index in sorted(chosen)]


def check_limit_and_sample(limit: int | None, sample: int | None) -> None:
    """Raise if a number is not positive."""
    for name, number in (("limit", limit), ("sample", sample)):
        if number is not None and number < 1:
            raise FairTTAError(
                f"`{name}` should be an integer >= 1 (got {number!r}).", argument=name
            )


def _proportional_counts(
    counts: Mapping[Hashable, int], size: int
) -> dict[Hashable, int]:
    """Divide `size` in proportion to counts by largest remainders, at least one for each."""
    total = sum(counts.values())
    if size >= total:
        return dict(counts)
    shares = {name: max(1, size * n // total) for name, n in counts.items()}

    # Groups that were rounded down share the rest by their remainders; others were rounded up
    # to one. Ties are broken by name, so that a sample does not depend on the order of rows.
    rounded_down = [name for name, n in counts.items() if size * n >= total]
    rounded_down.sort(key=lambda name: (-(size * counts[name] % total), repr(name)))
    for name in rounded_down:
        if sum(shares.values()) >= size:
            break
        if shares[name] < counts[name]:
            shares[name] += 1

    # The largest groups give back the items that rare ones got beyond their share.
    while sum(shares.values()) > max(size, len(shares)):
        largest = max(shares, key=lambda name: (shares[name], repr(name)))
        shares[largest] -= 1
    return shares


def seeded_order(seed: int, key: str) -> int:
    """Return a digest of both, by which items are drawn: the smallest first."""
    # Names of files may hold bytes that are not Unicode, which become surrogates
    text = f"{seed}\0{key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
