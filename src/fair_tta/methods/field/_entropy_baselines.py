"""Tent, MEMO and SAR: entropy minimisation in the vision tower."""

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
    that of view 0 with the tuned weights, which are restored afterwards. A baseline that ignores
    groups.

    Wang et al., *Tent: Fully Test-Time Adaptation by Entropy Minimization*, 2021.

    Differences from the reference implementation: there a batch is 200 images and weights are
    carried over from batch to batch, here it is the views of one image and each image starts
    afresh. There the answer is from before the update, which would be zero-shot's here, so ours is
    from after it. There only batch norms are tuned, and use the statistics of the batch; here all
    kinds of norm layers are, since a ViT has no other, and batch norms keep the model's own
    statistics, since the views of one image are no sample of images.

    Args:
        rate: the length of a step.
        steps: the number of steps.

    Example:
        >>> Tent(steps=2).rate
        FixedRate(lr=0.001, optimizer=<class 'torch.optim.adam.Adam'>)
    """

    rate: RatePolicy = FixedRate(1e-3, torch.optim.Adam)
    steps: int = 1

    def _gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> tuple[Tensor | None, int]:
        return _mean_entropy_gradient(task, tower, pixels, weights), len(pixels)


def _mean_entropy_gradient(
    task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
) -> Tensor:
    """Return the gradient of the mean entropy of views."""

    def loss(features: Tensor) -> Tensor:
        return entropy(task.log_probabilities(features, task.target_features)).mean()

    return tower.gradient(weights, pixels, loss)


@dataclass(frozen=True)
class MEMO(WeightTuning):
    """Lower the entropy of the mean prediction over views by tuning the vision tower.

    ``min_w H(mean_i p(. | view i, w))`` over all views except the image itself (unless there is no
    other). The answer is that of the image with the tuned weights, which are restored afterwards. A
    baseline that ignores groups.

    Zhang et al., *MEMO: Test Time Robustness via Adaptation and Augmentation*, 2022.

    Differences from the reference implementation: there all weights are tuned, here gains and
    shifts of norm layers, which takes less memory; ``every_weight=True`` is as there. The optimiser
    starts afresh with each image, where that of the public code goes on. Batch norms keep the
    model's own statistics, where that code mixes in those of the views, 1 to 16. The rate is the
    one that it has for transformers.

    Args:
        every_weight: tune all weights of the vision tower; needs their memory once more, and
            several times with AdamW.
        rate: the length of a step.
        steps: the number of steps.

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
        # The public code averages over augmented copies only.
        views = pixels[1:] if len(pixels) > 1 else pixels

        def loss(features: Tensor) -> Tensor:
            log_p = task.log_probabilities(features, task.target_features)
            return entropy(marginal(log_p))

        return tower.gradient(weights, views, loss), len(views)


@dataclass(frozen=True)
class SAR(WeightTuning):
    """Lower the entropy of certain views where that stays low nearby, by tuning norm layers.

    Views with ``H_i < margin log |Y|`` are kept. With g the gradient of their mean entropy, the
    step is along its gradient at ``w + radius g / |g|``, over those of them that are still below
    the margin there. The answer is that of view 0 with the tuned weights, which are restored
    afterwards. Where no view is kept it is the zero-shot answer, and `Prediction.warnings` says so.
    A baseline that ignores groups.

    Niu et al., *Towards Stable Test-Time Adaptation in Dynamic Wild World*, 2023.

    Differences from the reference implementation: there weights are carried over from batch to
    batch and reset when a moving average of the loss falls below 0.2. Here each image starts
    afresh, so there is nothing to recover from, and no threshold (0.2 is meant for 1000 classes,
    and would have to be scaled with ``log |Y|``). The answer is from after the update, there from
    before it. There the last blocks of the tower are left alone, here the norm layers of all are
    tuned. Where no view is kept that code takes the mean of nothing. Steps have no momentum, which
    a single one would not notice.

    Args:
        margin: the largest entropy, as a share of the largest possible.
        radius: the distance to the second gradient, in the Euclidean norm of the weights.
        rate: the length of a step.
        steps: the number of steps.

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
        certain = self._certain_views(task, tower, pixels, weights)
        if not len(certain):
            return None, 0
        uphill = _mean_entropy_gradient(task, tower, certain, weights)
        # The smallest length, as in the public code, only avoids 0 / 0.
        nearby = weights + self.radius * uphill / uphill.norm().clamp(min=1e-12)
        # As in the public code, views that are not certain any more have no say.
        still_certain = self._certain_views(task, tower, certain, nearby)
        if not len(still_certain):
            return None, len(certain)
        gradient = _mean_entropy_gradient(task, tower, still_certain, nearby)
        return gradient, len(certain)

    def _certain_views(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> Tensor:
        """Return the pixels of views whose entropy is below the margin with these weights."""
        features = tower.encode(weights, pixels)
        log_p = task.log_probabilities(features, task.target_features)
        max_entropy = math.log(log_p.shape[-1])
        return pixels[entropy(log_p) < self.margin * max_entropy]
