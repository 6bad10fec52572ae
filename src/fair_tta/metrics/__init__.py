"""Group-wise metrics, intervals and bounds: pure functions of arrays; no models, no files.

Every figure comes as an `Estimate`, with its n, its interval and what it leaves out.
"""

from fair_tta.metrics import _definitions as definitions
from fair_tta.metrics._bootstrap import Bootstrap
from fair_tta.metrics._calibration import (
    average_sensitive_indifference,
    average_target_confidence,
    expected_calibration_error,
    group_calibration_error,
    normalised_entropies,
)
from fair_tta.metrics._estimate import SMALL, Estimate, Over
from fair_tta.metrics._groups import (
    Rates,
    accuracy,
    balanced_accuracy,
    bias,
    class_gaps,
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
    group_accuracy,
    group_rates,
    paired_difference,
    typical_gap,
    worst_group_accuracy,
)
from fair_tta.metrics._harm import harm_rate, harm_rate_change
from fair_tta.metrics._intervals import (
    clopper_pearson,
    images_for_change,
    images_for_half_width,
    mcnemar,
    paired_interval,
    wilson,
)
from fair_tta.metrics._metric import Metric
from fair_tta.metrics._perceived import (
    PseudoOdds,
    prompt_associations,
    pseudo_equalized_odds_difference,
    pseudo_odds,
    pseudo_rates,
    r_squared,
)
from fair_tta.metrics._stream import MetricStream

__all__ = [
    "SMALL",
    "Bootstrap",
    "Estimate",
    "Metric",
    "MetricStream",
    "Over",
    "PseudoOdds",
    "Rates",
    "accuracy",
    "average_sensitive_indifference",
    "average_target_confidence",
    "balanced_accuracy",
    "bias",
    "class_gaps",
    "clopper_pearson",
    "definitions",
    "demographic_parity_difference",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "expected_calibration_error",
    "group_accuracy",
    "group_calibration_error",
    "group_rates",
    "harm_rate",
    "harm_rate_change",
    "images_for_change",
    "images_for_half_width",
    "mcnemar",
    "normalised_entropies",
    "paired_difference",
    "paired_interval",
    "prompt_associations",
    "pseudo_equalized_odds_difference",
    "pseudo_odds",
    "pseudo_rates",
    "r_squared",
    "typical_gap",
    "wilson",
    "worst_group_accuracy",
]
