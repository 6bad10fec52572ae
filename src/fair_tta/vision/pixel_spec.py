"""What a model's own preprocessing makes of pixels, so that views can be made in bulk."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

_PROBE_EDGE = 96  # of the pictures that show what preprocessing does
_HALVES = (((200, 30, 60), (20, 180, 90)), ((128, 128, 128), (60, 60, 220)))
"""Colours of left and right halves, which tell apart channels and shades."""


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
        square, flat = (_PROBE_EDGE, _PROBE_EDGE), (_PROBE_EDGE, _PROBE_EDGE * 2 // 3)
        black, white, wide = (
            preprocess([Image.new("RGB", size, colour)])
            for size, colour in ((square, "black"), (square, "white"), (flat, "black"))
        )
        if black is None or black.shape != wide.shape:
            return None
        low, high = black[0].float().flatten(1), white[0].float().flatten(1)
        if float((low - low[:, :1]).abs().max() + (high - high[:, :1]).abs().max()) > 1e-4:
            return None
        height, width = black.shape[-2:]
        spec = cls((height, width), (high[:, 0] - low[:, 0]) / 255, low[:, 0])
        return spec if spec._fits(preprocess(list(map(_picture, _HALVES)))) else None

    def _fits(self, seen: Tensor) -> bool:
        """Whether the outer columns of pictures of two halves have the colours they should have.

        They have not where channels are mixed or swapped, or shades bent.
        """
        colours = torch.tensor(_HALVES, dtype=torch.float32, device=seen.device)  # [pictures, 2, 3]
        expected = self._shift + colours * self._gain
        outer = seen.float()[..., [0, -1]].permute(0, 2, 3, 1)  # [pictures, height, 2, 3]
        a_quarter_of_a_shade = self._gain.abs().max() / 4
        return bool(((outer - expected[:, None]).abs() <= a_quarter_of_a_shade).all())

    def normalise(self, arrays: npt.NDArray[np.float32], out: Tensor) -> None:
        """``[..., height, width, 3]`` from 0 to 255 -> ``[..., 3, height, width]``."""
        pixels = torch.from_numpy(arrays).movedim(-1, -3)
        torch.addcmul(self._shift[:, None, None], pixels, self._gain[:, None, None], out=out)

    def normalised(self, levels: Tensor) -> Tensor:
        """The same for levels ``[..., 3, height, width]`` on any device."""
        shift, gain = torch.stack([self._shift, self._gain])[..., None, None].to(levels.device)
        return torch.addcmul(shift, levels, gain)


def _picture(halves: tuple[tuple[int, int, int], ...]) -> Image.Image:
    left, right = halves
    picture = Image.new("RGB", (_PROBE_EDGE, _PROBE_EDGE), left)
    picture.paste(right, (_PROBE_EDGE // 2, 0, _PROBE_EDGE, _PROBE_EDGE))
    return picture
