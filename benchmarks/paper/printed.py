"""The figures that the paper prints, cell by cell. Facts only: which cell, which value."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

AVERAGE = "Average"
"""The column of the paper's tables that is the mean over all pairs."""

FILES = ("printed_tables.csv", "printed_more.csv")
CELL = ("table", "section", "row", "dataset", "target", "sensitive")
METRICS = ("accuracy", "worst_group_accuracy", "bias", "equalized_odds_difference")


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

    def __str__(self) -> str:
        return f"{self.value:g}{'?' if self.suspect else ''}"


@lru_cache
def printed_figures() -> dict[tuple[str, ...], Printed]:
    """Return all of them by table, section, row, dataset, target, sensitive attribute and metric.

    The dataset may be `AVERAGE`; then there are no attributes.
    """
    figures = {}
    for name in FILES:
        for line in read_lines(name):
            cell = [line.get(key, "") for key in CELL]
            suspects = line.get("suspect", "").split()
            # One file has a line for each figure, the other one a line for four of them.
            if "metric" in line:
                values = {line["metric"]: line["value"]}
            else:
                values = {metric: line[metric] for metric in METRICS}
            for metric, value in values.items():
                figures[*cell, metric] = Printed(float(value), metric in suspects)
    return figures


def read_lines(name: str) -> list[dict[str, str]]:
    """Return the lines of one of `FILES`."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
