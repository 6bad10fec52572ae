"""FairTPT and FairTPT-MO: a certain target, an uncertain sensitive attribute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fair_tta.errors import check_number
from fair_tta.methods._base import Needs
from fair_tta.methods.tuning._directions import (
    Aggregator,
    WeightedSum,
    check_aggregator,
)
from fair_tta.methods.tuning._loop import PromptTuning
from fair_tta.methods.tuning._losses import Loss, SLoss
from fair_tta.methods.tuning._rates import ELRA, RatePolicy


@dataclass(frozen=True)
class FairTPT(PromptTuning):
    """Fairness-aware test-time prompt tuning.

    ``min_t 1/(1+lam) l(Y; t) - lam/(1+lam) l(S; t)``: lower the entropy of the mean target
    prediction over views and raise that of the sensitive attribute's, on the same views, with one
    context t for both. `SLoss`, `TSLoss` and `SuperTSLoss` are the paper's variants of the second
    term; several attributes add a term each. The length of the step is such that the target loss
    changes by `ELRA.beta`.

    *Fairness-Aware Test-Time Prompt Tuning*, 2026.

    Differences from the reference implementation: no implementation is public. The label is the
    most probable one, where the algorithm box samples. Terms of several attributes are added, as in
    the paper, each with the weight of a single one; ``lam / n`` gives the direction of the mean of
    n terms. ``lam = 0`` is TPT with this rate; ``lam = inf`` keeps the sensitive term alone
    (the paper calls it the SEraser limit, but SEraser raises the entropy of *targets* on images
    without foreground).

    Args:
        lam: the weight of the sensitive term, or of each of them, from 0 to infinity.
        loss: the terms.
        rate: the length of a step.
        rho: the fraction of views to keep, those with the most certain target.
        steps: the number of steps.

    Example:
        >>> FairTPT(lam=float("inf")).rho
        0.75
    """

    lam: float = 100.0
    loss: Loss = SLoss()
    rate: RatePolicy = ELRA()
    rho: float = 0.75
    steps: int = 1
    needs = Needs(sensitive=True, prompt_gradient=True, views=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("lam", self.lam, "be at least 0, or infinity", lambda x: x >= 0)

    def _recipe(self) -> tuple[Loss, Aggregator]:
        return self.loss, WeightedSum(self.lam)


@dataclass(frozen=True)
class FairTPTMO(FairTPT):
    """Fairness-aware test-time prompt tuning with several objectives.

    ``min_t (l(Y; t), -l(S; t))`` by Jacobian descent: TorchJD's UPGrad with preference ``(1, lam)``
    combines the two gradients into one direction that raises neither loss. Otherwise as `FairTPT`.

    *Fairness-Aware Test-Time Prompt Tuning*, 2026.

    Differences from the reference implementation: no implementation is public. TorchJD's default
    projector treats small gradients as zero and loses digits of one that is a hundred times smaller
    than the other; ours does not depend on scales. ``lam = inf`` is the preference ``(0, 1)``.

    Args:
        lam: the preference for the sensitive term, or for each, from 0 to infinity.
        loss: the terms.
        rate: the length of a step.
        rho: the fraction of views to keep, those with the most certain target.
        steps: the number of steps.
        aggregator: another rule than UPGrad: an aggregator of TorchJD such as ``MGDA()``, a
            weighting of Gramians ``[terms, terms]`` such as ``(MGDAWeighting(), "gramian")``, or
            any function of a matrix of gradients ``[terms, numbers]``. It is called for each image
            and has its own preferences, so `lam` is not used. TorchJD aggregators that remember
            earlier calls are reset before each.

    Example:
        >>> FairTPTMO().lam
        100.0
    """

    aggregator: Aggregator | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregator is not None:
            check_aggregator(self.aggregator)

    def _recipe(self) -> tuple[Loss, Aggregator]:
        if self.aggregator is not None:
            return self.loss, self.aggregator
        # Imported here, because importing TorchJD takes a moment that other methods need not wait.
        from fair_tta.methods.tuning._upgrad import upgrad_weights

        return self.loss, (partial(upgrad_weights, lam=self.lam), "gramian")
