"""The vision tower of a model with other weights than it has, and gradients with respect to them.

Weights that are tuned are one vector, so that rate policies take them as they take a context. The
model itself is never changed: see `fair_tta.backends.twin`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fair_tta.backends.embedding_layer import agree
from fair_tta.backends.protocol import Backend
from fair_tta.errors import TowerError
from fair_tta.text.encoder import unit
from fair_tta.text.task import Task
from fair_tta.vision.features import pixels_at_once
from fair_tta.vision.probe import probe_picture, suited


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

        Only the graph of a few pictures is held at a time.

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
    """Pixels of a test picture; `TowerError` if the model takes something else."""
    preprocess = getattr(backend, "preprocess", None)
    if preprocess is None or not hasattr(backend, "encode_pixels"):
        raise TowerError("it has no methods `preprocess` and `encode_pixels`")
    pixels: Tensor | None = preprocess([probe_picture()])
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
    """The parameters that features of pictures depend on, all or those of norm layers."""
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
    with suited(backend):  # the model's own way first: it says what is wrong with the weights
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
