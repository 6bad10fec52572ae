"""What methods that tune weights of the vision tower have in common."""

from __future__ import annotations

from collections.abc import Sequence
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
from fair_tta.tuning.rates import RatePolicy, Stepper, notes_of
from fair_tta.vision.features import Vision

NO_VIEW_PASSED = "no view is certain enough to learn from: this is the zero-shot answer"


@dataclass(frozen=True)
class _Fitted:
    """What became of one image: ``[1, dim]`` features of it, and how they came about."""

    features: Tensor
    rate: Tensor
    relative_step: Tensor
    kept: int
    notes: tuple[str, ...]


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
    ) -> tuple[Tensor | None, int]:
        """The gradient at these weights, and how many views it is of; None if there are none.

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
        fitted = [
            self._fit(task, tower, vision.pixels(image), zero_shot)
            for image, zero_shot in zip(images, own, strict=True)
        ]
        features = torch.stack([one.features for one in fitted])
        texts = task.sensitive_features.items()
        return Outcome(
            probabilities(task, features, task.target_features),
            {a: probabilities(task, features, values) for a, values in texts},
            learning_rate=torch.cat([one.rate for one in fitted]),
            relative_step=torch.cat([one.relative_step for one in fitted]),
            views_kept=torch.tensor([one.kept for one in fitted]),
            warnings=tuple(one.notes for one in fitted),
        )

    def _fit(self, task: Task, tower: ImageTower, pixels: Tensor, zero_shot: Tensor) -> _Fitted:
        start, weights = tower.start, tower.start
        stepper: Stepper | None = None
        kept = len(pixels)

        def at(points: Tensor) -> Tensor:
            """Gradients at other weights, for policies that ask for them."""
            found = [self.gradient(task, tower, pixels, point.flatten())[0] for point in points]
            return torch.stack(
                [torch.zeros_like(start) if one is None else one for one in found]
            ).view_as(points)

        for _ in range(self.steps):
            gradient, count = self.gradient(task, tower, pixels, weights)
            kept = count if stepper is None else kept  # at the first step
            if gradient is None:
                break
            gradient = gradient[None, None]  # as of one image with one vector
            if stepper is None:
                stepper = self.rate.start(start[None, None], gradient, gradient, at)
            weights = stepper.step(gradient)[0, 0]
        moved, _ = length_and_direction(wide(weights - start)[None])
        size, _ = length_and_direction(start[None])
        move = (moved / size)[0]
        if stepper is None:
            notes = (NO_VIEW_PASSED,) if self.steps else ()
            return _Fitted(zero_shot, start.new_zeros(1), move[None], kept, notes)
        features = tower.encode(weights, pixels[:1])
        return _Fitted(
            features, stepper.rate.to(start), move[None], kept, notes_of(stepper.flags, 1)[0]
        )
