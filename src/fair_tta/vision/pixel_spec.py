"""What a model's own preprocessing makes of pixels, so that views can be made in bulk."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor


class PixelSpec:
    """Size and normalisation of a model's input, read off what its own preprocessing does."""

    def __init__(self, size: tuple[int, int], gain: Tensor, shift: Tensor) -> None:
        self.size = size
        self._gain = gain
        self._shift = shift

    @classmethod
    def of(cls, backend: Any) -> PixelSpec | None:
        """None if the model has no fixed size or does not normalise channel by channel."""
        preprocess = getattr(backend, "preprocess", None)
        if preprocess is None or not hasattr(backend, "encode_pixels"):
            return None
        black, white, wide = (
            preprocess([Image.new("RGB", size, colour)])
            for size, colour in (((96, 96), "black"), ((96, 96), "white"), ((96, 64), "black"))
        )
        if black is None or black.shape != wide.shape:
            return None
        low, high = black[0].float().flatten(1), white[0].float().flatten(1)
        if float((low - low[:, :1]).abs().max() + (high - high[:, :1]).abs().max()) > 1e-4:
            return None
        height, width = black.shape[-2:]
        return cls((height, width), (high[:, 0] - low[:, 0]) / 255, low[:, 0])

    def normalise(self, arrays: npt.NDArray[np.float32], out: Tensor) -> None:
        """``[..., height, width, 3]`` from 0 to 255 -> ``[..., 3, height, width]``."""
        pixels = torch.from_numpy(arrays).movedim(-1, -3)
        torch.addcmul(self._shift[:, None, None], pixels, self._gain[:, None, None], out=out)

    def normalised(self, levels: Tensor) -> Tensor:
        """The same for levels ``[..., 3, height, width]`` on any device."""
        shift, gain = torch.stack([self._shift, self._gain])[..., None, None].to(levels.device)
        return torch.addcmul(shift, levels, gain)
