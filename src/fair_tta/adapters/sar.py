"""SAR: learn from certain views only, towards a flat minimum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.adapters.deyo import check_margin
from fair_tta.adapters.weight_tuning import WeightTuning
from fair_tta.errors import FairTTAError
from fair_tta.text.task import Task
from fair_tta.tuning.entropy import entropy
from fair_tta.tuning.image_tower import ImageTower
from fair_tta.tuning.rates import FixedRate, RatePolicy


@dataclass(frozen=True)
class SAR(WeightTuning):
    """Lower the entropy of certain views where that stays low nearby, by tuning norm layers.

    Views with ``H_i < margin log |Y|`` are kept. With g the gradient of their mean entropy, the
    step is along its gradient at ``w + radius g / |g|``, over those of them that are still below
    the margin there. The answer is that of view 0 with the tuned weights, which then are as they
    were. Where no view is kept it is the zero-shot answer, and `Prediction.warnings` says so. A
    baseline that knows of no groups.

    Niu et al., *Towards Stable Test-Time Adaptation in Dynamic Wild World*, 2023.

    Differences from the reference implementation: there weights go on from batch to batch and are
    reset when a moving average of the loss falls below 0.2. Here each image starts afresh, so there
    is nothing to recover from, and no threshold (0.2 is meant for 1000 classes, and would have to
    be scaled with ``log |Y|``). The answer is from after the update, there from before it. There
    the last blocks of the tower are left alone, here the norm layers of all are tuned. Where no
    view is kept that code takes the mean of nothing. Steps have no momentum, which a single one
    would not notice.

    Args:
        margin: the largest entropy, as a share of the largest possible.
        radius: how far to look around, in the Euclidean norm of the weights.
        rate: how far to step.
        steps: how often to step.

    Example:
        >>> SAR().margin
        0.4
    """

    margin: float = 0.4
    radius: float = 0.05
    rate: RatePolicy = FixedRate(1e-3, torch.optim.SGD)
    steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_margin(self.margin)
        if not (self.radius >= 0 and math.isfinite(self.radius)):
            raise FairTTAError(f"`radius` should be a number from 0 on (got {self.radius!r}).")

    def gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> tuple[Tensor | None, int]:
        """See `WeightTuning.gradient`."""
        certain = self._certain(task, tower, pixels, weights)
        kept = len(certain)

        def loss(features: Tensor) -> Tensor:
            return entropy(task.log_probabilities(features, task.target_features)).mean()

        if not kept:
            return None, kept
        uphill = tower.gradient(weights, certain, loss)
        there = weights + self.radius * uphill / uphill.norm().clamp(min=1e-12)
        still = self._certain(task, tower, certain, there)
        return (tower.gradient(there, still, loss) if len(still) else None), kept

    def _certain(self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor) -> Tensor:
        """The views below the margin with these weights."""
        log_p = task.log_probabilities(tower.encode(weights, pixels), task.target_features)
        below = entropy(log_p) < self.margin * math.log(log_p.shape[-1])
        return pixels[below.to(pixels.device)]
