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
from fair_tta.models._text_tower import features_agree
from fair_tta.prompts._task import Task


@dataclass(frozen=True, eq=False)
class ImageTower:
    """A copy of a vision tower, called with other numbers for some of its weights.

    Attributes:
        module: pixels to features; no other object uses its modules.
        names: of the weights that are replaced.
        start: ``[numbers]``, the model's own numbers of these weights, in float32 (float64 stays).
        backend: for device and dtype.
    """

    module: nn.Module
    names: tuple[str, ...]
    start: Tensor
    backend: Backend

    @classmethod
    def from_task(cls, task: Task, every_weight: bool) -> ImageTower:
        """Return a task's vision tower, to tune all its weights or those of norm layers."""
        names = tuned_weight_names(task, every_weight)
        module = _vision_module(task.backend)
        parameters = dict(module.named_parameters())
        weights = [parameters[name].detach().flatten() for name in names]
        start = torch.cat(weights)
        if start.dtype != torch.float64:
            start = start.float()
        return cls(module, names, start, task.backend)

    def encode(self, weights: Tensor, pixels: Tensor) -> Tensor:
        """Return unit features ``[n, dim]`` of pixels ``[n, 3, height, width]``."""
        with torch.no_grad():
            batches = _batches(pixels)
            return torch.cat([self._encode(weights, batch) for batch in batches])

    def gradient(
        self, weights: Tensor, pixels: Tensor, loss: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return the gradient of a loss of features with respect to the weights.

        The loss goes back to the features at once, and from there through the tower a few images
        at a time, so that only their graph is in memory.

        Args:
            weights: ``[numbers]``
            pixels: ``[n, 3, height, width]``
            loss: function of ``[n, dim]`` unit features that returns a number.
        """
        features = self.encode(weights, pixels)
        with torch.enable_grad():
            features.requires_grad_()
            (feature_gradient,) = torch.autograd.grad(loss(features), features)
        gradient = torch.zeros_like(weights)
        batches = _batches(pixels)
        feature_gradients = feature_gradient.split(len(batches[0]))
        for batch, cotangent in zip(batches, feature_gradients, strict=True):
            with torch.enable_grad():
                leaf = weights.detach().requires_grad_()
                encoded = self._encode(leaf, batch)
            gradient += torch.autograd.grad(encoded, leaf, cotangent)[0]
        return gradient

    def _encode(self, weights: Tensor, pixels: Tensor) -> Tensor:
        parameters = dict(self.module.named_parameters())
        sizes = [parameters[name].numel() for name in self.names]
        replaced = {}
        parts = weights.split(sizes)
        for name, numbers in zip(self.names, parts, strict=True):
            like = parameters[name]
            replaced[name] = numbers.view_as(like).to(like.dtype)
        pixels = pixels.to(self.backend.device, self.backend.dtype)
        return unit_features(functional_call(self.module, replaced, (pixels,)))


def _batches(pixels: Tensor) -> tuple[Tensor, ...]:
    """Split pixels into as many images as the tower takes at once."""
    images_at_once = views_per_pass(pixels.shape[-2:])
    batches: tuple[Tensor, ...] = pixels.split(images_at_once)
    return batches


def check_pixels(method: str, backend: Backend) -> None:
    """Raise `TowerError` if a model takes anything but pixels."""
    try:
        _probe_pixels(backend)
    except TowerError as error:
        raise TowerError(
            f"{method} changes pixels after preprocessing, which {backend.name} does not allow: "
            f"{error}."
        ) from error


def _probe_pixels(backend: Any) -> Tensor:
    """Return pixels of a test image; raise `TowerError` if the model takes anything else."""
    has_preprocess = callable(getattr(backend, "preprocess", None))
    if not has_preprocess or not hasattr(backend, "encode_pixels"):
        raise TowerError(
            "it has no methods `preprocess` and `encode_pixels`", argument="preprocess"
        )
    pixels: Tensor | None = backend.preprocess([probe_image()])
    if pixels is None:
        raise TowerError("it takes patches of any number, not pixels")
    return pixels


def _vision_module(backend: Any) -> nn.Module:
    if getattr(backend, "image_tower", None) is None:
        raise TowerError(
            "there is no method `image_tower` that returns it", argument="image_tower"
        )
    module: nn.Module = backend.image_tower()
    return module


def tuned_weight_names(task: Task, every_weight: bool) -> tuple[str, ...]:
    """Return the weights that image features depend on: all of them, or those of norm layers."""

    def find() -> tuple[str, ...]:
        return _find_weight_names(task.backend, every_weight)

    return task.remember(("tuned weights", every_weight), find)


def _find_weight_names(backend: Any, every_weight: bool) -> tuple[str, ...]:
    tower = _vision_module(backend)
    # The model's own way comes first, because its errors explain what is wrong.
    with takes_images(backend):
        pixels = _probe_pixels(backend)
        expected = unit_features(backend.encode_pixels(pixels))

    # Candidates are all floating-point weights, or those of norm layers.
    layers = set()
    for name, module in tower.named_modules():
        if every_weight or is_norm_layer(module):
            layers.add(name)
    candidates = {}
    for name, weight in tower.named_parameters():
        layer = name.rpartition(".")[0]
        if weight.is_floating_point() and layer in layers:
            candidates[name] = weight.detach().requires_grad_()

    # Of these the weights count whose gradient exists.
    with torch.enable_grad():
        pixels = pixels.to(backend.device, backend.dtype)
        features = functional_call(tower, candidates, (pixels,))
        total = features.sum()
    if not features_agree(unit_features(features.detach()), expected):
        raise TowerError(
            "its features are not those of `encode_pixels`", argument="encode_pixels"
        )
    names: list[str] = []
    if candidates and features.requires_grad:
        leaves = list(candidates.values())
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        for name, gradient in zip(candidates, gradients, strict=True):
            if gradient is not None:
                names.append(name)
    if not names:
        tuned = "weights" if every_weight else "weights of norm layers"
        raise TowerError(f"its features depend on no {tuned}")
    return tuple(names)


def is_norm_layer(module: nn.Module) -> bool:
    """Return whether this is a layer of normalisation with a gain of its own."""
    gain = module._parameters.get("weight")
    has_gain = gain is not None and gain.ndim == 1
    # By its name, because model libraries define norm layers of their own, such as RMSNorm.
    return has_gain and "norm" in type(module).__name__.lower()


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
        """True if all weights of the tower are tuned, not only those of norm layers."""
        return False

    @abstractmethod
    def _gradient(
        self, task: Task, tower: ImageTower, pixels: Tensor, weights: Tensor
    ) -> tuple[Tensor | None, int]:
        """Return the gradient of the loss, and how many views it was computed from.

        Args:
            task: the text side.
            tower: the vision tower.
            pixels: ``[views, 3, height, width]``, view 0 being the image.
            weights: ``[numbers]``, where the gradient is computed.

        Returns:
            The gradient, ``[numbers]``, or None if no view is certain enough to learn from; and
            the number of views.
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
        tower = ImageTower.from_task(task, self._tunes_every_weight)
        zero_shot = vision.features(images, False)
        features = []
        descents = []
        views_kept = []
        for image, zero_shot_features in zip(images, zero_shot, strict=True):
            pixels = vision.pixels(image)
            pixels = pixels.to(task.backend.device, task.backend.dtype)
            tuned_features, descent, n_views = self._tune(
                task, tower, pixels, zero_shot_features
            )
            features.append(tuned_features)
            descents.append(descent)
            views_kept.append(n_views)
        answered = torch.stack(features)
        rates = [descent.learning_rate.to(tower.start) for descent in descents]
        return Outcome(
            probabilities(task, answered, task.target_features),
            {
                attribute: probabilities(task, answered, texts)
                for attribute, texts in task.sensitive_features.items()
            },
            learning_rate=torch.cat(rates),
            relative_step=torch.cat([descent.relative_step for descent in descents]),
            views_kept=torch.tensor(views_kept, device="cpu"),
            flags=_join_flags([descent.flags for descent in descents]),
        )

    def _tune(
        self, task: Task, tower: ImageTower, pixels: Tensor, zero_shot: Tensor
    ) -> tuple[Tensor, Descent, int]:
        """Tune the weights to one image.

        Args:
            task: the text side.
            tower: the vision tower.
            pixels: ``[views, 3, height, width]``, view 0 being the image.
            zero_shot: ``[1, dim]``, features of the image with the model's own weights.

        Returns:
            Features of the image with the tuned weights, ``[1, dim]``; the steps; and the number of
            views that the first step learned from.
        """
        # `descend` works on contexts: the weights are one image's context of one vector.
        start = tower.start[None, None]
        view_counts: list[int] = []

        def gradients(weights: Tensor) -> tuple[Tensor, Tensor] | None:
            gradient, n_views = self._gradient(task, tower, pixels, weights.flatten())
            view_counts.append(n_views)
            if gradient is None:
                return None
            # The objective has one term, so its gradient is the target's too.
            return gradient.view_as(start), gradient.view_as(start)

        def gradients_at(points: Tensor) -> Tensor:
            """Return the gradients at other weights, for policies such as ELRA."""
            at_points = []
            for weights in points:
                pair = gradients(weights)
                at_points.append(torch.zeros_like(start) if pair is None else pair[0])
            return torch.stack(at_points)

        descent = descend(self.rate, self.steps, start, gradients, gradients_at)
        if not view_counts:  # no step was wanted
            return zero_shot, descent, len(pixels)
        if descent.context is start:
            flags = {NO_VIEW_PASSED: torch.tensor([True], device="cpu")}
            return zero_shot, replace(descent, flags=flags), view_counts[0]
        tuned = tower.encode(descent.context.flatten(), pixels[:1])
        return tuned, descent, view_counts[0]


def _join_flags(flags_of_images: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return ``{sentence: [1]}`` of each image as ``{sentence: [images]}``."""
    joined = {}
    for flags in flags_of_images:
        for sentence, flag in flags.items():
            if sentence not in joined:
                absent = torch.zeros_like(flag)
                parts = [image.get(sentence, absent) for image in flags_of_images]
                joined[sentence] = torch.cat(parts)
    return joined
