"""The paper's own figures, cell by cell. Facts only: which cell, which value."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache

AVERAGE = "Average"
"""The column of the paper's tables that is the mean over all pairs."""

_PLACE = ("table", "section", "row", "dataset", "target", "sensitive")
_METRICS = ("accuracy", "worst_group_accuracy", "bias", "equalized_odds_difference")


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
def figures() -> dict[tuple[str, ...], Printed]:
    """All of them, by table, section, row, dataset, target, sensitive attribute and metric.

    The dataset may be `AVERAGE`; then there are no attributes. Metrics are those of
    `fair_tta.lab.bench._figures`, or ``"seconds"``.
    """
    from importlib import resources  # help of commands does not wait for it

    found = {}
    for name in ("paper_tables.csv", "paper_more.csv"):
        text = (resources.files("fair_tta.lab.bench") / name).read_text(encoding="utf-8")
        for cell in csv.DictReader(text.splitlines()):
            place = [cell.get(key, "") for key in _PLACE]
            suspect = cell.get("suspect", "").split()
            for metric in [cell["metric"]] if "metric" in cell else _METRICS:
                value = float(cell["value"] if "metric" in cell else cell[metric])
                key = (*place, metric)
                found[key] = Printed(value, metric in suspect)
    return found


OTHER_TABLES = ("field", "clip-bias")
"""Tables that are not the paper's: `fair_tta.lab.bench._grids` says what is in them."""


def paper_tables() -> tuple[str, ...]:
    """The names of the paper's tables on the command line."""
    return (
        "main-L14", "tpt-scan", "zero-scan", "orthcali-scan", "elra-ablation", "loss-choice",
        "with-projection", "more-attributes", "main-B32", "asi-atc", "runtime",
    )  # fmt: skip
