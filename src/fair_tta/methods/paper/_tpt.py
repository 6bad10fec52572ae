"""TPT: test-time prompt tuning towards a certain answer."""

from __future__ import annotations

from dataclasses import dataclass

from fair_tta.methods.tuning._directions import Aggregator, WeightedSum
from fair_tta.methods.tuning._loop import PromptTuning
from fair_tta.methods.tuning._losses import Loss, TargetLoss
from fair_tta.methods.tuning._rates import FixedRate, RatePolicy


@dataclass(frozen=True)
class TPT(PromptTuning):
    """Test-time prompt tuning: lower the entropy of the mean target prediction over views.

    ``min_t l(Y; t)``, with ``l(Y; t) = H(mean_i p(. | view i, t)) / log |Y|`` over the
    ``max(1, floor(rho N))`` views with the lowest target entropy; the answer is that of view 0.

    Shu et al., *Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language Models*,
    2022.

    Differences from the reference implementation: the context is every token of the template
    outside the slots, not the words before the class name; the loss is divided by ``log |Y|``,
    which does not change AdamW's first step; full precision instead of a gradient scaler that all
    images share; view features are computed once, not at every step.

    Args:
        rate: the length of a step.
        rho: the fraction of views to keep.
        steps: the number of steps.

    Example:
        >>> from fair_tta import ELRA
        >>> TPT(rate=ELRA(beta=0.05)).rho
        0.1
    """

    rate: RatePolicy = FixedRate(5e-3)
    rho: float = 0.1
    steps: int = 1

    def _recipe(self) -> tuple[Loss, Aggregator]:
        return TargetLoss(), WeightedSum(0)
