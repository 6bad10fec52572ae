"""SAR: learn from certain views only, towards a flat minimum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.adapters.deyo import check_margin
from fair_tta.adapters.weight_tuning import ViewGradient, WeightTuning
from fair_tta.errors import check_number
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
        check_number("radius", self.radius, "be a number from 0 on", lambda x: 0 <= x < math.inf)

    def gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> ViewGradient:
        """See `WeightTuning.gradient`."""
        pixels, certain = self._certain(task, tower, pixels, weights)
        kept = certain.sum()
        uphill = _gradient(task, tower, weights, pixels, certain)
        there = weights + self.radius * uphill / uphill.norm().clamp(min=1e-12)
        pixels, still = self._certain(task, tower, pixels, there, certain)
        return ViewGradient(_gradient(task, tower, there, pixels, still), kept, ~still.any())

    def _certain(
        self,
        task: Task,
        tower: ImageTower,
        pixels: Tensor,
        weights: Tensor,
        among: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Views, and which of them are below the margin with these weights: ``[views]`` of bool.

        Views that are not are left out where that saves time. A device would have to be waited for
        to know how many there are, so there all stay and count nothing.
        """
        if not len(pixels):
            return pixels, torch.zeros(0, dtype=torch.bool, device=pixels.device)
        log_p = task.log_probabilities(tower.encode(weights, pixels), task.target_features)
        below = entropy(log_p) < self.margin * math.log(log_p.shape[-1])
        below = below if among is None else below & among
        return (pixels[below], below[below]) if below.device.type == "cpu" else (pixels, below)


def _gradient(
    task: Task, tower: ImageTower, weights: Tensor, pixels: Tensor, certain: Tensor
) -> Tensor:
    """Of the mean entropy of the views that are certain; zeros if there are none."""
    if not len(pixels):
        return torch.zeros_like(weights)

    def loss(features: Tensor) -> Tensor:
        h = entropy(task.log_probabilities(features, task.target_features))
        return h.where(certain, 0.0).sum() / certain.sum().clamp(min=1)

    return tower.gradient(weights, pixels, loss)
