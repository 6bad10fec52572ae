"""Tuning weights of the vision tower, on a copy of its modules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor, nn
from torch.func import functional_call

from fair_tta._images.vision import Vision, pixels_at_once, probe_image, takes_images
from fair_tta._linalg import length_and_direction, unit, wide
from fair_tta._models.protocol import Backend
from fair_tta._models.text_tower import agree
from fair_tta._prompts.task import Task
from fair_tta.errors import TowerError
from fair_tta.methods._base import Needs, Outcome, PixelAdapter, probabilities
from fair_tta.methods._tuning.prompt import check_tuning
from fair_tta.methods._tuning.rates import RatePolicy, Stepper, check_context, check_stepper


@dataclass(frozen=True, eq=False)
class ImageTower:
    """A vision tower, some of whose weights are given at each call.

    Attributes:
        module: pixels to features; its modules are nobody else's.
        names: of the parameters that are given.
        start: ``[numbers]``, what the model has for them, in float32 (float64 stays).
        backend: for device and dtype.
    """

    module: nn.Module
    names: tuple[str, ...]
    start: Tensor
    backend: Backend

    @classmethod
    def of(cls, task: Task, every: bool) -> ImageTower:
        """The vision tower of a task's model.

        Args:
            task: the text side.
            every: tune all weights, otherwise those of norm layers.

        Raises:
            TowerError: the model does not let them be replaced.
        """
        names, module = tuned_names(task, every), _tower(task.backend)
        parameters = dict(module.named_parameters())
        flat = torch.cat([parameters[name].detach().flatten() for name in names])
        start = flat if flat.dtype == torch.float64 else flat.float()
        return cls(module, names, start, task.backend)

    def encode(self, weights: Tensor, pixels: Tensor) -> Tensor:
        """Unit features ``[n, dim]`` of pixels ``[n, 3, height, width]``, a few at a time."""
        with torch.no_grad():
            return torch.cat([self._encode(weights, part) for part in _parts(pixels)])

    def gradient(self, weights: Tensor, pixels: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """The gradient of a loss of features: first with respect to these, then through the tower.

        Only the graph of a few images is held at a time.

        Args:
            weights: ``[numbers]``
            pixels: ``[n, 3, height, width]``
            loss: ``[n, dim]`` unit features to a number.
        """
        features = self.encode(weights, pixels)
        with torch.enable_grad():
            features.requires_grad_()
            (cotangent,) = torch.autograd.grad(loss(features), features)
        total = torch.zeros_like(weights)
        parts = _parts(pixels)
        for part, back in zip(parts, cotangent.split(len(parts[0])), strict=True):
            with torch.enable_grad():
                leaf = weights.detach().requires_grad_()
                encoded = self._encode(leaf, part)
            total += torch.autograd.grad(encoded, leaf, back)[0]
        return total

    def _encode(self, weights: Tensor, pixels: Tensor) -> Tensor:
        own = dict(self.module.named_parameters())
        sizes = [own[name].numel() for name in self.names]
        given = {
            name: part.view_as(own[name]).to(own[name].dtype)
            for name, part in zip(self.names, weights.split(sizes), strict=True)
        }
        pixels = pixels.to(self.backend.device, self.backend.dtype)
        return unit(functional_call(self.module, given, (pixels,)))


def take_pixels(backend: Any) -> Tensor:
    """Pixels of a test image; `TowerError` if the model takes something else."""
    preprocess = getattr(backend, "preprocess", None)
    if preprocess is None or not hasattr(backend, "encode_pixels"):
        raise TowerError("it has no methods `preprocess` and `encode_pixels`")
    pixels: Tensor | None = preprocess([probe_image()])
    if pixels is None:
        raise TowerError("it takes patches of any number, not pixels")
    return pixels


def check_pixels(method: str, backend: Backend) -> None:
    """Raise `TowerError` if a model takes something else than pixels."""
    try:
        take_pixels(backend)
    except TowerError as error:
        raise TowerError(
            f"{method} changes pixels after preprocessing, which {backend.name} does not allow: "
            f"{error}."
        ) from error


def check_tower(method: str, task: Task, every: bool) -> None:
    """Raise `TowerError` if the weights of a task's vision tower cannot be tuned."""
    try:
        tuned_names(task, every)
    except TowerError as error:
        raise TowerError(
            f"{method} tunes weights of the vision tower, which {task.backend.name} does not "
            f"allow: {error}."
        ) from error


def tuned_names(task: Task, every: bool) -> tuple[str, ...]:
    """The parameters that features of images depend on, all or those of norm layers."""
    return task.remember(("tuned weights", every), lambda: _find(task.backend, every))


def _parts(pixels: Tensor) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = pixels.split(pixels_at_once(pixels.shape[-2:]))
    return parts


def _tower(backend: Any) -> nn.Module:
    make = getattr(backend, "image_tower", None)
    if make is None:
        raise TowerError("there is no method `image_tower` that gives it")
    tower: nn.Module = make()
    return tower


def _find(backend: Any, every: bool) -> tuple[str, ...]:
    tower = _tower(backend)
    with takes_images(backend):  # the model's own way first: its errors explain what is wrong
        pixels = take_pixels(backend)
        own = unit(backend.encode_pixels(pixels))
    owners = {name for name, module in tower.named_modules() if every or is_norm(module)}
    candidates = {
        name: weight.detach().requires_grad_()
        for name, weight in tower.named_parameters()
        if weight.is_floating_point() and name.rpartition(".")[0] in owners
    }
    with torch.enable_grad():
        features = functional_call(tower, candidates, (pixels.to(backend.device, backend.dtype),))
        total = features.sum()
    if not agree(unit(features.detach()), own):
        raise TowerError("its features are not those of `encode_pixels`")
    leaves = [*candidates.values()] if features.requires_grad else []
    gradients = torch.autograd.grad(total, leaves, allow_unused=True) if leaves else ()
    names = tuple(n for n, g in zip(candidates, gradients, strict=False) if g is not None)
    if not names:
        kind = "weights" if every else "weights of norm layers"
        raise TowerError(f"its features depend on no {kind}")
    return names


def is_norm(module: nn.Module) -> bool:
    """Whether this is a layer of normalisation, with a gain of its own."""
    weight = module._parameters.get("weight")
    return "norm" in type(module).__name__.lower() and weight is not None and weight.ndim == 1


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


class WeightTuning(PixelAdapter):
    """A method that fits weights of the vision tower to each image, and then forgets them.

    A subclass is a frozen dataclass with `rate` and `steps`; it defines the gradient.
    """

    needs = Needs(pixels=True, views=True)
    rate: RatePolicy
    steps: int

    def __post_init__(self) -> None:
        check_tuning(self.rate, self.steps)

    @property
    def tunes_every_weight(self) -> bool:
        """Whether all weights of the tower are tuned, not those of norm layers alone."""
        return False

    @abstractmethod
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

    def check_task(self, task: Task) -> None:
        check_tower(type(self).__name__, task, self.tunes_every_weight)

    def adapt_pixels(self, task: Task, vision: Vision, images: Sequence[Image]) -> Outcome:
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
