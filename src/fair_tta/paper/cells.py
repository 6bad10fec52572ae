"""The table of the paper: metrics of each method, mean and standard error over seeds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fair_tta import metrics
from fair_tta.auditing.columns import Columns
from fair_tta.auditing.document import Comparison
from fair_tta.metrics import Estimate
from fair_tta.metrics.estimate import direction


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

    @property
    def figures(self) -> str:
        """Mean and standard error."""
        if math.isnan(self.mean):
            return "n/a"
        if math.isnan(self.error):
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} ±{self.error:.{1 if self.error < 9.95 else 0}f}"

    def __str__(self) -> str:
        return self.figures + ("", " +", " -")[self.mark]


def measure(columns: Columns) -> dict[str, float]:
    """The metrics of `COLUMNS` of one method on the pictures of one seed, in percent.

    Worst-group accuracy is over (target, sensitive values). With several attributes groups are
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
        return comparison.differences.by_name()[_IN_AUDITS.get(metric, metric)].estimate
    found = [one.estimate for one in comparison.sensitive_indifference.values()]
    if len(found) < 2:
        return found[0] if found else None
    return Estimate(float(np.mean([one.value for one in found])), found[0].n)


def mark(column: MetricColumn, difference: Estimate | None) -> int:
    """Whether a paired interval shows a metric to be better (1) or worse (-1) than zero-shot's."""
    if difference is None:
        return 0
    return column.better * direction(difference.low, difference.high)


def summarise_seeds(
    by_method: Mapping[str, Sequence[Mapping[str, float]]],
    comparisons: Iterable[Comparison],
) -> dict[str, dict[str, Cell]]:
    """``{method: {metric: Cell}}`` of what `measure` found for each seed.

    Args:
        by_method: for each method an entry per seed.
        comparisons: with zero-shot, of an audit of all seeds together.
    """
    against = {c.run: c for c in comparisons}
    return {
        method: {
            column.key: cell(
                [row[column.key] for row in rows],
                mark(column, paired(against[method], column.key)) if method in against else 0,
            )
            for column in COLUMNS
        }
        for method, rows in by_method.items()
    }
