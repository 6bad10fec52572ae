"""The paper's own figures, cell by cell. Facts only: which cell, which value."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

AVERAGE = "Average"
"""The column of the paper's tables that is the mean over all pairs."""

_FILES = ("paper_tables.csv", "paper_more.csv")
_METRICS = {
    "acc": "accuracy",
    "wga": "worst_group_accuracy",
    "bias": "bias",
    "eod": "equalized_odds_difference",
    "asi": "sensitive_indifference",
    "atc": "target_confidence",
    "seconds": "seconds",
}


@dataclass(frozen=True)
class Place:
    """A cell of a table.

    Attributes:
        table: its name on the command line.
        section: the part of the table.
        row: the row.
        dataset: a dataset, or `AVERAGE`.
        target: the name of the target attribute, empty for the average.
        sensitive: the name of the sensitive attribute, empty for the average.
        metric: its key in `fair_tta.lab.bench._figures`, or ``"seconds"``.
    """

    table: str
    section: str
    row: str
    dataset: str
    target: str
    sensitive: str
    metric: str


@dataclass(frozen=True)
class Printed:
    """What the paper prints in a cell.

    Attributes:
        value: in percent, or seconds.
        suspect: whether it contradicts its own row (bias is not accuracy minus worst group, or
            the row's average does not fit): most likely a slip, so do not chase it.
    """

    value: float
    suspect: bool


@lru_cache
def figures() -> dict[Place, Printed]:
    """All of them."""
    found = {}
    for cell in _read(_FILES[0]):
        for short in ("acc", "wga", "bias", "eod"):
            suspect = short in cell["suspect"].split()
            found[_place(cell, short)] = Printed(float(cell[short]), suspect)
    for cell in _read(_FILES[1]):
        found[_place(cell, cell["metric"])] = Printed(float(cell["value"]), False)
    return found


OTHER_TABLES = ("field", "clip-bias")
"""Tables that are not the paper's: `fair_tta.lab.bench._grids` says what is in them."""


_PAPER_TABLES = (
    "main-L14", "tpt-scan", "zero-scan", "orthcali-scan", "elra-ablation", "loss-choice",
    "with-projection", "more-attributes", "main-B32", "asi-atc", "runtime",
)  # fmt: skip


def paper_tables() -> tuple[str, ...]:
    """The names of the paper's tables on the command line."""
    return _PAPER_TABLES


def _place(cell: dict[str, str], metric: str) -> Place:
    return Place(
        cell["table"],
        cell.get("section", ""),
        cell["row"],
        cell["dataset"],
        cell["target"],
        cell["sensitive"],
        _METRICS[metric],
    )


def _read(name: str) -> Iterator[dict[str, str]]:
    text = (resources.files("fair_tta.lab.bench") / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())
