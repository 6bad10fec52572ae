"""What methods that tune weights of the vision tower have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from PIL.Image import Image
from torch import Tensor

from fair_tta.adapters.contract import Outcome, probabilities
from fair_tta.adapters.pixel_method import PixelMethod
from fair_tta.adapters.prompt_tuning import check_tuning
from fair_tta.text.task import Task
from fair_tta.tuning.image_tower import ImageTower, check_tower
from fair_tta.tuning.lengths import length_and_direction, wide
from fair_tta.tuning.rates import RatePolicy, Stepper, check_context, check_stepper
from fair_tta.vision.features import Vision

NO_VIEW_PASSED = "no view is certain enough to learn from: this is the zero-shot answer"


@dataclass(frozen=True, eq=False)
class ViewGradient:
    """The gradient of what a method minimises over views of one image, without waiting for it.

    Attributes:
        gradient: ``[numbers]``, zeros if it is of no view.
        kept: ``[]``, how many views the method has chosen.
        is_of_none: ``[]`` of bool, whether there is no view to learn from; None if that cannot be.
    """

    gradient: Tensor
    kept: Tensor
    is_of_none: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Fitted:
    """What became of one image: ``[1, dim]`` features of it, and how they came about."""

    features: Tensor
    rate: Tensor
    relative_step: Tensor
    kept: Tensor
    flags: Mapping[str, Tensor]


class WeightTuning(PixelMethod):
    """A method that fits weights of the vision tower to each image, and then forgets them.

    A subclass is a frozen dataclass with `rate` and `steps`; it says how the gradient is made.
    """

    needs_prompt_gradient: ClassVar[bool] = False
    rate: RatePolicy
    steps: int

    def __post_init__(self) -> None:
        check_tuning(self.rate, self.steps)

    @property
    def tunes_every_weight(self) -> bool:
        """Whether all weights of the tower are tuned, not those of norm layers alone."""
        return False

    def gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> ViewGradient:
        """The gradient at these weights.

        Args:
            task: the text side.
            tower: the vision tower.
            pixels: ``[views, 3, height, width]``, view 0 being the image.
            weights: ``[numbers]``
        """
        raise TypeError(f"{type(self).__name__} does not say what it minimises")

    def check_task(self, task: Task) -> None:
        """See `AdaptsPixels.check_task`."""
        check_tower(type(self).__name__, task, self.tunes_every_weight)

    def adapt_pixels(self, task: Task, vision: Vision, images: Sequence[Image]) -> Outcome:
        """See `AdaptsPixels.adapt_pixels`."""
        tower = ImageTower.of(task, self.tunes_every_weight)
        own = vision.features(images, False)
        place = task.backend.device, task.backend.dtype
        fitted = [
            self._fit(task, tower, vision.pixels(image).to(*place), zero_shot)
            for image, zero_shot in zip(images, own, strict=True)
        ]
        features = torch.stack([one.features for one in fitted])
        texts = task.sensitive_features.items()
        return Outcome(
            probabilities(task, features, task.target_features),
            {a: probabilities(task, features, values) for a, values in texts},
            learning_rate=torch.cat([one.rate for one in fitted]),
            relative_step=torch.cat([one.relative_step for one in fitted]),
            views_kept=torch.stack([one.kept for one in fitted]),
            flags=_together([one.flags for one in fitted]),
        )

    def _fit(self, task: Task, tower: ImageTower, pixels: Tensor, zero_shot: Tensor) -> _Fitted:
        start, weights, features = tower.start, tower.start, zero_shot
        first: ViewGradient | None = None
        stepper: Stepper | None = None

        def at(points: Tensor) -> Tensor:
            """Gradients at other weights, for policies that ask for them."""
            found = [self.gradient(task, tower, pixels, point.flatten()) for point in points]
            return torch.stack([one.gradient for one in found]).view_as(points)

        for _ in range(self.steps):
            found = self.gradient(task, tower, pixels, weights)
            gradient = found.gradient[None, None]  # as of one image with one vector
            if first is None or stepper is None:
                first, stepper = found, self.rate.start(start[None, None], gradient, gradient, at)
                check_stepper(self.rate, stepper, 1)
            context = stepper.step(gradient)
            check_context(self.rate, context, start[None, None])
            weights = _unless(found.is_of_none, context[0, 0], weights)
        moved, _ = length_and_direction(wide(weights - start)[None])
        size, _ = length_and_direction(start[None])
        move = moved / size
        if first is None or stepper is None:
            return _Fitted(
                features, torch.zeros_like(move), move, torch.tensor(len(pixels), device="cpu"), {}
            )
        features = _unless(first.is_of_none, tower.encode(weights, pixels[:1]), zero_shot)
        rate, flags = stepper.rate.to(start), dict(stepper.flags)
        if first.is_of_none is not None:
            rate = _unless(first.is_of_none, rate, torch.zeros_like(rate))
            flags = {text: flag & ~first.is_of_none for text, flag in flags.items()}
            flags[NO_VIEW_PASSED] = first.is_of_none[None]
        return _Fitted(features, rate, move, first.kept, flags)


def _unless(condition: Tensor | None, value: Tensor, other: Tensor) -> Tensor:
    """The other value where the condition holds; no condition does not."""
    return value if condition is None else torch.where(condition, other.to(value), value)


def _together(flags: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """``{sentence: [1]}`` of each image as ``{sentence: [images]}``."""
    every = {text: flag for one in flags for text, flag in one.items()}
    return {
        text: torch.cat([one.get(text, torch.zeros_like(flag)) for one in flags])
        for text, flag in every.items()
    }
