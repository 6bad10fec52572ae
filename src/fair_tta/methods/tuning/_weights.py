"""Tuning weights of the vision tower, on a copy of its modules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor, nn
from torch.func import functional_call

from fair_tta._linalg import unit_features
from fair_tta.errors import TowerError
from fair_tta.images._vision import Vision, probe_image, takes_images, views_per_pass
from fair_tta.methods._base import Needs, Outcome, PixelAdapter, probabilities
from fair_tta.methods.tuning._rates import Descent, RatePolicy, check_tuning, descend
from fair_tta.models._backend import Backend
from fair_tta.models._towers import features_agree
from fair_tta.prompts._task import Task


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
        """The vision tower of a task's model: all weights are given, or those of norm layers."""
        names, module = tuned_weight_names(task, every), _tower(task.backend)
        parameters = dict(module.named_parameters())
        flat = torch.cat([parameters[name].detach().flatten() for name in names])
        start = flat if flat.dtype == torch.float64 else flat.float()
        return cls(module, names, start, task.backend)

    def encode(self, weights: Tensor, pixels: Tensor) -> Tensor:
        """Unit features ``[n, dim]`` of pixels ``[n, 3, height, width]``, a few at a time."""
        with torch.no_grad():
            return torch.cat([self._encode(weights, part) for part in _parts(pixels)])

    def gradient(
        self, weights: Tensor, pixels: Tensor, loss: Callable[[Tensor], Tensor]
    ) -> Tensor:
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
        return unit_features(functional_call(self.module, given, (pixels,)))


def _parts(pixels: Tensor) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = pixels.split(views_per_pass(pixels.shape[-2:]))
    return parts


def check_pixels(method: str, backend: Backend) -> None:
    """Raise `TowerError` if a model takes something else than pixels."""
    try:
        _take_pixels(backend)
    except TowerError as error:
        raise TowerError(
            f"{method} changes pixels after preprocessing, which {backend.name} does not allow: "
            f"{error}."
        ) from error


def _take_pixels(backend: Any) -> Tensor:
    """Pixels of a test image; `TowerError` if the model takes something else."""
    if not callable(getattr(backend, "preprocess", None)) or not hasattr(
        backend, "encode_pixels"
    ):
        raise TowerError(
            "it has no methods `preprocess` and `encode_pixels`", argument="preprocess"
        )
    pixels: Tensor | None = backend.preprocess([probe_image()])
    if pixels is None:
        raise TowerError("it takes patches of any number, not pixels")
    return pixels


def _tower(backend: Any) -> nn.Module:
    if getattr(backend, "image_tower", None) is None:
        raise TowerError(
            "there is no method `image_tower` that gives it", argument="image_tower"
        )
    tower: nn.Module = backend.image_tower()
    return tower


def tuned_weight_names(task: Task, every: bool) -> tuple[str, ...]:
    """The parameters that features of images depend on, all or those of norm layers."""
    return task.remember(("tuned weights", every), lambda: _find(task.backend, every))


def _find(backend: Any, every: bool) -> tuple[str, ...]:
    tower = _tower(backend)
    with takes_images(
        backend
    ):  # the model's own way first: its errors explain what is wrong
        pixels = _take_pixels(backend)
        own = unit_features(backend.encode_pixels(pixels))
    owners = {
        name for name, module in tower.named_modules() if every or is_norm_layer(module)
    }
    candidates = {
        name: weight.detach().requires_grad_()
        for name, weight in tower.named_parameters()
        if weight.is_floating_point() and name.rpartition(".")[0] in owners
    }
    with torch.enable_grad():
        features = functional_call(
            tower, candidates, (pixels.to(backend.device, backend.dtype),)
        )
        total = features.sum()
    if not features_agree(unit_features(features.detach()), own):
        raise TowerError(
            "its features are not those of `encode_pixels`", argument="encode_pixels"
        )
    leaves = [*candidates.values()] if features.requires_grad else []
    gradients = torch.autograd.grad(total, leaves, allow_unused=True) if leaves else ()
    names = tuple(
        n for n, g in zip(candidates, gradients, strict=False) if g is not None
    )
    if not names:
        kind = "weights" if every else "weights of norm layers"
        raise TowerError(f"its features depend on no {kind}")
    return names


def is_norm_layer(module: nn.Module) -> bool:
    """Whether this is a layer of normalisation, with a gain of its own."""
    weight = module._parameters.get("weight")
    return (
        "norm" in type(module).__name__.lower()
        and weight is not None
        and weight.ndim == 1
    )


NO_VIEW_PASSED = "no view is certain enough to learn from: this is the zero-shot answer"


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
    def _tunes_every_weight(self) -> bool:
        """Whether all weights of the tower are tuned, not those of norm layers alone."""
        return False

    @abstractmethod
    def _gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> tuple[Tensor | None, int]:
        """The gradient at these weights, None without a view to learn from, and how many were kept.

        Args:
            task: the text side.
            tower: the vision tower.
            pixels: ``[views, 3, height, width]``, view 0 being the image.
            weights: ``[numbers]``
        """

    def _check_task(self, task: Task) -> None:
        try:
            tuned_weight_names(task, self._tunes_every_weight)
        except TowerError as error:
            raise TowerError(
                f"{type(self).__name__} tunes weights of the vision tower, which "
                f"{task.backend.name} does not allow: {error}."
            ) from error

    def adapt_pixels(
        self, task: Task, vision: Vision, images: Sequence[Image]
    ) -> Outcome:
        tower = ImageTower.of(task, self._tunes_every_weight)
        place = task.backend.device, task.backend.dtype
        each = [
            self._fit(task, tower, vision.pixels(image).to(*place), zero_shot)
            for image, zero_shot in zip(
                images, vision.features(images, False), strict=True
            )
        ]
        of_images, descents, kept = zip(*each, strict=True)
        features = torch.stack(of_images)
        return Outcome(
            probabilities(task, features, task.target_features),
            {
                a: probabilities(task, features, z)
                for a, z in task.sensitive_features.items()
            },
            learning_rate=torch.cat(
                [one.learning_rate.to(tower.start) for one in descents]
            ),
            relative_step=torch.cat([one.relative_step for one in descents]),
            views_kept=torch.tensor(kept, device="cpu"),
            flags=_together([one.flags for one in descents]),
        )

    def _fit(
        self, task: Task, tower: ImageTower, pixels: Tensor, zero_shot: Tensor
    ) -> tuple[Tensor, Descent, int]:
        """Of one image its features ``[1, dim]``, the steps, and how many views were chosen."""
        start = tower.start[None, None]  # as of one image with one vector
        counts: list[int] = []

        def gradients(weights: Tensor) -> tuple[Tensor, Tensor] | None:
            gradient, count = self._gradient(task, tower, pixels, weights.flatten())
            counts.append(count)
            return None if gradient is None else (gradient.view_as(start),) * 2

        def at(points: Tensor) -> Tensor:
            """Gradients at other weights, for policies that ask for them."""
            found = map(gradients, points)
            return torch.stack(
                [torch.zeros_like(start) if g is None else g[0] for g in found]
            )

        descent = descend(self.rate, self.steps, start, gradients, at)
        if descent.context is not start:
            return (
                tower.encode(descent.context.flatten(), pixels[:1]),
                descent,
                counts[0],
            )
        if not counts:
            return zero_shot, descent, len(pixels)
        none = {NO_VIEW_PASSED: torch.tensor([True], device="cpu")}
        return zero_shot, replace(descent, flags=none), counts[0]


def _together(flags: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """``{sentence: [1]}`` of each image as ``{sentence: [images]}``."""
    every = {text: flag for one in flags for text, flag in one.items()}
    return {
        text: torch.cat([one.get(text, torch.zeros_like(flag)) for one in flags])
        for text, flag in every.items()
    }
