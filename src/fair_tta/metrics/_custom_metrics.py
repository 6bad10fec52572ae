"""Metrics that are no function of confusion counts: means of scores, calibration, typical gap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._calibration import (
    estimate_calibration_change,
    estimate_calibration_error,
    mean_estimate,
)
from fair_tta.metrics._estimates import (
    Estimate,
    GroupBy,
    missing_groups_note,
    undefined_estimate,
)
from fair_tta.metrics._metric import at_least_unclustered, estimate_with_reason
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._types import Floats
from fair_tta.metrics.intervals import _typical_gap as typical_gaps
from fair_tta.metrics.intervals._bootstrap import Bootstrap

NO_SCORES = "not given: no scores were passed"

_TypicalGap: TypeAlias = typical_gaps.TypicalGap | typical_gaps.TypicalGapChange


def mean_score(table: AnswerTable, scores: Floats | None, level: float) -> Estimate:
    """Return the mean of a score in [0, 1] of each image."""
    if scores is None:
        return undefined_estimate(NO_SCORES)
    return mean_estimate(scores, level, weight=_weight_of_mean(table, scores))


def mean_score_change(
    table: AnswerTable, before: Floats | None, after: Floats | None, level: float
) -> Estimate:
    """Return the mean of ``after - before``, image by image."""
    if before is None or after is None:
        return undefined_estimate(NO_SCORES)
    change = after - before
    weight = _weight_of_mean(table, change)
    return mean_estimate(change, level, least=-1.0, weight=weight)


def _weight_of_mean(table: AnswerTable, scores: Floats) -> float:
    all_images = np.ones(len(scores), np.bool_)
    return table.effective_weight(all_images, scores)


def _scores(table: AnswerTable, run: int) -> Scores:
    """Return the scores of a run; empty ones if none were passed."""
    return table.scores[run] if table.scores else Scores()


def target_confidence(table: AnswerTable, run: int, bootstrap: Bootstrap) -> Estimate:
    """Return one minus the mean entropy of the targets."""
    entropy = _scores(table, run).entropy
    confidence = None if entropy is None else 1 - entropy
    return mean_score(table, confidence, bootstrap.level)


def target_confidence_change(
    table: AnswerTable, before: int, after: int, bootstrap: Bootstrap
) -> Estimate:
    """Return by how much the mean entropy of the targets falls from one run to another."""
    # Confidence rises by as much as entropy falls, so the runs are exchanged.
    entropy_before = _scores(table, before).entropy
    entropy_after = _scores(table, after).entropy
    return mean_score_change(table, entropy_after, entropy_before, bootstrap.level)


def indifference(table: AnswerTable, run: int, bootstrap: Bootstrap) -> Estimate:
    """Return the mean entropy."""
    return mean_score(table, _scores(table, run).entropy, bootstrap.level)


def indifference_change(
    table: AnswerTable, before: int, after: int, bootstrap: Bootstrap
) -> Estimate:
    """Return by how much the mean entropy rises from one run to another."""
    entropy_before = _scores(table, before).entropy
    entropy_after = _scores(table, after).entropy
    return mean_score_change(table, entropy_before, entropy_after, bootstrap.level)


def calibration_error(
    table: AnswerTable, run: int, bootstrap: Bootstrap, group: int | None = None
) -> Estimate:
    """Return the calibration error of all images or of a group, if confidences are known."""
    confidence = _scores(table, run).confidence
    if confidence is None:
        return undefined_estimate(NO_SCORES)
    # All images, or those of the group.
    is_correct = table.truth == table.answers[run]
    clusters = table.clusters
    if group is not None:
        in_group = table.group_codes == group
        is_correct = is_correct[in_group]
        confidence = confidence[in_group]
        clusters = None if clusters is None else clusters[in_group]
    return estimate_calibration_error(is_correct, confidence, bootstrap, clusters)


def calibration_error_change(
    table: AnswerTable, before: int, after: int, bootstrap: Bootstrap
) -> Estimate:
    """Return the calibration error of one run minus that of another."""
    confidence_before = _scores(table, before).confidence
    confidence_after = _scores(table, after).confidence
    if confidence_before is None or confidence_after is None:
        return undefined_estimate(NO_SCORES)
    return estimate_calibration_change(
        [table.truth == table.answers[run] for run in (before, after)],
        [confidence_before, confidence_after],
        bootstrap,
        table.clusters,
    )


def typical_gap_estimate(
    table: AnswerTable, run: int, bootstrap: Bootstrap
) -> Estimate:
    """Return the typical gap, with an interval where there are enough images.

    The interval has a closed form: of `bootstrap` only the level counts.
    """
    why_no_interval = typical_gaps.why_no_interval(table)

    def gap_of(table_or_unclustered: AnswerTable) -> _TypicalGap:
        return typical_gaps.measure_typical_gap(table_or_unclustered, run)

    return _estimate_gap(gap_of, table, bootstrap.level, why_no_interval)


def typical_gap_difference(
    table: AnswerTable, before: int, after: int, bootstrap: Bootstrap
) -> Estimate:
    """Return the typical gap of one run minus that of another."""
    withheld = typical_gaps.why_no_interval(table, before, after)

    def change_of(images: AnswerTable) -> _TypicalGap:
        return typical_gaps.measure_typical_gap_change(images, before, after)

    return _estimate_gap(change_of, table, bootstrap.level, withheld)


def _estimate_gap(
    gap_of: Callable[[AnswerTable], _TypicalGap],
    table: AnswerTable,
    level: float,
    withheld: str | None,
) -> Estimate:
    """Return a typical gap or its change; `withheld` is the reason to omit its interval."""
    # The value stands where there are too few images for an interval.
    value = gap_of(table).value
    low = None
    high = None
    if not withheld and not np.isnan(value):
        error = (1 - level) / 2
        low, high = at_least_unclustered(
            table, lambda images: gap_of(images).bounds(error)
        )
    sizes = table.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE)
    reason = withheld or missing_groups_note(sizes)
    needs = "two groups with images of one class"
    return estimate_with_reason(value, table.n, low, high, reason, needs)
