"""The table of a run: our figures with their spread, beside zero-shot's and the paper's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.benchmarks.datasets import BenchmarkTask
from fair_tta.benchmarks.grids import GRIDS, Grid, Setting
from fair_tta.benchmarks.paper import AVERAGE, Place, Printed, figures
from fair_tta.benchmarks.results import Answers
from fair_tta.benchmarks.summary import COLUMNS, Cell, Column, cell, measure_columns
from fair_tta.metrics import SmallGroupWarning

SECONDS = "seconds"
"""The metric of cost: seconds per image, making and encoding views included."""

_TOGETHER = 9  # settings that one chart can hold
_COMPARED = {"target_confidence": "average_target_confidence"}  # other names in audits


@dataclass(frozen=True)
class Figure:
    """A metric of a setting on a task, in percent (cost in seconds).

    Attributes:
        setting: the row.
        task: the column, None for the mean over all tasks.
        metric: its key.
        images: how many answers, over all seeds; an image that two seeds have drawn counts twice.
        cell: mean and standard error over seeds, marked against zero-shot.
        difference: setting minus zero-shot on the images of all seeds together, each once with
            its first seed; None for zero-shot itself, for costs and for averages.
        low: lower end of its paired interval.
        high: upper end.
        printed: what the paper has in this cell, None if nothing.
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

    @property
    def minus_paper(self) -> float | None:
        """Our mean minus the paper's."""
        return None if self.printed is None else self.cell.mean - self.printed.value


BySeed = Mapping[int, Answers]
Values = dict[int, list[dict[str, float]]]


def measure_task(found: Mapping[int, BySeed]) -> Values:
    """The metrics of one task, setting by setting and seed by seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)  # the audits say it
        return {i: [_measure(a) for a in by_seed.values()] for i, by_seed in found.items()}


def tabulate(
    grid: Grid,
    task: BenchmarkTask,
    found: Mapping[int, BySeed],
    values: Values,
    views: int,
    audits: Sequence[tuple[str, Audit]],
) -> list[Figure]:
    """The figures of one task.

    Args:
        grid: the table.
        task: the task.
        found: ``{setting: {seed: Answers}}``
        values: of `measure_task`.
        views: how many views were made.
        audits: of `audit_task`, for paired intervals.
    """
    differences = {c["run"]: c for _, made in audits for c in made.document["comparisons"]}
    made = []
    for i, setting in enumerate(grid.settings):
        images = sum(len(a.labels) for a in found[i].values())
        for column in COLUMNS:
            made.append(
                Figure(
                    setting,
                    task,
                    column.key,
                    images,
                    _cell(column, values[i], values[0]),
                    *_difference(differences.get(setting.name), column.key),
                    printed=_printed(grid, setting, task, column.key),
                )
            )
        costs = [_cost(a, setting, views) for a in found[i].values()]
        printed = _printed(grid, setting, task, SECONDS)
        made.append(Figure(setting, task, SECONDS, images, cell(costs, costs, 0), printed=printed))
    return made


def averages(grid: Grid, by_task: Sequence[Values], images: int) -> list[Figure]:
    """The mean over all tasks of the table, each weighing the same, seed by seed."""

    def mean(setting: int) -> list[dict[str, float]]:
        seeds = zip(*(values[setting] for values in by_task), strict=True)
        return [
            {c.key: float(np.mean([row[c.key] for row in rows])) for c in COLUMNS} for rows in seeds
        ]

    base = mean(0)
    return [
        Figure(setting, None, column.key, images, _cell(column, mean(i), base),
               printed=_printed(grid, setting, None, column.key))
        for i, setting in enumerate(grid.settings)
        for column in COLUMNS
    ]  # fmt: skip


def _cell(
    column: Column, own: Sequence[Mapping[str, float]], base: Sequence[Mapping[str, float]]
) -> Cell:
    key = column.key
    return cell([row[key] for row in own], [row[key] for row in base], column.better)


def audit_task(
    grid: Grid,
    task: BenchmarkTask,
    found: Mapping[int, BySeed],
    views: int,
    provenance: Mapping[str, Any],
) -> list[tuple[str, Audit]]:
    """The images of all seeds together, each once, every setting beside zero-shot.

    Tables with many settings are split where the paper's are; each part has zero-shot in it.
    """
    made = [_audit(grid.settings[i], task, found[i], views, provenance) for i in found]
    if len(made) <= _TOGETHER:
        return [(str(task), compare(made))]
    parts = []
    others = zip(grid.settings[1:], made[1:], strict=True)
    for section, some in groupby(others, key=lambda pair: pair[0].section):
        title = f"{task}: {section}" if section else str(task)
        parts.append((title, compare([made[0], *(a for _, a in some)])))
    return parts


def _audit(
    setting: Setting,
    task: BenchmarkTask,
    by_seed: BySeed,
    views: int,
    provenance: Mapping[str, Any],
) -> Audit:
    rows = _once(by_seed)

    def joined(name: str) -> list[Any]:
        return [getattr(a, name)[i] for a, i in rows]

    attributes = rows[0][0].sensitive_entropy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)  # the audit says it too
        return audit(
            joined("truth"),
            joined("labels"),
            {s: [a.sensitive[s][i] for a, i in rows] for s in task.sensitive},
            name=setting.name,
            targets=list(task.targets),
            values={attribute: list(names) for attribute, names in task.sensitive.items()},
            scores=Scores(
                confidence=joined("confidence"),
                entropy=joined("entropy"),
                sensitive_entropy={
                    s: [a.sensitive_entropy[s][i] for a, i in rows] for s in attributes
                },
                relative_step=joined("relative_step"),
                warnings=joined("warnings"),
            ),
            seconds=sum(_cost(a, setting, views) for a, _ in rows),
            adapter=setting.adapter,
            provenance=provenance,
        )


def _once(by_seed: BySeed) -> list[tuple[Answers, int]]:
    """Every image once, with its first seed: several answers on one image are not independent."""
    rows: dict[str, tuple[Answers, int]] = {}
    for answers in by_seed.values():
        for i, image in enumerate(answers.images):
            rows.setdefault(image, (answers, i))
    return list(rows.values())


def _measure(answers: Answers) -> dict[str, float]:
    return measure_columns(
        answers.truth, answers.sensitive, answers.labels, answers.entropy, answers.indifference
    )


def _cost(answers: Answers, setting: Setting, views: int) -> float:
    """Seconds per image. A method without views is charged one view of the vision time."""
    share = 1 if setting.adapter.needs_views else 1 / views
    return (answers.seconds + share * answers.vision_seconds) / max(1, len(answers.labels))


def _difference(comparison: Any, metric: str) -> tuple[float | None, float | None, float | None]:
    if comparison is None:
        return None, None, None
    if metric == "sensitive_indifference":
        found = list(comparison["sensitive_indifference"].values())
        mean = {"value": sum(one["value"] for one in found) / len(found)} if found else {}
        estimate = found[0] if len(found) == 1 else mean  # which has no interval
    else:
        estimate = comparison["differences"][_COMPARED.get(metric, metric)]
    low, high = estimate.get("low"), estimate.get("high")
    return _percent(estimate.get("value")), _percent(low), _percent(high)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


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
