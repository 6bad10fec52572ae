"""MEMO: make the vision tower's views agree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.adapters.weight_tuning import ViewGradient, WeightTuning
from fair_tta.text.task import Task
from fair_tta.tuning.entropy import entropy, marginal
from fair_tta.tuning.image_tower import ImageTower
from fair_tta.tuning.rates import FixedRate, RatePolicy


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
        """See `WeightTuning.tunes_every_weight`."""
        return self.every_weight

    def gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> ViewGradient:
        """See `WeightTuning.gradient`."""
        views = pixels[1:] if len(pixels) > 1 else pixels

        def loss(features: Tensor) -> Tensor:
            return entropy(marginal(task.log_probabilities(features, task.target_features)))

        return ViewGradient(
            tower.gradient(weights, views, loss), torch.tensor(len(views), device="cpu")
        )
