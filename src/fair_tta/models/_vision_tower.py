"""Vision towers of any library: features of images, of pixels and of patches."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from PIL import Image
from torch import Tensor, nn

from fair_tta.errors import TowerError
from fair_tta.models._model_lock import computed_once, eval_mode_lock
from fair_tta.models._twin import image_twin
from fair_tta.models._weights import advise_on_error

_MAX_HALF_PRECISION_ERROR = 0.02  # of the length of features


def features_resemble(features: Tensor, expected: Tensor) -> bool:
    """Return whether features differ by no more than half precision; False if one is NaN."""
    difference = (features - expected).norm()
    return bool(difference <= _MAX_HALF_PRECISION_ERROR * expected.norm())


class VisionTower(ABC):
    """The vision side of a backend. Subclasses call the model in the way of its library."""

    model: Any
    _compiled: Callable[..., Tensor] | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the model in messages."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device of the weights."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Dtype in which images are passed to the model."""

    @abstractmethod
    def _preprocess(self, images: Sequence[Image.Image]) -> dict[str, Tensor]:
        """Return the arguments of `_call_tower` for images, with the key ``pixel_values``."""

    @staticmethod
    @abstractmethod
    def _call_tower(model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Return features ``[images, dim]``."""

    @abstractmethod
    def _project_tokens(self, pixels: Tensor) -> Tensor | None:
        """Return class token and patches, each projected as if it were the image's feature.

        ``[images, 1 + patches, dim]``, or None if the tower is not built that way.
        """

    def encode_images(self, images: Sequence[Image.Image]) -> Tensor:
        """Return features by the model's own preprocessing and vision tower."""
        return self._encode(self._preprocess(images))

    def preprocess(self, images: Sequence[Image.Image]) -> Tensor | None:
        """Return pixels ``[images, 3, height, width]``, the model's input.

        None if its input is something else: SigLIP 2 takes patches of any number.
        """
        inputs = self._preprocess(images)
        pixels = inputs["pixel_values"]
        # Further inputs, such as masks, could not be made for views that are drawn as pixels.
        return pixels if len(inputs) == 1 and pixels.ndim == 4 else None

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """Return features of preprocessed pixels."""
        return self._encode({"pixel_values": pixels})

    def image_tower(self) -> nn.Module:
        """Return the vision tower, from pixels to features, with modules of its own."""
        call_tower = self._call_tower
        return image_twin(
            self.model,
            lambda model, pixels: call_tower(model, {"pixel_values": pixels}),
        )

    def with_compiled_vision(self) -> Self:
        """Return a copy with a compiled vision tower; the model itself does not change."""
        model = self.model
        call_tower = self._call_tower
        compiled = copy.copy(self)
        compiled._compiled = torch.compile(lambda **inputs: call_tower(model, inputs))
        return compiled

    def encode_patches(self, pixels: Tensor) -> Tensor:
        """Return features of patches in the text's space, row by row: ``[images, patches, dim]``.

        They are the last layer after the tower's own layer norm and projection.

        Raises:
            TowerError: the vision tower has no such features. An image checks it: the class token,
                or the mean of the patches, has to be the tower's own feature.
        """
        tokens = self._tokens(pixels) if self._has_patches else None
        if tokens is None:
            raise TowerError(
                f"the vision tower of {self.name} has no features of patches that its projection "
                "takes: only vision transformers have, with a class token or a mean of patches."
            )
        return tokens[:, 1:]

    def _encode(self, inputs: dict[str, Tensor]) -> Tensor:
        # Positions and masks are integers and keep their dtype.
        moved = {}
        for key, tensor in inputs.items():
            dtype = self.dtype if tensor.is_floating_point() else None
            moved[key] = tensor.to(self.device, dtype)
        with (
            eval_mode_lock(self.model, exclusive=False),
            torch.no_grad(),
            advise_on_error(self.model, f"the vision tower of {self.name}"),
        ):
            if self._compiled is not None:
                return self._compiled(**moved)
            return self._call_tower(self.model, moved)

    def _tokens(self, pixels: Tensor) -> Tensor | None:
        with eval_mode_lock(self.model), torch.no_grad():
            return self._project_tokens(pixels.to(self.device, self.dtype))

    @property
    @computed_once
    def _has_patches(self) -> bool:
        """True if the tower's own feature is the class token or the mean of its patches."""
        # A gradient, so that patches differ: of a plain image every token might be the feature.
        pixels = self.preprocess([Image.linear_gradient("L").convert("RGB")])
        tokens = None if pixels is None else self._tokens(pixels)
        if pixels is None or tokens is None or tokens.ndim != 3:
            return False
        feature = self.encode_pixels(pixels).float()
        class_token = tokens[:, 0].float()
        patch_mean = tokens[:, 1:].float().mean(1)
        return features_resemble(class_token, feature) or features_resemble(
            patch_mean, feature
        )
