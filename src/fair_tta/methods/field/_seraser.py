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
from fair_tta.images._views import GEOMETRIC_OPERATIONS, Views
from fair_tta.images._vision import CustomViews, Vision
from fair_tta.methods._base import Needs, Outcome, PixelAdapter
from fair_tta.methods.tuning._entropy import entropy
from fair_tta.methods.tuning._loop import tune, tuned_answer
from fair_tta.methods.tuning._losses import Loss, Objective, objective_of
from fair_tta.methods.tuning._rates import FixedRate, RatePolicy, check_tuning
from fair_tta.prompts._context import PromptSet
from fair_tta.prompts._task import Task

_OPERATIONS = 2  # of rotate, shear and translate, one after another
_HOLE = 0.5  # of the shorter side, at most


@dataclass(frozen=True)
class DistortedViews:
    """The image rotated, sheared or moved, twice, with a black hole of up to half its side.

    Rotations are up to 30 degrees, shears up to 0.3, moves up to a third of the side.

    Args:
        n: number of views, including the image itself, which is not distorted.

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
        centre = _centre(image, size)
        drawn = generator.random((self.n - 1, 2 * _OPERATIONS + 3))
        views = np.empty((self.n - 1, *size, 3), np.float32)
        for view, numbers in zip(views, drawn, strict=True):
            pixels = centre
            for which, part in numbers[:-3].reshape(_OPERATIONS, 2):
                operation = GEOMETRIC_OPERATIONS[int(len(GEOMETRIC_OPERATIONS) * which)]
                pixels = operation(2 * part - 1, *size)(pixels)
            view[:] = pixels
            _cut_out(view, *numbers[-3:])
        return views


def _cut_out(
    view: npt.NDArray[np.float32], side: float, down: float, right: float
) -> None:
    """Makes a square black; it may stick out of the image."""
    height, width, _ = view.shape
    half = _HOLE * side * min(height, width) / 2
    top, left = (max(0, round(at - half)) for at in (down * height, right * width))
    view[top : round(down * height + half), left : round(right * width + half)] = 0


def _centre(image: Image.Image, size: tuple[int, int]) -> Pixels:
    """The largest part at the centre that has the shape of `size`, at that size."""
    pixels = np.array(to_rgb(image))
    height, width, _ = pixels.shape
    scale = min(height / size[0], width / size[1])
    h, w = (max(1, round(scale * edge)) for edge in size)
    top, left = (height - h) // 2, (width - w) // 2
    return resize(pixels[top : top + h, left : left + w], size)


@dataclass(frozen=True)
class KLFromUniform(Loss):
    """``mean over auxiliary images of KL(uniform || p)``, as in the public code of SEraser.

    Args:
        hold: add ``KL(p_0 || p)`` of the image, p_0 being its answer before tuning, in place of
            its entropy.
    """

    hold: bool = False

    def objective(self, task: Task) -> Objective:
        return Objective((_Erased(task.target_prompts, self.hold),))


@dataclass(frozen=True)
class _Erased:
    """A `PromptLoss` of the image, the first of the views, and of auxiliary images, the rest."""

    prompts: PromptSet
    hold: bool

    def loss(self, task: Task, views: Tensor, features: Tensor) -> Tensor:
        log_p = task.log_probabilities(views, features)  # [images, views, targets]
        image, auxiliary = log_p[:, 0], log_p[:, 1:]
        away = -auxiliary.mean(-1) - math.log(log_p.shape[-1])
        if not self.hold:
            return away.mean(1) + entropy(image)
        before = task.log_probabilities(views[:, 0], task.target_features)
        return away.mean(1) + (before.exp() * (before - image)).sum(-1)


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
    the same on some datasets and adds noise on others. It is not the ``lam = inf`` of FairTPT: that
    blurs *sensitive values* on ordinary views.

    Args:
        auxiliary: images that show what should not matter: a function of an image and a random
            generator, with your segmentation; otherwise 15 distorted copies with a hole.
        black: whether an all-black image is one more.
        loss: what is minimised.
        rate: how far to step; `ELRA` looks at the whole loss here, in nats.
        steps: how often to step.

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
            black = vision.features([Image.new("RGB", (224, 224))], False)
            features = torch.cat([features, black.expand(len(images), -1, -1)], 1)
        if features.shape[1] == 1:
            raise FairTTAError(
                "`auxiliary` returns no images, and without `black` there are none.",
                argument="auxiliary",
            )
        tuned = tune(task, features, loss=self.loss, rate=self.rate, steps=self.steps)
        return tuned_answer(task, features, tuned)[1]
