"""What can be wrong with a copy of a dataset, and one summary of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

EXAMPLES = 3
"""How many examples of each kind of problem are kept."""


class ProblemKind(Enum):
    """What can be wrong with a row or a file. All but the notes leave the record out."""

    MISSING_IMAGE = "image file is missing"
    EMPTY_IMAGE = "image file is empty (0 bytes)"
    MALFORMED_ROW = "row does not have the fields of the header"
    MALFORMED_NAME = "file name does not tell age, gender and race"
    MISSING_VALUE = "value is missing"
    UNKNOWN_VALUE = "value is not one of those expected"
    OTHER_RACE = "race is 'Others', which is not one of the paper's four"
    BETWEEN_AGES = "age is neither young nor old"
    NO_SPLIT = "image is not in the file of splits"
    CONFLICT = "image came again with other labels"
    DUPLICATE = "image came again with the same labels (kept once)"
    REPAIRED_AGE = "age was changed to a date by a spreadsheet (repaired, record kept)"
    PARTIAL = "file does not have the official number of rows (records kept)"
    ENCODING = "file is not UTF-8 and was read as Windows-1252 (records kept)"
    SMALL = "fewer records than the sample should have (all are taken)"

    @property
    def is_note(self) -> bool:
        """Whether no image was lost by it."""
        return self in _NOTES

    @property
    def is_of_file(self) -> bool:
        """Whether it is about a whole file and not about one row."""
        return self in _OF_FILES


_OF_FILES = frozenset({ProblemKind.PARTIAL, ProblemKind.ENCODING, ProblemKind.SMALL})
_NOTES = _OF_FILES | {ProblemKind.DUPLICATE, ProblemKind.REPAIRED_AGE}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with one row or one file: its kind, and what it is about."""

    kind: ProblemKind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.what}"


@dataclass(frozen=True)
class Problems:
    """All problems of a dataset in few words: how many of each kind, and the first examples."""

    counts: Mapping[ProblemKind, int] = field(default_factory=dict)
    examples: Mapping[ProblemKind, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def lost(self) -> int:
        """How many rows or files gave no record."""
        return sum(n for kind, n in self.counts.items() if not kind.is_note)

    def add(self, problem: Problem) -> Problems:
        """The same with one more."""
        kind = problem.kind
        shown = self.examples.get(kind, ())
        more = (problem.what,) if len(shown) < EXAMPLES else ()
        return Problems(
            {**self.counts, kind: self.counts.get(kind, 0) + 1},
            {**self.examples, kind: (*shown, *more)},
        )

    def to_dict(self) -> dict[str, dict[str, object]]:
        """For JSON: ``{kind: {"count": n, "examples": [...]}}``."""
        return {
            kind.name.lower(): {"count": n, "examples": list(self.examples[kind])}
            for kind, n in self.counts.items()
        }

    def __str__(self) -> str:
        lines = [
            f"{n} x {kind.value}: {', '.join(self.examples[kind])}"
            + (", ..." if n > len(self.examples[kind]) else "")
            for kind, n in self.counts.items()
        ]
        return "\n".join(lines) or "no problems"
