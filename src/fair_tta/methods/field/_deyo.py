"""DeYO: tunes on views that are certain because of shapes rather than patches."""

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
    """Cut each image into a grid of patches and shuffle them, each image in its own order.

    An image whose height or width is not a multiple of `patches` is made a little smaller before,
    and enlarged again afterwards.

    Args:
        patches: the number in a row and in a column.

    Example:
        >>> pixels = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> shuffled = PatchShuffle(4)(pixels, np.random.default_rng(0))
        >>> torch.equal(shuffled.flatten().sort().values, pixels.flatten())
        True
    """

    patches: int = 4

    def __call__(self, pixels: Tensor, generator: np.random.Generator) -> Tensor:
        """Return images with shuffled patches, ``[images, channels, height, width]``."""
        n_images = len(pixels)
        grid = self.patches
        image_height, image_width = pixels.shape[-2:]
        height = max(1, image_height // grid)
        width = max(1, image_width // grid)
        fitting = _resize(pixels, (grid * height, grid * width))

        # [images, channels, grid, height, grid, width] becomes [images, patches, channels, ...].
        patches = fitting.unflatten(3, (grid, width)).unflatten(2, (grid, height))
        patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
        order = torch.from_numpy(generator.random((n_images, grid * grid)).argsort(1))
        image_index = torch.arange(n_images, device=pixels.device)[:, None]
        shuffled = patches[image_index, order.to(pixels.device)]

        # And back again.
        shuffled = shuffled.unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5)
        return _resize(shuffled.reshape(fitting.shape), (image_height, image_width))


def _resize(pixels: Tensor, size: tuple[int, int]) -> Tensor:
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
    layers of a vision model without ever resetting them; its `episodic` mode cannot work, as it
    restores weights that it never stored. Here the views of one image are the batch, the context is
    tuned, and every image starts afresh. The step is TPT's (AdamW, 5e-3) instead of momentum on
    weights. The answer is from after the update: the one from before, which that code returns,
    would be zero-shot's. `least_drop` is 0.2 there for its hard scenarios, 0.3 for mild ones and
    0.5 for Waterbirds.

    Args:
        margin: the largest entropy, as a share of the largest possible.
        least_drop: how much the probability of the answer must fall with the patches shuffled.
        weight_margin: the entropy, as such a share, where the first part of a weight is 1.
        rate: the length of a step; `ELRA` looks at the weighted loss here, in nats.
        steps: the number of steps; the filters are applied anew before each.

    Example:
        >>> DeYO(least_drop=0.5).margin
        0.5
    """

    margin: float = 0.5
    least_drop: float = 0.2
    weight_margin: float = 0.4
    # `_Loss` is remembered by the hash of its method; the rate is not a part of the loss.
    rate: RatePolicy = field(default=FixedRate(5e-3), hash=False)
    steps: int = 1
    needs = Needs(prompt_gradient=True, views=True, pixels=True)

    def __post_init__(self) -> None:
        check_tuning(self.rate, self.steps)
        check_margin(self.margin)
        check_number(
            "least_drop",
            self.least_drop,
            "be a difference of probabilities, from -1 to 1",
            lambda x: -1 <= x <= 1,
        )
        check_number(
            "weight_margin",
            self.weight_margin,
            "be a number",
            lambda x: abs(x) < math.inf,
        )

    def _check_task(self, task: Task) -> None:
        check_pixels(type(self).__name__, task.backend)

    def adapt_pixels(
        self, task: Task, vision: Vision, images: Sequence[Image]
    ) -> Outcome:
        features = vision.features(images, True)
        shuffled = vision.changed_features(images, PatchShuffle())
        views_and_copies = torch.cat([features, shuffled], 1)
        tuned = tune(
            task, views_and_copies, loss=_Loss(self), rate=self.rate, steps=self.steps
        )
        # The filters of the first step decide: an image of which nothing passed is not tuned.
        weights = self._weights(task, views_and_copies, task.target_features)
        n_kept = weights.count_nonzero(1)
        tuned = _restore_start(tuned, n_kept == 0, task.context)
        return replace(tuned_answer(task, features, tuned)[1], views_kept=n_kept)

    def _weights(self, task: Task, views_and_copies: Tensor, texts: Tensor) -> Tensor:
        """Return the weight of each view, ``[images, views]``; 0 for those that are not kept.

        Args:
            task: has the temperature.
            views_and_copies: ``[images, 2 * views, dim]``, views and then their shuffled copies.
            texts: ``[(images,) targets, dim]``
        """
        # Weights are constants of the loss, as in the public code.
        with torch.no_grad():
            log_p = task.log_probabilities(views_and_copies, texts)
            views, copies = log_p.chunk(2, dim=1)
            answer = views.argmax(-1, keepdim=True)
            drop = views.gather(-1, answer).exp() - copies.gather(-1, answer).exp()
            drop = drop.squeeze(-1)
            h = entropy(views)
            max_entropy = math.log(views.shape[-1])
            is_kept = (h < self.margin * max_entropy) & (drop > self.least_drop)
            weights = (self.weight_margin * max_entropy - h).exp() + drop.exp()
            return torch.where(is_kept, weights, 0.0)


@dataclass(frozen=True)
class _Loss:
    """Weighted entropy of views, for a method's settings."""

    method: DeYO

    def objective(self, task: Task) -> Objective:
        return Objective((_WeightedEntropy(task.target_prompts, self.method),))


@dataclass(frozen=True)
class _WeightedEntropy:
    """A `PromptLoss` of views and their shuffled copies."""

    prompts: PromptSet
    method: DeYO

    def loss(self, task: Task, views: Tensor, features: Tensor) -> Tensor:
        weights = self.method._weights(task, views, features)
        # Shuffled copies serve the weights alone.
        images_views, _ = views.chunk(2, dim=1)
        h = entropy(task.log_probabilities(images_views, features))
        return (weights * h).sum(1) / weights.count_nonzero(1).clamp(min=1)


def _restore_start(tuned: Descent, is_untuned: Tensor, start: Tensor) -> Descent:
    """Return the descent with the initial context for images of which no view passed."""

    def restore(values: Tensor, initial: Tensor | float = 0) -> Tensor:
        is_restored = is_untuned.to(values.device)
        is_restored = is_restored.reshape(-1, *[1] * (values.ndim - 1))
        return torch.where(is_restored, initial, values)

    flags = {
        text: flag & ~is_untuned.to(flag.device) for text, flag in tuned.flags.items()
    }
    return Descent(
        restore(tuned.context, start.to(tuned.context)),
        restore(tuned.learning_rate),
        restore(tuned.relative_step),
        {**flags, NOTHING_PASSED: is_untuned},
    )
