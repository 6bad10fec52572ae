"""The image side of a backend: images, pixels and patches to features, whatever the library."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from fair_tta._models.borrow import explained, image_twin, made_once, untouched
from fair_tta.errors import TowerError

_SAME = 0.02  # of the length of features: half precision differs by less


class VisionTower:
    """The image encoder of a backend. A subclass says how its library is called.

    ``_inputs(images)`` is what the model's own preprocessing makes of images, with the key
    ``pixel_values``; ``_features(model, inputs)`` are its features of that; and
    ``_project_tokens(pixels)`` treats the class token and each patch as if it were the image's,
    ``[images, 1 + patches, dim]``, or returns None.
    """

    _compiled: Any = None

    def encode_images(self: Any, images: Sequence[Image.Image]) -> Tensor:
        """Features from the model's own preprocessing and vision tower."""
        features: Tensor = self._encode(self._inputs(images))
        return features

    def preprocess(self: Any, images: Sequence[Image.Image]) -> Tensor | None:
        """Pixels ``[images, 3, height, width]`` as the model wants them.

        None if it wants something else, as SigLIP 2 does, which takes patches of any number.
        """
        inputs: dict[str, Tensor] = self._inputs(images)
        pixels = inputs["pixel_values"]
        return pixels if len(inputs) == 1 and pixels.ndim == 4 else None

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Features of preprocessed pixels."""
        features: Tensor = self._encode({"pixel_values": pixels})
        return features

    def image_tower(self: Any) -> nn.Module:
        """The vision tower with modules of its own, pixels to features."""
        call = self._features
        return image_twin(self.model, lambda model, pixels: call(model, {"pixel_values": pixels}))

    def with_compiled_vision(self: Any) -> Any:
        """The same with a compiled vision tower; the model itself stays as it is."""
        other, model, call = copy.copy(self), self.model, self._features
        other._compiled = torch.compile(lambda **inputs: call(model, inputs))
        return other

    def _encode(self: Any, inputs: dict[str, Tensor]) -> Any:
        inputs = {
            key: value.to(self.device, self.dtype if value.is_floating_point() else None)
            for key, value in inputs.items()
        }
        tower = f"the vision tower of {self.name}"
        with untouched(self.model, alone=False), torch.no_grad(), explained(self.model, tower):
            run = self._compiled
            return self._features(self.model, inputs) if run is None else run(**inputs)

    def encode_patches(self: Any, pixels: Tensor) -> Tensor:
        """Features of patches in the space of the text's, row by row: ``[images, patches, dim]``.

        Raises `TowerError` if the vision tower has none. They are what its last layer norm and its
        projection make of the last layer, which an image checks: the class token, or the mean of
        the patches, has to be the tower's own feature.
        """
        if not self._has_patches:
            raise TowerError(
                f"the vision tower of {self.name} has no features of patches that its projection "
                "takes: only vision transformers have, with a class token or a mean of patches."
            )
        tokens: Tensor = self._tokens(pixels)
        return tokens[:, 1:]

    def _tokens(self: Any, pixels: Tensor) -> Any:
        with untouched(self.model), torch.no_grad():
            return self._project_tokens(pixels.to(self.device, self.dtype))

    @property
    @made_once
    def _has_patches(self) -> bool:
        pixels = self.preprocess([Image.linear_gradient("L").convert("RGB")])
        tokens = None if pixels is None else self._tokens(pixels)
        if pixels is None or tokens is None or tokens.ndim != 3:
            return False
        own = self.encode_pixels(pixels).float()
        pooled = tokens[:, 0].float(), tokens[:, 1:].float().mean(1)
        return any(bool((own - one).norm() <= _SAME * own.norm()) for one in pooled)
