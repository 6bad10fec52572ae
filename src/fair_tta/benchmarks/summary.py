"""The table of the paper: metrics of each method, mean and standard error over seeds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fair_tta import metrics
from fair_tta.prediction import Prediction

NOTEWORTHY = 2.0
"""Cells further than this from zero-shot, in points, are marked, as in the paper."""


@dataclass(frozen=True)
class Column:
    """A metric in percent.

    Attributes:
        key: its name in `measure`.
        title: its name in tables.
        better: 1 if more is better, -1 if less is, 0 if neither is.
    """

    key: str
    title: str
    better: int


COLUMNS = (
    Column("accuracy", "Acc", 1),
    Column("worst_group_accuracy", "WGA", 1),
    Column("bias", "Bias", -1),
    Column("equalized_odds_difference", "EOD", -1),
    Column("sensitive_indifference", "ASI", 1),
    Column("target_confidence", "ATC", 1),
)


@dataclass(frozen=True)
class Cell:
    """A metric of a method over seeds.

    Attributes:
        mean: over seeds; NaN if the metric is undefined for one of them.
        error: standard error of the mean, NaN for a single seed.
        seeds: how many.
        mark: 1 if better than zero-shot by more than `NOTEWORTHY`, -1 if worse, else 0.
    """

    mean: float
    error: float
    seeds: int
    mark: int

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


def measure(
    truth: Sequence[str],
    sensitive: Mapping[str, Sequence[str]],
    predictions: Sequence[Prediction],
) -> dict[str, float]:
    """The metrics of `COLUMNS` of one method on the pictures of one seed, in percent.

    Worst-group accuracy is over (target, sensitive values). With several attributes groups are
    their intersections and ASI is the mean over attributes.
    """
    return measure_columns(
        truth,
        sensitive,
        [p.label for p in predictions],
        [p.entropy for p in predictions],
        [float(np.mean([*p.sensitive_entropy.values()])) for p in predictions if p.sensitive],
    )


def measure_columns(
    truth: Sequence[str],
    sensitive: Mapping[str, Sequence[str]],
    answers: Sequence[str],
    entropy: Sequence[float],
    indifference: Sequence[float],
) -> dict[str, float]:
    """As `measure`, from columns.

    Args:
        truth: the true targets.
        sensitive: ``{attribute: true values}``
        answers: the targets answered.
        entropy: normalised entropy of the targets.
        indifference: normalised entropy of the sensitive attributes, their mean if there are
            several; empty if it is not known.
    """
    with warnings.catch_warnings():  # what few images mean shows in the error over seeds
        warnings.simplefilter("ignore", metrics.SmallGroupWarning)
        found = {
            "accuracy": metrics.accuracy(truth, answers).value,
            "worst_group_accuracy": metrics.worst_group_accuracy(truth, answers, sensitive).value,
            "bias": metrics.bias(truth, answers, sensitive).value,
            "equalized_odds_difference": metrics.equalized_odds_difference(
                truth, answers, sensitive
            ).value,
            "sensitive_indifference": float(np.mean(indifference)) if indifference else math.nan,
            "target_confidence": 1 - float(np.mean(entropy)),
        }
    return {key: 100 * value for key, value in found.items()}


def cell(values: Sequence[float], reference: Sequence[float], better: int) -> Cell:
    """Mean and standard error over seeds, marked against zero-shot's."""
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
    gain = better * (mean - float(np.mean(reference)))
    mark = int(math.copysign(1, gain)) if abs(gain) > NOTEWORTHY else 0  # NaN has no mark
    return Cell(mean, error, len(values), mark)


def summarise(
    by_method: Mapping[str, Sequence[Mapping[str, float]]], reference: str
) -> dict[str, dict[str, Cell]]:
    """``{method: {metric: Cell}}`` of what `measure` found for each seed.

    Args:
        by_method: for each method an entry per seed.
        reference: the method that the others are marked against.
    """
    base = by_method[reference]
    return {
        method: {
            column.key: cell(
                [row[column.key] for row in rows], [row[column.key] for row in base], column.better
            )
            for column in COLUMNS
        }
        for method, rows in by_method.items()
    }
