"""What can be wrong with a copy of a dataset, and one summary of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from fair_tta.data.csv_rows import printable

KEPT_EXAMPLES, SHOWN_EXAMPLES = 20, 3
"""How many examples of each kind of problem are kept, and how many are shown."""


class ProblemKind(Enum):
    """What can be wrong with a row or a file. All but the notes leave the record out."""

    MISSING_IMAGE = "image file is missing"
    CLOSED_IMAGE = "image file may not be read (permission denied)"
    NOT_A_FILE = "image is a pipe, a socket or a device, not a file"
    CLOSED_FOLDER = "folder cannot be looked into"
    TOO_HIGH = "picture lies above the folders that are the labels"
    NOT_UNICODE = "file name is not Unicode (rename the file)"
    EMPTY_IMAGE = "image file is empty (0 bytes)"
    UNREADABLE = "picture cannot be read"
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
    """All problems of a dataset or a run: how many of each kind, and the first examples."""

    counts: Mapping[ProblemKind, int] = field(default_factory=dict)
    examples: Mapping[ProblemKind, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def rows(self) -> int:
        """How many rows were left out; some only repeat a picture that is counted."""
        return sum(n for kind, n in self.counts.items() if not kind.is_of_file)

    @property
    def lost(self) -> int:
        """How many rows or files gave no record."""
        return sum(n for kind, n in self.counts.items() if not kind.is_note)

    def add(self, problem: Problem) -> Problems:
        """The same with one more."""
        kind = problem.kind
        kept = self.examples.get(kind, ())
        more = (printable(problem.what),) if len(kept) < KEPT_EXAMPLES else ()
        return Problems(
            {**self.counts, kind: self.counts.get(kind, 0) + 1},
            {**self.examples, kind: (*kept, *more)},
        )

    def to_dict(self, *, named: bool = True) -> dict[str, dict[str, object]]:
        """For JSON: ``{kind: {"count": n, "examples": [...]}}``; no examples if not `named`."""
        return {
            kind.value: {"count": n, "examples": list(self.examples[kind]) if named else []}
            for kind, n in self.counts.items()
        }

    def headline(self) -> str:
        """How many rows were left out, and how many of them cost nothing."""
        if not self.rows:
            return "No row was left out, but"
        text = f"{self.rows} {'row was' if self.rows == 1 else 'rows were'} left out"
        kept = self.rows - self.lost
        return f"{text}, {kept} of them because the picture is counted already" if kept else text

    def lines(self) -> list[str]:
        """One line for each kind."""
        return [
            f"{n} x {kind.value}: {'; '.join(self.examples[kind][:SHOWN_EXAMPLES])}"
            + ("; ..." if n > SHOWN_EXAMPLES else "")
            for kind, n in self.counts.items()
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "no problems"
