"""The cells of a table: our figures with their spread, beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from msgspec import structs

from fair_tta.auditing import Audit, compare
from fair_tta.auditing._document import Comparison, EstimateFields, RunFigures
from fair_tta.lab._runs.columns import RunColumns
from fair_tta.lab.bench._grids import GRIDS, Grid, Setting
from fair_tta.lab.bench._printed import AVERAGE, Printed, figures
from fair_tta.lab.data import BenchmarkTask
from fair_tta.methods._base import Adapter
from fair_tta.metrics import Estimate
from fair_tta.metrics._columns import parse_columns
from fair_tta.metrics._definitions import (
    ACCURACY,
    BIAS,
    EQUALIZED_ODDS,
    METRICS,
    WORST_GROUP_ACCURACY,
)
from fair_tta.metrics._estimate import direction, undefined

INDIFFERENCE_KEY = "sensitive_indifference"
COLUMNS = {
    "accuracy": "Acc",
    "worst_group_accuracy": "WGA",
    "bias": "Bias",
    "equalized_odds_difference": "EOD",
    INDIFFERENCE_KEY: "ASI",
    "target_confidence": "ATC",
}
"""The metrics of a table by their keys in `measure`, and what their columns are called."""

_OF_COUNTS = (ACCURACY, WORST_GROUP_ACCURACY, BIAS, EQUALIZED_ODDS)
_IN_AUDITS = {"target_confidence": "average_target_confidence"}  # other names


@dataclass(frozen=True)
class Cell:
    """A metric of a method over seeds.

    Attributes:
        mean: NaN if the metric is undefined for one of them.
        error: standard error of the mean, NaN for a single seed.
        mark: 1 if better than zero-shot, -1 if worse, 0 if the paired interval of the difference
            contains 0.
    """

    mean: float
    error: float
    seeds: int
    mark: int = 0

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "n/a"
        if math.isnan(self.error):
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} ±{self.error:.{1 if self.error < 9.95 else 0}f}"


def measure(columns: RunColumns) -> dict[str, float]:
    """The metrics of `COLUMNS` of one method on the images of one seed, in percent.

    Groups are those of class and sensitive values. With several attributes groups are
    their intersections and ASI is the mean over attributes.
    """
    labels = parse_columns(
        columns.truth, [columns.labels], columns.sensitive, None, None, truth_has_classes=False
    )
    scores, counts = columns.scores(), labels.counts()
    indifference = [np.mean(of) for of in (scores.sensitive_entropy or {}).values()]
    found = {
        **{metric.name: metric(counts) for metric in _OF_COUNTS},
        INDIFFERENCE_KEY: np.mean(indifference) if indifference else math.nan,
        "target_confidence": 1 - np.mean(scores.entropy),
    }
    return {key: 100 * float(value) for key, value in found.items()}


def cell(values: Sequence[float], mark: int = 0) -> Cell:
    """Mean and standard error over seeds."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return Cell(float(np.mean(values)), error, len(values), mark)


def in_audit(found: RunFigures | Comparison, metric: str) -> Estimate:
    """A metric of `COLUMNS` of a run of an audit, or its paired difference from zero-shot.

    Indifference to several attributes is their mean, which has no interval.
    """
    if metric != INDIFFERENCE_KEY:
        every = found.metrics if isinstance(found, RunFigures) else found.adjusted
        return every.by_name()[_IN_AUDITS.get(metric, metric)].estimate
    several = [one.estimate for one in found.sensitive_indifference.values()]
    if len(several) == 1:
        return several[0]
    if not several:
        return undefined("no sensitive attribute")
    return Estimate(float(np.mean([one.value for one in several])), several[0].n)


def mark(metric: str, difference: Estimate) -> int:
    """Whether a paired interval shows a metric to be better (1) or worse (-1) than zero-shot's."""
    better = METRICS[metric].better if metric in METRICS else 0
    return better * direction(difference.low, difference.high)


def shown_figure(estimate: Estimate, mark: int = 0, sign: str = "") -> str:
    """A share in percent, its interval, and whether it is better (1) or worse (-1) than
    zero-shot's: ``62.5 [48.1, 75.0] +``. Changes have a sign, ``+``.
    """
    if math.isnan(estimate.value):
        return "n/a"
    return EstimateFields.of(estimate).shown(sign, "") + ("", " +", " -")[mark]


def percents(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """A share and the ends of its interval, as far as they are defined."""
    if estimate is None or math.isnan(estimate.value):
        return None, None, None
    low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
    return 100 * estimate.value, low, high


SECONDS = "seconds"
"""The metric of cost: seconds per image, making and encoding views included."""

_TOGETHER = 9  # settings that one chart can hold


@dataclass(frozen=True)
class Figure:
    """A metric of a setting on a task, in percent (cost in seconds).

    Attributes:
        setting: the row.
        task: the column, None for the mean over all tasks.
        metric: its key.
        images: how many answers, over all seeds; an image that two seeds have drawn counts twice.
        cell: mean and standard error over seeds, marked by the paired interval against zero-shot.
        difference: setting minus zero-shot on the images of all seeds together, each once with
            its first seed; None for zero-shot itself, for costs and for averages.
        low: lower end of its paired interval.
        high: upper end.
        printed: what the paper has in this cell, None if nothing.
        pooled: the metric on the images of all seeds together, each once with its first seed, as
            a share with its interval; None for costs. What tables and reports show.
    """

    setting: Setting
    task: BenchmarkTask | None
    metric: str
    images: int
    cell: Cell
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    printed: Printed | None = None
    pooled: Estimate | None = None

    @property
    def minus_paper(self) -> float | None:
        """Our mean minus the paper's."""
        return None if self.printed is None else self.cell.mean - self.printed.value


BySetting = list[list[dict[str, float]]]
"""The metrics of one task, setting by setting and seed by seed."""


def tabulate(
    grid: Grid,
    task: BenchmarkTask,
    found: Sequence[Mapping[int, RunColumns]],
    values: BySetting,
    audit: Audit,
) -> list[Figure]:
    """The figures of one task, of the columns of each setting and seed, what `measure` makes of
    them, and their audit."""
    comparisons = {c.run: c for c in audit.document.comparisons}
    made = []
    for i, setting in enumerate(grid.settings):
        images = sum(len(run.labels) for run in found[i].values())
        against = comparisons.get(setting.name)
        for key in COLUMNS:
            change = undefined("zero-shot") if against is None else in_audit(against, key)
            seeds = cell([row[key] for row in values[i]], mark(key, change))
            others = _printed(grid, setting, task, key), in_audit(audit.document.runs[i], key)
            made.append(Figure(setting, task, key, images, seeds, *percents(change), *others))
        costs = cell([run.seconds / max(1, len(run.labels)) for run in found[i].values()])
        printed = _printed(grid, setting, task, SECONDS)
        made.append(Figure(setting, task, SECONDS, images, costs, printed=printed))
    return made


def averages(
    grid: Grid, by_task: Sequence[BySetting], images: int, audits: Sequence[Audit]
) -> list[Figure]:
    """The mean over all tasks of the table, each weighing the same, seed by seed and pooled."""
    made = []
    for i, setting in enumerate(grid.settings):
        seeds = list(zip(*(values[i] for values in by_task), strict=True))
        for key in COLUMNS:
            over_seeds = cell([float(np.mean([row[key] for row in rows])) for rows in seeds])
            mean = float(np.mean([in_audit(a.document.runs[i], key).value for a in audits]))
            printed, pooled = _printed(grid, setting, None, key), Estimate(mean, images)
            figure = Figure(setting, None, key, images, over_seeds, printed=printed, pooled=pooled)
            made.append(figure)
    return made


def audit_task(
    grid: Grid,
    task: BenchmarkTask,
    adapters: Sequence[Adapter],
    pooled: Sequence[RunColumns],
    provenance: Mapping[str, Any],
) -> Audit:
    """The images of all seeds together, each once, every setting beside zero-shot."""
    shared: Any = {"values": task.sensitive, "harmful": task.harmful, "provenance": provenance}
    made = zip(grid.settings, adapters, pooled, strict=True)
    return compare([of.audit(setting.name, adapter, **shared) for setting, adapter, of in made])


def parts_of(grid: Grid, task: BenchmarkTask, audit: Audit) -> list[tuple[str, Audit]]:
    """Audits of many settings are split where the paper's tables are, with zero-shot in each."""
    document = audit.document
    if len(document.runs) <= _TOGETHER:
        return [(str(task), audit)]
    parts = []
    others = zip(grid.settings[1:], document.runs[1:], document.comparisons, strict=True)
    for section, some in groupby(others, key=lambda each: each[0].section):
        _, runs, comparisons = zip(*some, strict=True)
        part = structs.replace(document, runs=(document.runs[0], *runs), comparisons=comparisons)
        parts.append((f"{task}: {section}" if section else str(task), Audit(part)))
    return parts


def _printed(
    grid: Grid, setting: Setting, task: BenchmarkTask | None, metric: str
) -> Printed | None:
    if task is None:
        if grid.name not in GRIDS or grid.tasks != GRIDS[grid.name].tasks:
            return None  # an average over other tasks
        column = AVERAGE, "", ""
    else:
        column = task.dataset, task.target, " x ".join(task.sensitive)
    return figures().get((grid.name, setting.section, setting.row, *column, metric))
