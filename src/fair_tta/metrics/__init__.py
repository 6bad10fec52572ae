"""Group-wise metrics, intervals and bounds: pure functions of arrays; no models, no files.

Every figure comes as an `Estimate`, with its n, its interval and what it leaves out. Labels,
answers and sensitive values are columns: lists, arrays, tensors or pandas series of names or
numbers. With several attributes, ``{attribute: column}``, a group is an intersection. `definitions`
has what each metric is, for `paired_difference`.
"""

from fair_tta.metrics import _functions
from fair_tta.metrics._estimates import Estimate
from fair_tta.metrics._functions import (
    accuracy,
    average_sensitive_indifference,
    average_target_confidence,
    balanced_accuracy,
    bias,
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
    expected_calibration_error,
    typical_gap,
    worst_group_accuracy,
)
from fair_tta.metrics._groups import (
    class_gaps,
    group_accuracy,
    group_rates,
    paired_difference,
)
from fair_tta.metrics._harm import harm_rate, harm_rate_change
from fair_tta.metrics._perceived import prompt_associations
from fair_tta.metrics._stream import MetricStream
from fair_tta.metrics.intervals._bootstrap import Bootstrap
from fair_tta.metrics.intervals._closed_forms import (
    images_for_change,
    images_for_half_width,
    mcnemar,
)

__all__ = [
    "Bootstrap",
    "Estimate",
    "MetricStream",
    "accuracy",
    "average_sensitive_indifference",
    "average_target_confidence",
    "balanced_accuracy",
    "bias",
    "class_gaps",
    "demographic_parity_difference",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "expected_calibration_error",
    "group_accuracy",
    "group_rates",
    "harm_rate",
    "harm_rate_change",
    "images_for_change",
    "images_for_half_width",
    "mcnemar",
    "paired_difference",
    "prompt_associations",
    "typical_gap",
    "worst_group_accuracy",
]

# A definition that is not listed above has a public function all the same.
_unlisted = sorted(_functions.FUNCTIONS.keys() - set(__all__))
globals().update({name: _functions.FUNCTIONS[name] for name in _unlisted})
__all__.extend(_unlisted)
