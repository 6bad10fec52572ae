"""Features of the patches of an image, of vision towers that have them."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor

from fair_tta._models.borrow import made_once, untouched
from fair_tta.errors import TowerError

_SAME = 0.02  # of the length of features: half precision differs by less


class PatchTower:
    """A backend whose vision tower may be a transformer over patches.

    Its ``_project_tokens(pixels)`` treats the class token and each patch as if it were the image's,
    ``[images, 1 + patches, dim]``, or returns None.
    """

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
        with untouched(self.model), torch.no_grad():
            tokens: Tensor = self._project_tokens(pixels.to(self.device, self.dtype))
        return tokens[:, 1:]

    @property
    @made_once
    def _has_patches(self: Any) -> bool:
        pixels = self.preprocess([Image.linear_gradient("L").convert("RGB")])
        if pixels is None:
            return False
        with untouched(self.model), torch.no_grad():
            tokens = self._project_tokens(pixels.to(self.device, self.dtype))
        if tokens is None or tokens.ndim != 3:
            return False
        own = self.encode_pixels(pixels).float()
        pooled = tokens[:, 0].float(), tokens[:, 1:].float().mean(1)
        return any(bool((own - one).norm() <= _SAME * own.norm()) for one in pooled)
