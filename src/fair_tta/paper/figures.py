"""The table of a run: our figures with their spread, beside zero-shot's and the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from msgspec import structs

from fair_tta.adapters import Adapter
from fair_tta.auditing import Audit, compare
from fair_tta.auditing.columns import Columns
from fair_tta.data import BenchmarkTask
from fair_tta.metrics import Estimate
from fair_tta.paper.cells import (
    COLUMNS,
    Cell,
    MetricColumn,
    cell,
    mark,
    measure,
    of_run,
    paired,
)
from fair_tta.paper.grids import GRIDS
from fair_tta.paper.printed import AVERAGE, Place, Printed, figures
from fair_tta.runs.settings import Grid, Setting

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


BySeed = Mapping[int, Columns]
BySetting = list[list[dict[str, float]]]


def measure_task(found: Sequence[BySeed]) -> BySetting:
    """The metrics of one task, setting by setting and seed by seed."""
    return [[measure(columns) for columns in by_seed.values()] for by_seed in found]


def tabulate(
    grid: Grid,
    task: BenchmarkTask,
    found: Sequence[BySeed],
    values: BySetting,
    audit: Audit,
) -> list[Figure]:
    """The figures of one task.

    Args:
        grid: the table.
        task: the task.
        found: for each setting ``{seed: Columns}``
        values: of `measure_task`.
        audit: of `audit_task`.
    """
    comparisons = {c.run: c for c in audit.document.comparisons}
    made = []
    for i, setting in enumerate(grid.settings):
        images = sum(map(len, found[i].values()))
        comparison = comparisons.get(setting.name)
        for column in COLUMNS:
            change = None if comparison is None else paired(comparison, column.key)
            made.append(
                Figure(
                    setting,
                    task,
                    column.key,
                    images,
                    _cell(column, values[i], change),
                    *_percents(change),
                    printed=_printed(grid, setting, task, column.key),
                    pooled=of_run(audit.document.runs[i], column.key),
                )
            )
        costs = [columns.seconds / max(1, len(columns)) for columns in found[i].values()]
        printed = _printed(grid, setting, task, SECONDS)
        made.append(Figure(setting, task, SECONDS, images, cell(costs), printed=printed))
    return made


def averages(
    grid: Grid, by_task: Sequence[BySetting], images: int, audits: Sequence[Audit]
) -> list[Figure]:
    """The mean over all tasks of the table, each weighing the same, seed by seed and pooled."""

    def pooled(setting: int, metric: str) -> Estimate:
        found = [of_run(audit.document.runs[setting], metric).value for audit in audits]
        return Estimate(float(np.mean(found)), images)

    def mean(setting: int) -> list[dict[str, float]]:
        seeds = zip(*(values[setting] for values in by_task), strict=True)
        return [
            {c.key: float(np.mean([row[c.key] for row in rows])) for c in COLUMNS} for rows in seeds
        ]

    return [
        Figure(setting, None, column.key, images, _cell(column, mean(i)),
               printed=_printed(grid, setting, None, column.key), pooled=pooled(i, column.key))
        for i, setting in enumerate(grid.settings)
        for column in COLUMNS
    ]  # fmt: skip


def _cell(
    column: MetricColumn, rows: Sequence[Mapping[str, float]], change: Estimate | None = None
) -> Cell:
    return cell([row[column.key] for row in rows], mark(column, change))


def audit_task(
    grid: Grid,
    task: BenchmarkTask,
    adapters: Sequence[Adapter],
    pooled: Sequence[Columns],
    provenance: Mapping[str, Any],
) -> Audit:
    """The images of all seeds together, each once, every setting beside zero-shot."""
    made = [
        columns.audit(
            setting.name,
            adapter,
            values=task.sensitive,
            harmful=task.harmful or None,
            provenance=provenance,
        )
        for setting, adapter, columns in zip(grid.settings, adapters, pooled, strict=True)
    ]
    return compare(made)


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


def _percents(change: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """A difference and its ends."""
    if change is None or math.isnan(change.value):
        return None, None, None
    low, high = (None if end is None else 100 * end for end in (change.low, change.high))
    return 100 * change.value, low, high


def _printed(
    grid: Grid, setting: Setting, task: BenchmarkTask | None, metric: str
) -> Printed | None:
    if task is None:
        if grid.name not in GRIDS or grid.tasks != GRIDS[grid.name].tasks:
            return None  # an average over other tasks
        column = AVERAGE, "", ""
    else:
        column = task.dataset, task.target, " x ".join(task.sensitive)
    return figures().get(Place(grid.name, setting.section, setting.row, *column, metric))
