"""DeYO: learn from views that are certain because of shapes, not because of patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor
from torch.nn.functional import interpolate

from fair_tta.errors import check_number
from fair_tta.images._vision import Vision
from fair_tta.methods._base import Needs, Outcome, PixelAdapter
from fair_tta.methods.tuning._entropy import check_margin, entropy
from fair_tta.methods.tuning._loop import tune, tuned_answer
from fair_tta.methods.tuning._losses import Objective
from fair_tta.methods.tuning._rates import Descent, FixedRate, RatePolicy, check_tuning
from fair_tta.methods.tuning._weights import check_pixels
from fair_tta.prompts._context import PromptSet
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class PatchShuffle:
    """Cuts each image into a grid of patches and shuffles these, each image in its own way.

    An image whose height or width is not a multiple of `patches` is made a little smaller for it,
    and enlarged again afterwards.

    Args:
        patches: how many in a row and in a column.

    Example:
        >>> pixels = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> shuffled = PatchShuffle(4)(pixels, np.random.default_rng(0))
        >>> torch.equal(shuffled.flatten().sort().values, pixels.flatten())
        True
    """

    patches: int = 4

    def __call__(self, pixels: Tensor, generator: np.random.Generator) -> Tensor:
        """``[n, channels, height, width] -> [n, channels, height, width]``."""
        n, grid, size = len(pixels), self.patches, pixels.shape[-2:]
        height, width = (max(1, edge // grid) for edge in size)
        fitting = _resized(pixels, (grid * height, grid * width))
        parts = fitting.unflatten(3, (grid, width)).unflatten(2, (grid, height))
        parts = parts.permute(0, 2, 4, 1, 3, 5).flatten(
            1, 2
        )  # [n, patches, channels, h, w]
        order = torch.from_numpy(generator.random((n, grid * grid)).argsort(1)).to(
            pixels.device
        )
        parts = parts[torch.arange(n, device=pixels.device)[:, None], order]
        parts = parts.unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5)
        return _resized(parts.reshape(fitting.shape), (size[0], size[1]))


def _resized(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    if pixels.shape[-2:] == size:
        return pixels
    return interpolate(pixels, size, mode="bilinear", antialias=True)


NOTHING_PASSED = "no view passed the filters: this is the zero-shot answer"


@dataclass(frozen=True)
class DeYO(PixelAdapter):
    """Tune the context on views that are certain, and much less so with their patches shuffled.

    With H the entropy of p(. | view i), y its most probable target, and the drop
    ``D_i = p(y | view i) - p(y | view i with its 4 x 4 patches shuffled)``, the views with
    ``H_i < margin log |Y|`` and ``D_i > least_drop`` are kept, and
    ``mean_i (exp(weight_margin log |Y| - H_i) + exp(D_i)) H_i`` is minimised over them; the weights
    have no gradient. The answer is that of view 0. Where no view is kept it is the zero-shot
    answer, and `Prediction.warnings` says so.

    Lee et al., *Entropy is not Enough for Test-Time Adaptation: From the Perspective of
    Disentangled Factors*, 2024.

    Differences from the reference implementation: that is for batches of images and tunes the norm
    layers of a vision model without ever going back; its `episodic` mode cannot work, as it puts
    back what it never stored. Here the views of one image are the batch, the context is tuned, and
    every image starts afresh. The step is TPT's (AdamW, 5e-3) instead of momentum on weights. The
    answer is from after the update: the one from before, which that code returns, would be
    zero-shot's. `least_drop` is 0.2 there for its hard scenarios, 0.3 for mild ones and 0.5 for
    Waterbirds.

    Args:
        margin: the largest entropy, as a share of the largest possible.
        least_drop: how much the probability of the answer must fall with the patches shuffled.
        weight_margin: the entropy, as such a share, where the first part of a weight is 1.
        rate: how far to step; `ELRA` looks at the weighted loss here, in nats.
        steps: how often to step; the filters are applied anew before each.

    Example:
        >>> DeYO(least_drop=0.5).margin
        0.5
    """

    margin: float = 0.5
    least_drop: float = 0.2
    weight_margin: float = 0.4
    rate: RatePolicy = field(
        default=FixedRate(5e-3), hash=False
    )  # not a part of the loss
    steps: int = 1
    needs = Needs(prompt_gradient=True, views=True, pixels=True)

    def __post_init__(self) -> None:
        check_tuning(self.rate, self.steps)
        check_margin(self.margin)
        should = "be a difference of probabilities, from -1 to 1"
        check_number("least_drop", self.least_drop, should, lambda x: -1 <= x <= 1)
        should = "be a number"
        check_number(
            "weight_margin", self.weight_margin, should, lambda x: abs(x) < math.inf
        )

    def _check_task(self, task: Task) -> None:
        check_pixels(type(self).__name__, task.backend)

    def adapt_pixels(
        self, task: Task, vision: Vision, images: Sequence[Image]
    ) -> Outcome:
        features = vision.features(images, True)
        shuffled = vision.changed_features(images, PatchShuffle())
        both = torch.cat([features, shuffled], 1)
        tuned = tune(task, both, loss=_Loss(self), rate=self.rate, steps=self.steps)
        kept = self._weights(task, both, task.target_features).count_nonzero(1)
        tuned = _undone(tuned, kept == 0, task.context)
        return replace(tuned_answer(task, features, tuned)[1], views_kept=kept)

    def _weights(self, task: Task, both: Tensor, texts: Tensor) -> Tensor:
        """Of each view, 0 for those that are not kept: ``[images, views]``.

        Args:
            task: for the temperature.
            both: ``[images, 2 * views, dim]``, the views and then their shuffled copies.
            texts: ``[(images,) targets, dim]``
        """
        with torch.no_grad():
            views, shuffled = task.log_probabilities(both, texts).chunk(2, dim=1)
            answer = views.argmax(-1, keepdim=True)
            drop = (
                views.gather(-1, answer).exp() - shuffled.gather(-1, answer).exp()
            ).squeeze(-1)
            largest, h = math.log(views.shape[-1]), entropy(views)
            kept = (h < self.margin * largest) & (drop > self.least_drop)
            return torch.where(
                kept, (self.weight_margin * largest - h).exp() + drop.exp(), 0.0
            )


@dataclass(frozen=True)
class _Loss:
    """The weighted entropy of views, for a method's settings."""

    method: DeYO

    def objective(self, task: Task) -> Objective:
        return Objective((_Weighted(task.target_prompts, self.method),))


@dataclass(frozen=True)
class _Weighted:
    """A `PromptLoss` of views and their shuffled copies."""

    prompts: PromptSet
    method: DeYO

    def loss(self, task: Task, views: Tensor, features: Tensor) -> Tensor:
        weights = self.method._weights(task, views, features)
        h = entropy(task.log_probabilities(views.chunk(2, dim=1)[0], features))
        return (weights * h).sum(1) / weights.count_nonzero(1).clamp(min=1)


def _undone(tuned: Descent, where: Tensor, start: Tensor) -> Descent:
    """Contexts as they were at the start for the images that nothing passed."""

    def undo(values: Tensor, before: Tensor | float = 0) -> Tensor:
        there = where.to(values.device).reshape(-1, *[1] * (values.ndim - 1))
        return torch.where(there, before, values)

    flags = {text: flag & ~where.to(flag.device) for text, flag in tuned.flags.items()}
    return Descent(
        undo(tuned.context, start.to(tuned.context)),
        undo(tuned.learning_rate),
        undo(tuned.relative_step),
        {**flags, NOTHING_PASSED: where},
    )
