"""Tent, MEMO and SAR: tune the vision tower by the entropy of its answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.methods._base import check_non_negative
from fair_tta.methods.tuning._entropy import check_margin, entropy, marginal
from fair_tta.methods.tuning._rates import FixedRate, RatePolicy
from fair_tta.methods.tuning._weights import ImageTower, WeightTuning
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class Tent(WeightTuning):
    """Lower the mean entropy over views by tuning the norm layers of the vision tower.

    ``min_w mean_i H(p(. | view i, w))``, w being gains and shifts of the norm layers. The answer is
    that of view 0 with the tuned weights, which then are as they were. A baseline that knows of no
    groups.

    Wang et al., *Tent: Fully Test-Time Adaptation by Entropy Minimization*, 2021.

    Differences from the reference implementation: there a batch is 200 images and weights go on
    from batch to batch, here it is the views of one image and each image starts afresh. There the
    answer is from before the update, which would be zero-shot's here, so ours is from after it.
    There only batch norms are tuned, and use the statistics of the batch; here all kinds of norm
    layers are, since a ViT has no other, and batch norms keep the model's own statistics, since the
    views of one image are no sample of images.

    Args:
        rate: how far to step.
        steps: how often to step.

    Example:
        >>> Tent(steps=2).rate
        FixedRate(lr=0.001, optimizer=<class 'torch.optim.adam.Adam'>)
    """

    rate: RatePolicy = FixedRate(1e-3, torch.optim.Adam)
    steps: int = 1

    def _gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> tuple[Tensor | None, int]:
        return _gradient(task, tower, pixels, weights), len(pixels)


def _gradient(task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor) -> Tensor:
    """Of the mean entropy of views."""

    def loss(features: Tensor) -> Tensor:
        return entropy(task.log_probabilities(features, task.target_features)).mean()

    return tower.gradient(weights, pixels, loss)


@dataclass(frozen=True)
class MEMO(WeightTuning):
    """Lower the entropy of the mean prediction over views by tuning the vision tower.

    ``min_w H(mean_i p(. | view i, w))`` over all views but the image itself (which is taken where
    there is no other). The answer is that of the image with the tuned weights, which then are as
    they were. A baseline that knows of no groups.

    Zhang et al., *MEMO: Test Time Robustness via Adaptation and Augmentation*, 2022.

    Differences from the reference implementation: there all weights are tuned, here gains and
    shifts of norm layers, which takes less memory; ``every_weight=True`` is as there. The optimiser
    starts afresh with each image, where that of the public code goes on. Batch norms keep the
    model's own statistics, where that code mixes in those of the views, 1 to 16. The rate is the
    one that it has for transformers.

    Args:
        every_weight: tune all weights of the vision tower; takes as much memory again as these,
            several times with AdamW.
        rate: how far to step.
        steps: how often to step.

    Example:
        >>> MEMO(every_weight=True).steps
        1
    """

    every_weight: bool = False
    rate: RatePolicy = FixedRate(1e-5)
    steps: int = 1

    @property
    def _tunes_every_weight(self) -> bool:
        return self.every_weight

    def _gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> tuple[Tensor | None, int]:
        views = pixels[1:] if len(pixels) > 1 else pixels

        def loss(features: Tensor) -> Tensor:
            return entropy(
                marginal(task.log_probabilities(features, task.target_features))
            )

        return tower.gradient(weights, views, loss), len(views)


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
        check_non_negative(self, "radius")

    def _gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> tuple[Tensor | None, int]:
        certain = self._certain(task, tower, pixels, weights)
        if not len(certain):
            return None, 0
        uphill = _gradient(task, tower, certain, weights)
        there = weights + self.radius * uphill / uphill.norm().clamp(min=1e-12)
        still = self._certain(task, tower, certain, there)
        return _gradient(task, tower, still, there) if len(still) else None, len(
            certain
        )

    def _certain(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> Tensor:
        """The views that are below the margin with these weights."""
        log_p = task.log_probabilities(
            tower.encode(weights, pixels), task.target_features
        )
        return pixels[entropy(log_p) < self.margin * math.log(log_p.shape[-1])]
