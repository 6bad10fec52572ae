"""Every metric, defined once: functions, audits, comparisons, reports and docs follow `METRICS`.

Most are functions of confusion counts with two halves: rates of groups, and how they are combined.
In formulas M^(s)_ij counts the images of class i in group s that are answered j, K^(s)_y the images
of class y in group s, K^(s) those of group s, and ``Gap_s = max_s - min_s`` is taken over the
groups that have images. `fair_tta.metrics.paired_difference` takes every definition.
"""

from __future__ import annotations

from functools import partial

from fair_tta.metrics import _custom_metrics as custom
from fair_tta.metrics import _rates as rates
from fair_tta.metrics._estimates import GroupBy
from fair_tta.metrics._metric import (
    CustomMetric,
    Intervals,
    MetricDefinition,
    RateMetric,
    max_min_intervals,
)
from fair_tta.metrics.intervals import _accuracies as accuracies
from fair_tta.metrics.intervals import _extremes as extremes

# A metric is added here and nowhere else. The order is that of audits and reports. A metric over
# groups of one sensitive value has the name of the other one and `_s`, as its public function has
# both.

# Accuracies

ACCURACY = RateMetric(
    "accuracy",
    rates.overall_accuracy,
    lambda accuracy: accuracy,
    Intervals(accuracies.accuracy_bounds, accuracies.accuracy_change_bounds),
    over=None,
    title="Accuracy",
    better=1,
    meaning="Share of right answers.",
    formula="sum_i M_ii / K",
    notes="Groups only make the strata of the interval.",
    example="""\
>>> accuracy(["cat", "dog"], ["cat", "cat"], interval=None)
Estimate(value=0.5, n=2, low=None, high=None, reason=None)""",
)
BALANCED_ACCURACY = RateMetric(
    "balanced_accuracy",
    rates.accuracy_by_cell,
    rates.mean_of_defined,
    Intervals(accuracies.balanced_bounds, accuracies.balanced_change_bounds),
    title="Balanced accuracy (class / group)",
    better=1,
    meaning="Mean accuracy of all groups, a group being the images of one class and one sensitive "
    "value: a rare group counts as much as a frequent one. Equal to worst-group accuracy if all "
    "groups fare alike.",
    formula="mean_{y, s} M^(s)_yy / K^(s)_y",
    no_disparity="equal to the worst-group accuracy",
    notes="What is called balanced accuracy elsewhere, as in scikit-learn, is the mean over "
    "classes alone. The interval is that of Price and Bonett (2004).",
    example="""\
>>> names = ["cat", "cat", "cat", "dog"] * 30
>>> balanced_accuracy(names, ["cat"] * 120, ["indoors"] * 120).value
0.5""",
)
WORST_GROUP_ACCURACY = RateMetric(
    "worst_group_accuracy",
    rates.accuracy_by_cell,
    rates.lowest_rate,
    max_min_intervals(
        extremes.negative_cell_accuracies,
        -1,
        run=partial(accuracies.worst_group_bounds, GroupBy.TARGET_AND_SENSITIVE),
    ),
    is_of_worst_group=True,
    title="Worst-group accuracy (class / group)",
    better=1,
    meaning="Accuracy of the worst group, a group being the images of one class and one sensitive "
    "value. Equal to accuracy if all groups fare alike.",
    formula="min_{y, s} M^(s)_yy / K^(s)_y",
    no_disparity="equal to the accuracy",
    notes="The n is that of the worst group. The interval goes from the lowest lower to the lowest "
    "upper end of exact intervals of all groups (Clopper and Pearson): some other group, seen on "
    "few images, may be the worst.",
    example="""\
>>> truth, answers = ["cat", "dog"] * 60, ["cat", "dog"] * 30 + ["cat", "cat"] * 30
>>> worst_group_accuracy(truth, answers, ["indoors"] * 60 + ["outdoors"] * 60).value
0.0""",
)
WORST_GROUP_ACCURACY_S = RateMetric(
    "worst_group_accuracy_s",
    rates.accuracy_by_group,
    rates.lowest_rate,
    max_min_intervals(
        extremes.negative_group_accuracies,
        -1,
        run=partial(accuracies.worst_group_bounds, GroupBy.SENSITIVE),
    ),
    is_of_worst_group=True,
    over=GroupBy.SENSITIVE,
    title="Worst-group accuracy (group)",
    better=1,
    meaning="The same with groups of one sensitive value, whatever the class.",
    formula="min_s sum_i M^(s)_ii / K^(s)",
    no_disparity="equal to the accuracy",
)

# Gaps between groups

BIAS = RateMetric(
    "bias",
    rates.with_overall_accuracy(rates.true_positive_rates),
    rates.shortfall_of_lowest_rate,
    max_min_intervals(extremes.cell_shortfalls),
    is_of_worst_group=True,
    title="Accuracy minus worst group (class / group)",
    better=-1,
    meaning="Accuracy minus worst-group accuracy; the literature calls it bias. 0 means no "
    "disparity.",
    formula="sum_i M_ii / K - min_{y, s} M^(s)_yy / K^(s)_y",
    no_disparity="0",
    notes="The n is that of the worst group. The interval is that of the largest of the "
    "differences accuracy - group accuracy, by draws of the noise that both have in common. It is "
    "not accuracy minus the ends of `worst_group_accuracy`, which come from exact intervals of the "
    "groups alone.",
)
BIAS_S = RateMetric(
    "bias_s",
    rates.with_overall_accuracy(rates.accuracy_by_group),
    rates.shortfall_of_lowest_rate,
    max_min_intervals(extremes.group_shortfalls),
    is_of_worst_group=True,
    over=GroupBy.SENSITIVE,
    title="Accuracy minus worst group (group)",
    better=-1,
    meaning="The same with groups of one sensitive value. 0: no disparity.",
    formula="sum_i M_ii / K - min_s sum_i M^(s)_ii / K^(s)",
    no_disparity="0",
)
TYPICAL_GAP = CustomMetric(
    "typical_gap",
    custom.typical_gap_estimate,
    custom.typical_gap_difference,
    title="Typical gap",
    better=-1,
    meaning="By how much two groups of a class typically differ in accuracy: the root of the mean "
    "squared difference, minus what chance alone adds. 0 means no disparity.",
    formula="sqrt(max(0, mean_y 2 var_s(r_ys) - b))",
    no_disparity="0",
    notes="r_ys is the accuracy on class y in group s, and b what chance alone adds to the mean "
    "squared difference between two groups of a class. The interval takes five images of each "
    "class in each group.",
    example="""\
>>> names, groups = ["cat", "dog"] * 60, ["indoors"] * 60 + ["outdoors"] * 60
>>> round(typical_gap(names, ["cat"] * 60 + names[60:], groups).value, 2)
0.71""",
)
EQUALIZED_ODDS = RateMetric(
    "equalized_odds_difference",
    rates.true_and_false_positive_rates,
    rates.mean_larger_gap,
    max_min_intervals(extremes.odds_differences),
    is_gap=True,
    needs="two groups with images of one class, and two with images of others",
    title="Equalized odds difference",
    better=-1,
    meaning="For each class the larger of the gaps between groups in true and in false positive "
    "rate; then the mean over classes. 0 means no disparity.",
    formula="mean_y max(Gap_s TPR_y, Gap_s FPR_y)",
    no_disparity="0",
    notes="For two classes it is fairlearn's `equalized_odds_difference`.",
    example="""\
>>> truth, answers = [1, 0, 1, 0] * 100, [1, 0, 1, 0] * 50 + [1, 0, 0, 0] * 50
>>> equalized_odds_difference(truth, answers, ["woman"] * 200 + ["man"] * 200).value
0.5""",
)
EQUAL_OPPORTUNITY = RateMetric(
    "equal_opportunity_difference",
    rates.true_positive_rates,
    rates.mean_gap,
    max_min_intervals(extremes.true_positive_differences),
    is_gap=True,
    needs="two groups with images of one class",
    title="Equal opportunity difference",
    better=-1,
    meaning="Gap between groups in true positive rate, mean over classes. 0 means no disparity.",
    formula="mean_y Gap_s TPR_y",
    no_disparity="0",
    notes="`class_gaps` has the gap of each class, which for two classes is fairlearn's.",
)
DEMOGRAPHIC_PARITY = RateMetric(
    "demographic_parity_difference",
    rates.selection_rates,
    rates.mean_gap,
    max_min_intervals(extremes.parity_differences),
    is_gap=True,
    over=GroupBy.SENSITIVE,
    needs_classes=True,
    title="Demographic parity difference",
    better=-1,
    meaning="Gap between groups in how often each answer is given, mean over classes. 0 means no "
    "disparity, which is not to be expected where classes are not equally frequent in groups.",
    formula="mean_y Gap_s P(answer = y | s)",
    no_disparity="0",
    notes="Labels do not matter, except for the strata of the interval. `class_gaps` has the gap "
    "of each class.",
)

# Confidence

AVERAGE_TARGET_CONFIDENCE = CustomMetric(
    "average_target_confidence",
    custom.target_confidence,
    custom.target_confidence_change,
    over=None,
    score="entropy",
    title="Average target confidence (ATC)",
    meaning="One minus the normalised entropy of the answers, on average: 0 undecided, 100 "
    "certain. Certain is not right.",
    formula="mean_i (1 - H(p_i) / log(classes))",
    notes="It lies between 0 and 1; 100 are per cent, as in reports.",
)
EXPECTED_CALIBRATION_ERROR = CustomMetric(
    "expected_calibration_error",
    custom.calibration_error,
    custom.calibration_error_change,
    over=None,
    score="confidence",
    is_compared=False,
    title="Expected calibration error",
    better=-1,
    meaning="How far confidence is from accuracy, on average. 0 means that answers given with 80 % "
    "are right in 80 %. In 15 overlapping bins; on few images it is too large.",
    formula="sum_b |mean_i w_ib (right_i - confidence_i)|",
    no_disparity="equal in all groups",
    notes="Bins are centred at 1/30, 3/30, ... 29/30. An image between two centres counts in both, "
    "the more the nearer it is: the weights w_ib fall linearly from 1 at a centre to 0 at the next "
    "one. So a last digit of a confidence changes a last digit of the figure. With sharp edges it "
    "would be the usual sum_b n_b/n |acc_b - conf_b|, which jumps when a confidence crosses an "
    "edge.",
    example="""\
>>> error = expected_calibration_error(["a"] * 4, ["a", "a", "a", "b"], [0.95] * 4)
>>> round(error.value, 3)
0.2""",
)

# Collected from the names above, so that a definition is its only entry.
_DEFINED = {
    name: definition
    for name, definition in list(globals().items())
    if isinstance(definition, MetricDefinition)
}

METRICS: dict[str, MetricDefinition] = {
    definition.name: definition for definition in _DEFINED.values()
}
"""All definitions by the names of their metrics, in the order of audits and reports."""

# Definitions over sensitive values alone are `over="sensitive"` of the public functions.
__all__ = [name for name in _DEFINED if not name.endswith("_S")]
