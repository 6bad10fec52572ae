"""From answers to the cells of a table: ours with their spread, beside the paper's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fair_tta import Prediction, audit, compare, metrics
from fair_tta.auditing import Audit, Scores
from fair_tta.datasets import BenchmarkTask
from fair_tta.errors import SmallGroupWarning
from paper.answers import Answer, TaskAnswers
from paper.printed import AVERAGE, Printed, printed_figures
from paper.tables import TABLES, Setting, Table

INDIFFERENCE = "sensitive_indifference"
CONFIDENCE = "target_confidence"
SECONDS = "seconds"
TITLES = {
    "accuracy": "Acc",
    "worst_group_accuracy": "WGA",
    "bias": "Bias",
    "equalized_odds_difference": "EOD",
    INDIFFERENCE: "ASI",
    CONFIDENCE: "ATC",
}
"""The metrics of a table, and what their columns are called."""

HIGHER_IS_BETTER = {
    "accuracy": 1,
    "worst_group_accuracy": 1,
    "bias": -1,
    "equalized_odds_difference": -1,
}
"""Those that are marked where they differ from zero-shot; whether ASI and ATC should rise is not
agreed upon."""


@dataclass(frozen=True)
class Interval:
    """A figure with the ends of its interval, None where there is none; in percent."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Figure:
    """A metric of a setting on a task, in percent, or seconds per image.

    Attributes:
        task: None for the mean over all tasks.
        images: how many answers, over all seeds; an image that two seeds have drawn counts twice.
        seeds: how many.
        mean: over seeds.
        standard_error: of the mean, NaN for a single seed.
        pooled: the figure of the images of all seeds together, each once with its first seed;
            None for seconds.
        change: setting minus zero-shot on these images, paired; None for zero-shot itself, for
            seconds and for means over tasks.
        mark: 1 if better than zero-shot, -1 if worse, 0 if the interval of the change contains 0.
        printed: what the paper has in this cell, None if nothing.
    """

    setting: Setting
    task: BenchmarkTask | None
    metric: str
    images: int
    seeds: int
    mean: float
    standard_error: float
    pooled: Interval | None = None
    change: Interval | None = None
    mark: int = 0
    printed: Printed | None = None

    @property
    def minus_paper(self) -> float | None:
        """Our mean over seeds minus the paper's figure."""
        return None if self.printed is None else self.mean - self.printed.value


def measure(
    task_targets: Sequence[str],
    truth: Sequence[str],
    sensitive: Mapping[str, Sequence[str]],
    predictions: Sequence[Prediction],
) -> dict[str, float]:
    """Return the metrics of `TITLES` of the images of one seed, in percent.

    Groups are those of class and sensitive values. With several attributes groups are their
    intersections, and ASI is the mean over attributes.
    """
    labels = [prediction.label for prediction in predictions]
    targets = list(task_targets)
    values: dict[str, float] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        for name in HIGHER_IS_BETTER:
            metric = getattr(metrics, name)
            figure = metric(truth, labels, sensitive, targets=targets, interval=None)
            values[name] = 100 * float(figure)
    indifferent = [np.mean([*p.sensitive_entropy.values()]) for p in predictions]
    values[INDIFFERENCE] = 100 * float(np.mean(indifferent))
    values[CONFIDENCE] = 100 * float(1 - np.mean([p.entropy for p in predictions]))
    return values


def audit_task(table: Table, answers: TaskAnswers) -> Audit:
    """Return the audit of the images of all seeds, each once, every setting beside zero-shot."""
    audits = []
    task = answers.task
    for setting, rows in zip(table.settings, answers.by_setting, strict=True):
        first = first_answers(rows)
        sensitive = sensitive_of(first, task)
        predictions = [answer.prediction for answer in first]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            run = audit(
                [answer.record.target for answer in first],
                [prediction.label for prediction in predictions],
                sensitive,
                name=setting.name,
                targets=list(task.targets),
                values={
                    attribute: list(names)
                    for attribute, names in task.sensitive.items()
                },
                scores=Scores.from_predictions(predictions),
                harmful=dict(task.harmful) or None,
                digests=[answer.digest for answer in first],
            )
        audits.append(run)
    return compare(audits)


def first_answers(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answer to each image with its first seed: others are not independent of it."""
    by_key: dict[str, Answer] = {}
    for answer in answers:
        by_key.setdefault(answer.record.key, answer)
    return [*by_key.values()]


def sensitive_of(
    answers: Sequence[Answer], task: BenchmarkTask
) -> dict[str, list[str]]:
    """Return ``{attribute: values}`` of the images."""
    return {
        attribute: [answer.record.sensitive[attribute] for answer in answers]
        for attribute in task.sensitive
    }


@dataclass(frozen=True)
class TaskFigures:
    """The figures of one task, and what averages are made of.

    Attributes:
        by_seed: for each setting the metrics of each seed.
    """

    figures: list[Figure]
    audit: Audit
    by_seed: list[list[dict[str, float]]]


def task_figures(table: Table, answers: TaskAnswers) -> TaskFigures:
    """Return the figures of a task."""
    task = answers.task
    pooled_audit = audit_task(table, answers)
    figures: list[Figure] = []
    by_seed = []
    for setting, rows in zip(table.settings, answers.by_setting, strict=True):
        seeds: dict[int, list[Answer]] = {}
        for answer in rows:
            seeds.setdefault(answer.seed, []).append(answer)
        values = [
            _measure_answers(seed_answers, task) for seed_answers in seeds.values()
        ]
        by_seed.append(values)
        for metric in TITLES:
            pooled, change = _in_audit(pooled_audit, setting.name, metric)
            figure = Figure(
                setting,
                task,
                metric,
                len(rows),
                len(values),
                *mean_and_error([value[metric] for value in values]),
                pooled,
                change,
                mark_of(metric, change),
                _printed(table, setting, task, metric),
            )
            figures.append(figure)
        if table.timed:
            times = [
                np.mean([answer.seconds for answer in seed_answers])
                for seed_answers in seeds.values()
            ]
            printed = _printed(table, setting, task, SECONDS)
            seconds = mean_and_error(times)
            figures.append(
                Figure(
                    setting,
                    task,
                    SECONDS,
                    len(rows),
                    len(times),
                    *seconds,
                    printed=printed,
                )
            )
    return TaskFigures(figures, pooled_audit, by_seed)


def _measure_answers(
    answers: Sequence[Answer], task: BenchmarkTask
) -> dict[str, float]:
    truth = [answer.record.target for answer in answers]
    predictions = [answer.prediction for answer in answers]
    return measure([*task.targets], truth, sensitive_of(answers, task), predictions)


def average_figures(table: Table, tasks: Sequence[TaskFigures]) -> list[Figure]:
    """Return the means over all tasks, each weighing the same, seed by seed and pooled."""
    figures = []
    for index, setting in enumerate(table.settings):
        seeds = [*zip(*(task.by_seed[index] for task in tasks), strict=True)]
        for metric in TITLES:
            means = [
                np.mean([values[metric] for values in by_task]) for by_task in seeds
            ]
            parts = []
            for task in tasks:
                parts += [
                    f
                    for f in task.figures
                    if (f.setting, f.metric) == (setting, metric)
                ]
            pooled = np.mean(
                [part.pooled.value for part in parts if part.pooled is not None]
            )
            figure = Figure(
                setting,
                None,
                metric,
                sum(part.images for part in parts),
                len(seeds),
                *mean_and_error(means),
                Interval(float(pooled)),
                printed=_printed(table, setting, None, metric),
            )
            figures.append(figure)
    return figures


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, NaN for a single value."""
    if len(values) == 1:
        return float(values[0]), math.nan
    return float(np.mean(values)), float(
        np.std(values, ddof=1) / math.sqrt(len(values))
    )


def mark_of(metric: str, change: Interval | None) -> int:
    """Return 1 if the interval shows a metric to be better than zero-shot's, -1 if worse."""
    if change is None or change.low is None or change.high is None:
        return 0
    side = int(change.low > 0) - int(change.high < 0)
    return side * HIGHER_IS_BETTER.get(metric, 0)


def _in_audit(
    pooled_audit: Audit, name: str, metric: str
) -> tuple[Interval, Interval | None]:
    """Return a metric of a run, and its change from zero-shot.

    The interval of the change allows for all settings of the table (Holm), that of ASI does not.
    """
    document = pooled_audit.document
    (run,) = [run for run in document.runs if run.name == name]
    against = [
        comparison for comparison in document.comparisons if comparison.run == name
    ]
    if metric == INDIFFERENCE:
        pooled = _mean_over_attributes(run.sensitive_indifference)
        change = (
            _mean_over_attributes(against[0].sensitive_indifference)
            if against
            else None
        )
        return pooled, change
    key = "average_target_confidence" if metric == CONFIDENCE else metric
    pooled = _in_percent(run.metrics.by_name()[key])
    change = _in_percent(against[0].adjusted.by_name()[key]) if against else None
    return pooled, change


def _mean_over_attributes(fields: Mapping[str, Any]) -> Interval:
    """Return the figure of one attribute; of several their mean, which has no interval."""
    intervals = [_in_percent(field) for field in fields.values()]
    if len(intervals) == 1:
        return intervals[0]
    return Interval(float(np.mean([interval.value for interval in intervals])))


def _in_percent(field: Any) -> Interval:
    bounds = [None if end is None else 100 * end for end in (field.low, field.high)]
    return Interval(math.nan if field.value is None else 100 * field.value, *bounds)


def _printed(
    table: Table, setting: Setting, task: BenchmarkTask | None, metric: str
) -> Printed | None:
    if task is not None:
        column = task.dataset, task.target, " x ".join(task.sensitive)
    elif table.name in TABLES and table.tasks == TABLES[table.name].tasks:
        column = AVERAGE, "", ""
    else:
        return None  # an average over other tasks
    return printed_figures().get(
        (table.name, setting.section, setting.row, *column, metric)
    )
