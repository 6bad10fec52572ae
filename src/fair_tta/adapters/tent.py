"""Tent: make the vision tower certain of its views."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.adapters.weight_tuning import ViewGradient, WeightTuning
from fair_tta.text.task import Task
from fair_tta.tuning.entropy import entropy
from fair_tta.tuning.image_tower import ImageTower
from fair_tta.tuning.rates import FixedRate, RatePolicy


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
        """See `WeightTuning.gradient`."""

        def loss(features: Tensor) -> Tensor:
            return entropy(task.log_probabilities(features, task.target_features)).mean()

        return ViewGradient(
            tower.gradient(weights, pixels, loss), torch.tensor(len(pixels), device="cpu")
        )
