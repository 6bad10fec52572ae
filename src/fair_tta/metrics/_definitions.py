"""Every metric, defined once: audits, comparisons, reports and docs follow the table `METRICS`.

Most are functions of confusion counts ``[..., groups, true, predicted]`` with two halves: rates of
groups, and how they are combined. Leading dimensions are resamples. Rates of empty groups are NaN,
and minima and gaps are taken over the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fair_tta.metrics import _extremes as extremes
from fair_tta.metrics._bootstrap import Bootstrap
from fair_tta.metrics._calibration import BINS, calibration, calibration_change, mean
from fair_tta.metrics._columns import Columns, Floats, Mask
from fair_tta.metrics._estimate import Estimate, Over, left_out, undefined
from fair_tta.metrics._extremes import ByDraws, class_ends, run_ends
from fair_tta.metrics._intervals import (
    Ends,
    clopper_pearson_ends,
    mean_change_ends,
    mean_rate_ends,
    paired_ends,
    wilson,
)
from fair_tta.metrics._metric import Figure, OwnMetric, widest, with_reason
from fair_tta.metrics._metric import Metric as Metric  # `definitions.Metric` is public
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._typical_gap import typical_gap, typical_gap_change, withheld

NOT_GIVEN = "not given: no scores were passed"


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
    return np.asarray(np.einsum("...ii->...i", counts))


def _odds(counts: Floats) -> Floats:
    """``[..., 2, groups, targets]``."""
    return np.stack([true_positive(counts), false_positive(counts)], -3)


def _accuracy_and(rates: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    def both(counts: Floats) -> Floats:
        first = overall(counts)[..., None]
        return np.concatenate([first, rates(counts).reshape(*first.shape[:-1], -1)], -1)

    return both


def _worst(rates: Floats) -> Floats:
    return np.asarray(np.fmin.reduce(rates, -1))


def _shortfall(rates: Floats) -> Floats:
    return np.maximum(0.0, rates[..., 0] - _worst(rates[..., 1:]))


def _flat(counts: Floats) -> Floats:
    rates = true_positive(counts)
    return rates.reshape(*rates.shape[:-2], -1)


def _mean_gap(rates: Floats) -> Floats:
    return mean_of_defined(gap(rates))


def _overall_ends(columns: Columns, run: int, level: float) -> Ends:
    right = columns.answers[run] == columns.truth
    weight = columns.weight(np.ones(len(right), np.bool_), right)
    hits, n = (part.sum() for part in columns.right_and_all(run, Over.SENSITIVE))
    return wilson(hits * weight, n * weight, level)


def _balanced_ends(columns: Columns, run: int, level: float) -> Ends:
    if columns.clusters is not None:
        return run_ends(extremes.balanced, columns, run, level)
    low, high = mean_rate_ends(*_of_present(columns, run, Over.TARGET_AND_SENSITIVE), level)
    return max(0.0, low), min(1.0, high)


def _overall_change(columns: Columns, before: int, after: int, level: float) -> Ends:
    """The change of accuracy (Bonett and Price)."""
    was, now = (columns.answers[run] == columns.truth for run in (before, after))
    low, high = change_ends(columns, np.ones(len(was), np.bool_), was, now, level)
    if columns.clusters is None:
        return low, high
    # Draws take the images of each cell as given, totals of clusters do not: persons may be in
    # several cells.
    drawn = ByDraws(extremes.overall)(columns, before, after, level)
    return min(low, drawn[0]), max(high, drawn[1])


def change_ends(columns: Columns, some: Mask, was: Mask, now: Mask, level: float) -> Ends:
    """The change of the share of some images (Bonett and Price), as many as count with clusters."""
    change = now.astype(np.float64) - was
    weight = columns.weight(some, change, level)
    counts = np.array([(some & was & ~now).sum(), (some & ~was & now).sum(), some.sum()])
    loss, gain, n = weight * counts
    low, high = paired_ends(loss, gain, n, level)
    return max(-1.0, float(low)), min(1.0, float(high))


def _balanced_change(columns: Columns, before: int, after: int, level: float) -> Ends:
    """The change of the mean accuracy of groups."""
    if columns.clusters is not None:
        return ByDraws(extremes.balanced)(columns, before, after, level)
    loss, gain, n = _losses_and_gains(columns, before, after)
    some = n > 0
    low, high = mean_change_ends(loss[some], gain[some], n[some], level)
    return max(-1.0, low), min(1.0, high)


def _losses_and_gains(columns: Columns, before: int, after: int) -> tuple[Floats, Floats, Floats]:
    """Images no longer right, newly right, and all, of each class in each group."""
    was, now = (columns.answers[run] == columns.truth for run in (before, after))
    return columns.totals(was & ~now), columns.totals(~was & now), columns.totals()


def _lowest_ends(over: Over, columns: Columns, run: int, level: float) -> Ends:
    """From exact intervals (Clopper and Pearson).

    Lower: of all groups the lowest end, each with the full error, as that of the truly worst group
    alone must not fail. Upper: nine tenths of the error are shared by the groups that may be the
    worst; the tenth says which may.
    """
    right, n = _of_present(columns, run, over)
    error = (1 - level) / 2
    each = clopper_pearson_ends(right, n, 1 - 2 * 0.1 * error / (len(n) + 1))
    may_be_worst = each[0] <= each[1].min()
    low, _ = clopper_pearson_ends(right, n, level)
    _, high = clopper_pearson_ends(
        right[may_be_worst], n[may_be_worst], 1 - 2 * 0.9 * error / may_be_worst.sum()
    )
    return float(low.min()), float(high.min())


def _of_present(columns: Columns, run: int, over: Over) -> tuple[Floats, Floats]:
    """Right answers and images of the groups that have images, as many as count with clusters."""
    right, n = columns.right_and_all(run, over)
    weight = columns.weights(run, over)[n > 0]
    return right[n > 0] * weight, n[n > 0] * weight


def mean_of(columns: Columns, figures: Floats | None, level: float) -> Estimate:
    """Mean of a number from 0 to 1 of each image."""
    if figures is None:
        return undefined(NOT_GIVEN)
    return mean(figures, level, weight=_weight_of_mean(columns, figures))


def mean_change(
    columns: Columns, less: Floats | None, more: Floats | None, level: float
) -> Estimate:
    """Mean of ``more - less``, image by image."""
    if less is None or more is None:
        return undefined(NOT_GIVEN)
    change = more - less
    return mean(change, level, least=-1.0, weight=_weight_of_mean(columns, change))


def _weight_of_mean(columns: Columns, figures: Floats) -> float:
    return columns.weight(np.ones(len(figures), np.bool_), figures)


def _confidence(columns: Columns, run: int, how: Bootstrap) -> Estimate:
    entropy = _scores(columns, run).entropy
    return mean_of(columns, None if entropy is None else 1 - entropy, how.level)


def _confidence_change(columns: Columns, before: int, after: int, how: Bootstrap) -> Estimate:
    less, more = _scores(columns, after).entropy, _scores(columns, before).entropy
    return mean_change(columns, less, more, how.level)


def _scores(columns: Columns, run: int) -> Scores:
    """What a run reports besides answers; nothing where no scores were passed."""
    return columns.scores[run] if columns.scores else Scores()


def calibration_of(
    columns: Columns, run: int, how: Bootstrap, group: int | None = None
) -> Estimate:
    """The calibration error of all images or of a group, if confidences are known."""
    confidence = _scores(columns, run).confidence
    if confidence is None:
        return undefined(NOT_GIVEN)
    some = slice(None) if group is None else columns.group == group
    right = columns.truth[some] == columns.answers[run][some]
    clusters = None if columns.clusters is None else columns.clusters[some]
    return calibration(right, confidence[some], BINS, how, clusters)


def _calibration_change(columns: Columns, before: int, after: int, how: Bootstrap) -> Estimate:
    sure = [_scores(columns, run).confidence for run in (before, after)]
    if sure[0] is None or sure[1] is None:
        return undefined(NOT_GIVEN)
    right = [columns.truth == columns.answers[run] for run in (before, after)]
    return calibration_change(right, sure, BINS, how, columns.clusters)


def _typical_gap(columns: Columns, run: int, how: Bootstrap) -> Estimate:
    return _of_typical_gap(partial(typical_gap, run=run), columns, how.level, withheld(columns))


def _typical_gap_change(columns: Columns, before: int, after: int, how: Bootstrap) -> Estimate:
    why = withheld(columns, before, after)
    change = partial(typical_gap_change, before=before, after=after)
    return _of_typical_gap(change, columns, how.level, why)


def _of_typical_gap(
    of: Callable[[Columns], Any], columns: Columns, level: float, withheld: str | None
) -> Estimate:
    gap = of(columns)
    low = high = None
    if not withheld and not np.isnan(gap.value):
        low, high = widest(columns, lambda some: of(some).ends((1 - level) / 2))
    reason = withheld or left_out(columns.sizes(_PAIRS))
    needs = "two groups with images of one class"
    return with_reason(gap.value, columns.n, low, high, reason, needs)


_PAIRS, _VALUES = Over.TARGET_AND_SENSITIVE, Over.SENSITIVE

ACCURACY = Metric(
    "accuracy",
    overall,
    lambda rates: rates,
    change=_overall_change,
    interval=_overall_ends,
    over=None,
    title="Accuracy",
    better=1,
    meaning="Share of right answers.",
)
BALANCED_ACCURACY = Metric(
    "balanced_accuracy",
    _flat,
    mean_of_defined,
    change=_balanced_change,
    interval=_balanced_ends,
    title="Balanced accuracy (class / group)",
    better=1,
    meaning="Mean accuracy of all groups, a group being the images of one class and one sensitive "
    "value: a rare group counts as much as a frequent one. Equal to worst-group accuracy if all "
    "groups fare alike.",
)
WORST_GROUP_ACCURACY = Metric(
    "worst_group_accuracy",
    _flat,
    _worst,
    change=ByDraws(extremes.lowest, -1),
    interval=partial(_lowest_ends, _PAIRS),
    worst_of=_PAIRS,
    title="Worst-group accuracy (class / group)",
    better=1,
    meaning="Accuracy of the worst group, a group being the images of one class and one sensitive "
    "value. Equal to accuracy if all groups fare alike.",
)
WORST_GROUP_ACCURACY_S = Metric(
    "worst_group_accuracy_s",
    by_group,
    _worst,
    change=ByDraws(extremes.lowest_of_values, -1),
    interval=partial(_lowest_ends, _VALUES),
    over=_VALUES,
    worst_of=_VALUES,
    title="Worst-group accuracy (group)",
    better=1,
    meaning="The same with groups of one sensitive value, whatever the class.",
)
BIAS = Metric(
    "bias",
    _accuracy_and(true_positive),
    _shortfall,
    change=ByDraws(extremes.shortfall),
    interval=partial(run_ends, extremes.shortfall),
    worst_of=_PAIRS,
    title="Accuracy minus worst group (class / group)",
    better=-1,
    meaning="Accuracy minus worst-group accuracy; the literature calls it bias. 0 means no "
    "disparity.",
)
BIAS_S = Metric(
    "bias_s",
    _accuracy_and(by_group),
    _shortfall,
    change=ByDraws(extremes.shortfall_of_values),
    interval=partial(run_ends, extremes.shortfall_of_values),
    over=_VALUES,
    worst_of=_VALUES,
    title="Accuracy minus worst group (group)",
    better=-1,
    meaning="The same with groups of one sensitive value. 0: no disparity.",
)
TYPICAL_GAP = OwnMetric(
    "typical_gap",
    _typical_gap,
    _typical_gap_change,
    title="Typical gap",
    better=-1,
    meaning="By how much two groups of a class typically differ in accuracy: the root of the mean "
    "squared difference, minus what chance alone adds. 0 means no disparity.",
)
EQUALIZED_ODDS = Metric(
    "equalized_odds_difference",
    _odds,
    lambda rates: mean_of_defined(gap(rates).max(-2)),  # NaN wins, so a class needs both gaps
    is_gap=True,
    change=ByDraws(extremes.odds),
    interval=partial(run_ends, extremes.odds),
    needs="two groups with images of one class, and two with images of others",
    title="Equalized odds difference",
    better=-1,
    meaning="For each class the larger of the gaps between groups in true and in false positive "
    "rate; then the mean over classes. 0 means no disparity.",
)
EQUAL_OPPORTUNITY = Metric(
    "equal_opportunity_difference",
    true_positive,
    _mean_gap,
    is_gap=True,
    change=ByDraws(extremes.true_positive_gaps),
    interval=partial(run_ends, extremes.true_positive_gaps),
    needs="two groups with images of one class",
    title="Equal opportunity difference",
    better=-1,
    meaning="Gap between groups in true positive rate, mean over classes. 0 means no disparity.",
)
DEMOGRAPHIC_PARITY = Metric(
    "demographic_parity_difference",
    selection,
    _mean_gap,
    is_gap=True,
    change=ByDraws(extremes.parity),
    interval=partial(run_ends, extremes.parity),
    over=_VALUES,
    needs_classes=True,
    title="Demographic parity difference",
    better=-1,
    meaning="Gap between groups in how often each answer is given, mean over classes. 0 means no "
    "disparity, which is not to be expected where classes are not equally frequent in groups.",
)
AVERAGE_TARGET_CONFIDENCE = OwnMetric(
    "average_target_confidence",
    _confidence,
    _confidence_change,
    title="Average target confidence (ATC)",
    meaning="One minus the normalised entropy of the answers, on average: 0 undecided, 100 "
    "certain. Certain is not right.",
)
EXPECTED_CALIBRATION_ERROR = OwnMetric(
    "expected_calibration_error",
    calibration_of,
    _calibration_change,
    is_compared=False,
    title="Expected calibration error",
    better=-1,
    meaning="How far confidence is from accuracy, on average. 0 means that answers given with 80 % "
    "are right in 80 %. In 15 overlapping bins; on few images it is too large.",
)

METRICS: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        ACCURACY,
        BALANCED_ACCURACY,
        WORST_GROUP_ACCURACY,
        WORST_GROUP_ACCURACY_S,
        BIAS,
        BIAS_S,
        TYPICAL_GAP,
        EQUALIZED_ODDS,
        EQUAL_OPPORTUNITY,
        DEMOGRAPHIC_PARITY,
        AVERAGE_TARGET_CONFIDENCE,
        EXPECTED_CALIBRATION_ERROR,
    )
}
"""The figures of a run, in the order of audits and reports. A new one is one more entry."""


def _class_gaps(name: str, rates: Callable[[Floats], Floats], forms: extremes.Forms) -> Metric:
    return Metric(name, rates, gap, is_gap=True, interval=partial(class_ends, forms))


TRUE_POSITIVE_GAPS = _class_gaps(
    "true_positive_rate_gaps", true_positive, extremes.true_positive_gaps
)
FALSE_POSITIVE_GAPS = _class_gaps(
    "false_positive_rate_gaps", false_positive, extremes.false_positive_gaps
)
SELECTION_GAPS = _class_gaps("selection_rate_gaps", selection, extremes.selection_gaps)
CLASS_GAPS = (TRUE_POSITIVE_GAPS, FALSE_POSITIVE_GAPS, SELECTION_GAPS)
