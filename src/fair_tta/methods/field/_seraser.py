"""SEraser: tunes the context until background-only images no longer predict a class."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from fair_tta.errors import FairTTAError, check_count
from fair_tta.images._augment import Pixels
from fair_tta.images._draw import resize, to_rgb
from fair_tta.images._views import GEOMETRIC_OPERATIONS, Views, make_step
from fair_tta.images._vision import CustomViews, Vision
from fair_tta.methods._base import Needs, Outcome, PixelAdapter
from fair_tta.methods.tuning._entropy import entropy
from fair_tta.methods.tuning._loop import tune, tuned_answer
from fair_tta.methods.tuning._losses import Loss, Objective, objective_of
from fair_tta.methods.tuning._rates import FixedRate, RatePolicy, check_tuning
from fair_tta.prompts._context import PromptSet
from fair_tta.prompts._task import Task

# The number of operations and the largest hole are those of the public code; how strong each
# operation is, is ours.
_OPERATIONS_PER_VIEW = 2
_MAX_HOLE = 0.5  # of the shorter side


@dataclass(frozen=True)
class DistortedViews:
    """Rotated, sheared or moved copies of an image, with a black hole of up to half its side.

    Each copy takes two operations: rotations are up to 30 degrees, shears up to 0.3, moves up to a
    third of the side.

    Args:
        n: number of views, including the undistorted image itself.

    Example:
        >>> DistortedViews(4)(Image.new("RGB", (9, 9)), (8, 8), np.random.default_rng(0)).shape
        (3, 8, 8, 3)
    """

    n: int = 16

    def __post_init__(self) -> None:
        check_count("n", self.n)

    def __call__(
        self, image: Image.Image, size: tuple[int, int], generator: np.random.Generator
    ) -> npt.NDArray[np.float32]:
        centre = _crop_centre(image, size)
        # For each view: kind and strength of each operation, then size and centre of the hole.
        random_numbers = generator.random((self.n - 1, 2 * _OPERATIONS_PER_VIEW + 3))
        views = np.empty((self.n - 1, *size, 3), np.float32)
        for view, numbers in zip(views, random_numbers, strict=True):
            pixels = centre
            for kind, strength in numbers[:-3].reshape(_OPERATIONS_PER_VIEW, 2):
                index = int(len(GEOMETRIC_OPERATIONS) * kind)
                operation = GEOMETRIC_OPERATIONS[index]
                distort = make_step(operation, 2 * strength - 1, size)
                pixels = distort(pixels)
            # The hole comes last, so that no operation fills it.
            view[:] = pixels
            _cut_hole(view, *numbers[-3:])
        return views


def _cut_hole(
    view: npt.NDArray[np.float32], side: float, down: float, right: float
) -> None:
    """Make a square black; it may stick out of the image.

    Args:
        view: ``[height, width, 3]``, changed in place.
        side: the side of the square, as a share of the largest one.
        down: the row of its centre, as a share of the height.
        right: the column of its centre, as a share of the width.
    """
    height, width, _ = view.shape
    half = _MAX_HOLE * side * min(height, width) / 2
    row = down * height
    column = right * width
    top = max(0, round(row - half))
    left = max(0, round(column - half))
    view[top : round(row + half), left : round(column + half)] = 0


def _crop_centre(image: Image.Image, size: tuple[int, int]) -> Pixels:
    """Return the largest central part that has the shape of `size`, resized to it."""
    pixels = np.array(to_rgb(image))
    height, width, _ = pixels.shape
    # The largest scale at which the part still fits into the image.
    scale = min(height / size[0], width / size[1])
    crop_height = max(1, round(scale * size[0]))
    crop_width = max(1, round(scale * size[1]))
    top = (height - crop_height) // 2
    left = (width - crop_width) // 2
    return resize(pixels[top : top + crop_height, left : left + crop_width], size)


@dataclass(frozen=True)
class KLFromUniform(Loss):
    """``mean over auxiliary images of KL(uniform || p)``, as in the public code of SEraser.

    Args:
        hold: add ``KL(p_0 || p)`` of the image, p_0 being its answer before tuning, instead of
            its entropy.
    """

    hold: bool = False

    def objective(self, task: Task) -> Objective:
        return Objective((_ErasedBackground(task.target_prompts, self.hold),))


@dataclass(frozen=True)
class _ErasedBackground:
    """A `PromptLoss` of the image, the first of the views, and of auxiliary images, the rest."""

    prompts: PromptSet
    hold: bool

    def loss(self, task: Task, views: Tensor, features: Tensor) -> Tensor:
        log_p = task.log_probabilities(views, features)  # [images, views, targets]
        image = log_p[:, 0]
        auxiliary = log_p[:, 1:]
        kl_from_uniform = -auxiliary.mean(-1) - math.log(log_p.shape[-1])
        if not self.hold:
            return kl_from_uniform.mean(1) + entropy(image)
        # The original prompts: what is tuned must not move its own target.
        before = task.log_probabilities(views[:, 0], task.target_features)
        kl_from_before = (before.exp() * (before - image)).sum(-1)
        return kl_from_uniform.mean(1) + kl_from_before


@dataclass(frozen=True)
class SEraser(PixelAdapter):
    """Tune the context until background-only images no longer predict a class.

    ``min_t mean_a KL(uniform || p(. | a, t)) + H(p(. | image, t))`` over auxiliary images a:
    the background of the image, say, and an all-black image. The answer is that of the image.

    Ma et al., *Spurious Feature Eraser: Stabilizing Test-Time Adaptation for Vision-Language
    Foundation Model*, 2025.

    Differences from the reference implementation: the context is every token of the template
    outside the slots, not three vectors with their positions in them. The second term is the
    entropy of the image itself, where the public code takes the foreground that a segmentation
    finds; its third option, a term of pseudo-labels, is not offered. Without a segmentation of
    yours auxiliary images are distorted copies, whose strengths are ours; the public code does
    the same on some datasets and adds noise on others. It is not FairTPT with ``lam = inf``, which
    raises the entropy of *sensitive values* on ordinary views.

    Args:
        auxiliary: a function of an image and a random generator that returns images of what should
            not matter, by your segmentation; by default 15 distorted copies with a hole.
        black: whether an all-black image is added to them.
        loss: the loss that is minimised.
        rate: the length of a step; `ELRA` looks at the whole loss here, in nats.
        steps: the number of steps.

    Example:
        >>> def background(image, generator):
        ...     return [Image.composite(Image.new("RGB", image.size), image, my_mask(image))]
        >>> SEraser(auxiliary=background).steps
        20
    """

    auxiliary: Views | CustomViews = DistortedViews()
    black: bool = True
    loss: Loss = KLFromUniform()
    rate: RatePolicy = FixedRate(5e-4)
    steps: int = 20
    needs = Needs(prompt_gradient=True, pixels=True)

    def __post_init__(self) -> None:
        check_tuning(self.rate, self.steps)
        is_function = callable(self.auxiliary) and not isinstance(self.auxiliary, type)
        if not is_function or not isinstance(self.auxiliary, Hashable):
            raise FairTTAError(
                "`auxiliary` should be a function of an image and a random generator that returns "
                f"images, and hashable as a frozen dataclass is (got {self.auxiliary!r}).",
                argument="auxiliary",
            )

    def _check_task(self, task: Task) -> None:
        objective_of(self.loss, task)

    def adapt_pixels(
        self, task: Task, vision: Vision, images: Sequence[Image.Image]
    ) -> Outcome:
        features = vision.features(images, True, self.auxiliary)
        if self.black:
            # The size does not matter: the model resizes it, and black stays black.
            black = vision.features([Image.new("RGB", (224, 224))], False)
            features = torch.cat([features, black.expand(len(images), -1, -1)], 1)
        if features.shape[1] == 1:
            raise FairTTAError(
                "`auxiliary` returns no images, and without `black` there are none.",
                argument="auxiliary",
            )
        tuned = tune(task, features, loss=self.loss, rate=self.rate, steps=self.steps)
        return tuned_answer(task, features, tuned)[1]
