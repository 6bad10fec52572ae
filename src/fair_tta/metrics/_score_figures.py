"""Figures that are no function of counts: of what runs report besides answers; the typical gap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._calibration import (
    BINS,
    calibration,
    calibration_change,
    mean_estimate,
)
from fair_tta.metrics._estimates import (
    Estimate,
    GroupBy,
    missing_groups_note,
    undefined_estimate,
)
from fair_tta.metrics._metric import at_least_unclustered, with_reason
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._types import Floats
from fair_tta.metrics.intervals import _typical_gap as gaps
from fair_tta.metrics.intervals._bootstrap import Bootstrap

NOT_GIVEN = "not given: no scores were passed"


def mean_score(columns: AnswerTable, figures: Floats | None, level: float) -> Estimate:
    """Mean of a number from 0 to 1 of each image."""
    if figures is None:
        return undefined_estimate(NOT_GIVEN)
    return mean_estimate(figures, level, weight=_weight_of_mean(columns, figures))


def mean_score_change(
    columns: AnswerTable, less: Floats | None, more: Floats | None, level: float
) -> Estimate:
    """Mean of ``more - less``, image by image."""
    if less is None or more is None:
        return undefined_estimate(NOT_GIVEN)
    change = more - less
    return mean_estimate(
        change, level, least=-1.0, weight=_weight_of_mean(columns, change)
    )


def _weight_of_mean(columns: AnswerTable, figures: Floats) -> float:
    return columns.effective_weight(np.ones(len(figures), np.bool_), figures)


def certainty(columns: AnswerTable, run: int, how: Bootstrap) -> Estimate:
    """One minus the mean entropy of the targets."""
    entropy = _scores(columns, run).entropy
    return mean_score(columns, None if entropy is None else 1 - entropy, how.level)


def certainty_change(
    columns: AnswerTable, before: int, after: int, how: Bootstrap
) -> Estimate:
    """How much the mean entropy of the targets falls from one run to another."""
    less, more = _scores(columns, after).entropy, _scores(columns, before).entropy
    return mean_score_change(columns, less, more, how.level)


def indifference(columns: AnswerTable, run: int, how: Bootstrap) -> Estimate:
    """The mean entropy."""
    return mean_score(columns, _scores(columns, run).entropy, how.level)


def indifference_change(
    columns: AnswerTable, before: int, after: int, how: Bootstrap
) -> Estimate:
    """How much the mean entropy rises from one run to another."""
    less, more = _scores(columns, before).entropy, _scores(columns, after).entropy
    return mean_score_change(columns, less, more, how.level)


def _scores(columns: AnswerTable, run: int) -> Scores:
    """What a run reports besides answers; nothing where no scores were passed."""
    return columns.scores[run] if columns.scores else Scores()


def calibration_error(
    columns: AnswerTable, run: int, how: Bootstrap, group: int | None = None
) -> Estimate:
    """The calibration error of all images or of a group, if confidences are known."""
    confidence = _scores(columns, run).confidence
    if confidence is None:
        return undefined_estimate(NOT_GIVEN)
    some = slice(None) if group is None else columns.group_codes == group
    right = columns.truth[some] == columns.answers[run][some]
    clusters = None if columns.clusters is None else columns.clusters[some]
    return calibration(right, confidence[some], BINS, how, clusters)


def calibration_error_change(
    columns: AnswerTable, before: int, after: int, how: Bootstrap
) -> Estimate:
    """The calibration error of one run minus that of another."""
    sure = [_scores(columns, run).confidence for run in (before, after)]
    if sure[0] is None or sure[1] is None:
        return undefined_estimate(NOT_GIVEN)
    right = [columns.truth == columns.answers[run] for run in (before, after)]
    return calibration_change(right, sure, BINS, how, columns.clusters)


def typical_gap(columns: AnswerTable, run: int, how: Bootstrap) -> Estimate:
    """The typical gap, with an interval where there are enough images."""
    gap = partial(gaps.measure_typical_gap, run=run)
    return _of_typical_gap(gap, columns, how.level, gaps.why_no_interval(columns))


def typical_gap_change(
    columns: AnswerTable, before: int, after: int, how: Bootstrap
) -> Estimate:
    """The typical gap of one run minus that of another."""
    why = gaps.why_no_interval(columns, before, after)
    change = partial(gaps.measure_typical_gap_change, before=before, after=after)
    return _of_typical_gap(change, columns, how.level, why)


def _of_typical_gap(
    of: Callable[[AnswerTable], Any],
    columns: AnswerTable,
    level: float,
    withheld: str | None,
) -> Estimate:
    gap = of(columns)
    low = high = None
    if not withheld and not np.isnan(gap.value):
        low, high = at_least_unclustered(
            columns, lambda some: of(some).bounds((1 - level) / 2)
        )
    reason = withheld or missing_groups_note(
        columns.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE)
    )
    needs = "two groups with images of one class"
    return with_reason(gap.value, columns.n, low, high, reason, needs)
