"""Tent, MEMO and SAR: tune the vision tower by the entropy of its answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta._prompts.task import Task
from fair_tta.errors import check_number
from fair_tta.methods._tuning.entropy import check_margin, entropy, marginal
from fair_tta.methods._tuning.rates import FixedRate, RatePolicy
from fair_tta.methods._tuning.weights import ImageTower, ViewGradient, WeightTuning


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

    def gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> ViewGradient:

        def loss(features: Tensor) -> Tensor:
            return entropy(task.log_probabilities(features, task.target_features)).mean()

        return ViewGradient(
            tower.gradient(weights, pixels, loss), torch.tensor(len(pixels), device="cpu")
        )


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
    def tunes_every_weight(self) -> bool:
        return self.every_weight

    def gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> ViewGradient:
        views = pixels[1:] if len(pixels) > 1 else pixels

        def loss(features: Tensor) -> Tensor:
            return entropy(marginal(task.log_probabilities(features, task.target_features)))

        return ViewGradient(
            tower.gradient(weights, views, loss), torch.tensor(len(views), device="cpu")
        )


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
