"""Metrics as functions of confusion counts ``[..., groups, true, predicted]``.

Each has two halves: rates of groups, and how they are combined. Leading dimensions are resamples.
Rates of empty groups are NaN, and minima and gaps are taken over the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fair_tta.metrics._estimate import Over
from fair_tta.metrics._paired import (
    ChangeInterval,
    balanced_change,
    false_alarms,
    hits,
    lowest_change,
    mean_gap_change,
    overall_change,
    selections,
    shortfall_change,
)
from fair_tta.metrics._rows import Floats


@dataclass(frozen=True)
class Metric:
    """A metric that is a function of confusion counts. Make your own to compare runs by it.

    Attributes:
        name: what it is called in results.
        rates: counts to rates, ``[..., groups, true, predicted] -> [..., *any shape]``.
        combine: rates to the metric, ``[..., *any shape] -> [...]``, or ``[..., targets]``.
        is_gap: `combine` is a seminorm: 0 if all groups are equal, and the gap of a sum is at most
            the sum of the gaps. Then intervals can be made that do not shun 0.
        change: the interval of its change from one run to another. Without it images are resampled,
            which is good for smooth functions of rates and too narrow for minima and gaps.
    """

    name: str
    rates: Callable[[Floats], Floats]
    combine: Callable[[Floats], Floats]
    is_gap: bool = False
    change: ChangeInterval | None = None

    def __call__(self, counts: Any) -> Floats:
        """``[..., groups, true, predicted] -> [...]``."""
        return self.combine(self.rates(np.asarray(counts, np.float64)))


def ratio(top: Floats, bottom: Floats) -> Floats:
    """Top over bottom, NaN where there is nothing."""
    nothing = np.full(np.broadcast_shapes(top.shape, bottom.shape), np.nan)
    np.divide(top, bottom, out=nothing, where=bottom > 0)
    return nothing


def overall(counts: Floats) -> Floats:
    """Accuracy over everybody: ``[...]``."""
    return ratio(_diagonal(counts).sum((-1, -2)), counts.sum((-1, -2, -3)))


def by_group(counts: Floats) -> Floats:
    """Accuracy of each group: ``[..., groups]``."""
    return ratio(_diagonal(counts).sum(-1), counts.sum((-1, -2)))


def true_positive(counts: Floats) -> Floats:
    """Accuracy of each group on each class: ``[..., groups, targets]``."""
    return ratio(_diagonal(counts), counts.sum(-1))


def false_positive(counts: Floats) -> Floats:
    """How often images of other classes get this answer: ``[..., groups, targets]``."""
    true, answered = counts.sum(-1), counts.sum(-2)
    return ratio(answered - _diagonal(counts), true.sum(-1, keepdims=True) - true)


def selection(counts: Floats) -> Floats:
    """How often each answer is given: ``[..., groups, targets]``."""
    answered = counts.sum(-2)
    return ratio(answered, answered.sum(-1, keepdims=True))


def gap(rates: Floats) -> Floats:
    """Largest minus smallest over groups, ``[..., groups, targets] -> [..., targets]``.

    NaN where fewer than two groups have a rate.
    """
    spread: Floats = np.fmax.reduce(rates, -2) - np.fmin.reduce(rates, -2)
    return np.where((~np.isnan(rates)).sum(-2) < 2, np.nan, spread)


def mean_of_defined(values: Floats) -> Floats:
    """Mean over the last axis of what is not NaN, NaN if nothing is."""
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0.0).sum(-1), known.sum(-1).astype(np.float64))


def _diagonal(counts: Floats) -> Floats:
    diagonal: Floats = np.einsum("...ii->...i", counts)
    return diagonal


def _odds(counts: Floats) -> Floats:
    """``[..., 2, groups, targets]``."""
    return np.stack([true_positive(counts), false_positive(counts)], -3)


def _accuracy_and(rates: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    def both(counts: Floats) -> Floats:
        first = overall(counts)[..., None]
        return np.concatenate([first, rates(counts).reshape(*first.shape[:-1], -1)], -1)

    return both


def _worst(rates: Floats) -> Floats:
    lowest: Floats = np.fmin.reduce(rates, -1)
    return lowest


def _shortfall(rates: Floats) -> Floats:
    return rates[..., 0] - _worst(rates[..., 1:])


def _flat(counts: Floats) -> Floats:
    rates = true_positive(counts)
    return rates.reshape(*rates.shape[:-2], -1)


def _mean_gap(rates: Floats) -> Floats:
    return mean_of_defined(gap(rates))


_PAIRS, _VALUES = Over.TARGET_AND_SENSITIVE, Over.SENSITIVE
ACCURACY = Metric("accuracy", overall, lambda rates: rates, change=overall_change)
BALANCED_ACCURACY = Metric("balanced_accuracy", _flat, mean_of_defined, change=balanced_change)
WORST_GROUP_ACCURACY = Metric("worst_group_accuracy", _flat, _worst, change=lowest_change(_PAIRS))
WORST_GROUP_ACCURACY_S = Metric(
    "worst_group_accuracy_s", by_group, _worst, change=lowest_change(_VALUES)
)
BIAS = Metric("bias", _accuracy_and(true_positive), _shortfall, change=shortfall_change(_PAIRS))
BIAS_S = Metric("bias_s", _accuracy_and(by_group), _shortfall, change=shortfall_change(_VALUES))
EQUALIZED_ODDS = Metric(
    "equalized_odds_difference",
    _odds,
    lambda rates: mean_of_defined(gap(rates).max(-2)),  # NaN wins, so a class needs both gaps
    is_gap=True,
    change=mean_gap_change(hits, false_alarms),
)
EQUAL_OPPORTUNITY = Metric(
    "equal_opportunity_difference",
    true_positive,
    _mean_gap,
    is_gap=True,
    change=mean_gap_change(hits),
)
DEMOGRAPHIC_PARITY = Metric(
    "demographic_parity_difference",
    selection,
    _mean_gap,
    is_gap=True,
    change=mean_gap_change(selections),
)

TRUE_POSITIVE_GAPS = Metric("true_positive_rate_gaps", true_positive, gap, is_gap=True)
FALSE_POSITIVE_GAPS = Metric("false_positive_rate_gaps", false_positive, gap, is_gap=True)
SELECTION_GAPS = Metric("selection_rate_gaps", selection, gap, is_gap=True)
