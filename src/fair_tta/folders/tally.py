"""What was left out of a run and why, in few words."""

from __future__ import annotations

from collections import Counter
from typing import Any

EXAMPLES = 20
"""How many examples of each kind are kept in memory; all are in the file of problems."""


class Tally:
    """Counts problems by kind and keeps the first examples.

    Attributes:
        counts: how many there are of each kind.
        rows: rows of the label file that were left out, which are the numbered ones in the file of
            problems.
        lost: those of them that cost a picture. Others repeat a picture that is counted.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.rows = self.lost = 0
        self._examples: dict[str, list[str]] = {}

    def add(self, kind: str, what: str, *, row: bool = True, lost: bool = True) -> None:
        """One more.

        Args:
            kind: what is wrong.
            what: with which row or file.
            row: whether a row was left out because of it.
            lost: whether a picture was lost with it.
        """
        self.counts[kind] += 1
        self.rows += row
        self.lost += lost
        examples = self._examples.setdefault(kind, [])
        if len(examples) < EXAMPLES:
            examples.append(what)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: ``{kind: {"count": n, "examples": [...]}}``."""
        return {
            kind: {"count": n, "examples": list(self._examples[kind])}
            for kind, n in self.counts.items()
        }

    def headline(self) -> str:
        """How many rows were left out, and how many of them cost nothing."""
        if not self.rows:
            return "No row was left out, but"
        text = f"{self.rows} {'row was' if self.rows == 1 else 'rows were'} left out"
        kept = self.rows - self.lost
        return f"{text}, {kept} of them because the picture is counted already" if kept else text

    def lines(self, examples: int = 3) -> list[str]:
        """One line for each kind."""
        return [
            f"{n} x {kind}: {'; '.join(self._examples[kind][:examples])}"
            + ("; ..." if n > examples else "")
            for kind, n in self.counts.items()
        ]


def shown(text: str) -> str:
    """Text that any terminal and any file can hold: what is not printable becomes an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
