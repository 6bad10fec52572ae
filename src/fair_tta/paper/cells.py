"""Cells of tables: a metric of a method, of all pictures together and over seeds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fair_tta import metrics
from fair_tta.auditing.columns import Columns
from fair_tta.auditing.document import Comparison, RunFigures
from fair_tta.metrics import Estimate
from fair_tta.metrics.estimate import direction, undefined


@dataclass(frozen=True)
class MetricColumn:
    """A metric in percent.

    Attributes:
        key: its name in `measure`.
        title: its name in tables.
        better: 1 if more is better, -1 if less is, 0 if neither is: such are not marked.
    """

    key: str
    title: str
    better: int


INDIFFERENCE_KEY = "sensitive_indifference"
COLUMNS = (
    MetricColumn("accuracy", "Acc", 1),
    MetricColumn("worst_group_accuracy", "WGA", 1),
    MetricColumn("bias", "Bias", -1),
    MetricColumn("equalized_odds_difference", "EOD", -1),
    MetricColumn(INDIFFERENCE_KEY, "ASI", 0),
    MetricColumn("target_confidence", "ATC", 0),
)

_IN_AUDITS = {"target_confidence": "average_target_confidence"}  # other names


@dataclass(frozen=True)
class Cell:
    """A metric of a method over seeds.

    Attributes:
        mean: over seeds; NaN if the metric is undefined for one of them.
        error: standard error of the mean, NaN for a single seed.
        seeds: how many.
        mark: 1 if better than zero-shot, -1 if worse, 0 if the paired interval of the difference
            cannot tell.
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


def measure(columns: Columns) -> dict[str, float]:
    """The metrics of `COLUMNS` of one method on the pictures of one seed, in percent.

    Groups are those of class and sensitive values. With several attributes groups are
    their intersections and ASI is the mean over attributes.
    """
    truth, answers, sensitive = columns.truth, columns.labels, columns.sensitive
    scores = columns.scores()
    indifference = [float(np.mean(of)) for of in (scores.sensitive_entropy or {}).values()]
    with warnings.catch_warnings():  # what few images mean shows in the error over seeds
        warnings.simplefilter("ignore", metrics.SmallGroupWarning)
        found = {
            "accuracy": metrics.accuracy(truth, answers).value,
            "worst_group_accuracy": metrics.worst_group_accuracy(truth, answers, sensitive).value,
            "bias": metrics.bias(truth, answers, sensitive).value,
            "equalized_odds_difference": metrics.equalized_odds_difference(
                truth, answers, sensitive
            ).value,
            INDIFFERENCE_KEY: float(np.mean(indifference)) if indifference else math.nan,
            "target_confidence": 1 - float(np.mean(scores.entropy)),
        }
    return {key: 100 * value for key, value in found.items()}


def cell(values: Sequence[float], mark: int = 0) -> Cell:
    """Mean and standard error over seeds."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return Cell(float(np.mean(values)), error, len(values), mark)


def paired(comparison: Comparison, metric: str) -> Estimate | None:
    """The difference from zero-shot that an audit has for a metric of `COLUMNS`.

    Indifference to several attributes is their mean, which has no interval.
    """
    if metric != INDIFFERENCE_KEY:
        return comparison.told.by_name()[_IN_AUDITS.get(metric, metric)].estimate
    found = [one.estimate for one in comparison.sensitive_indifference.values()]
    return _mean(found) if found else None


def mark(column: MetricColumn, difference: Estimate | None) -> int:
    """Whether a paired interval shows a metric to be better (1) or worse (-1) than zero-shot's."""
    if difference is None:
        return 0
    return column.better * direction(difference.low, difference.high)


def of_run(run: RunFigures, metric: str) -> Estimate:
    """A metric of `COLUMNS` in an audit. Indifference to several attributes has no interval."""
    if metric != INDIFFERENCE_KEY:
        return run.metrics.by_name()[_IN_AUDITS.get(metric, metric)].estimate
    return _mean([one.estimate for one in run.sensitive_indifference.values()])


def shown_figure(estimate: Estimate, mark: int = 0, digits: int = 1) -> str:
    """In percent with its interval: ``62.5 [48.1, 75.0] +``.

    Args:
        estimate: a share.
        mark: 1 if it is better than zero-shot's, -1 if worse.
        digits: of the interval after the point.
    """
    if math.isnan(estimate.value):
        return "n/a"
    text = f"{100 * estimate.value:.1f}"
    if estimate.low is not None and estimate.high is not None:
        text += f" [{100 * estimate.low:.{digits}f}, {100 * estimate.high:.{digits}f}]"
    return text + ("", " +", " -")[mark]


def _mean(found: Sequence[Estimate]) -> Estimate:
    """Of attributes; one has its interval."""
    if len(found) == 1:
        return found[0]
    if not found:
        return undefined("no sensitive attribute")
    return Estimate(float(np.mean([one.value for one in found])), found[0].n)
