"""Size and normalisation of a model's input, so that views go past its own preprocessing."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from PIL import Image
from torch import Tensor

from fair_tta.images._augment import Size

_Colour: TypeAlias = tuple[int, int, int]

_PROBE_EDGE = 96  # of the images that show what preprocessing does, in pixels
# Colours of the left and right halves of two images, which distinguish channels and shades.
_PROBE_COLOURS: tuple[tuple[_Colour, _Colour], ...] = (
    ((200, 30, 60), (20, 180, 90)),
    ((128, 128, 128), (60, 60, 220)),
)
_MAX_UNEVENNESS = 1e-4  # of an image of one colour after preprocessing: rounding only


class PixelSpec:
    """Size and normalisation of a model's input, read off what its own preprocessing does."""

    def __init__(self, size: Size, gain: Tensor, shift: Tensor) -> None:
        self.size = size
        self._gain = gain
        self._shift = shift

    @classmethod
    def from_backend(cls, backend: Any) -> PixelSpec | None:
        """Return None if the model has no fixed size or does not normalise by channel."""
        preprocess = getattr(backend, "preprocess", None)
        if preprocess is None or not hasattr(backend, "encode_pixels"):
            return None
        square = (_PROBE_EDGE, _PROBE_EDGE)
        oblong = (_PROBE_EDGE, _PROBE_EDGE * 2 // 3)
        black = preprocess([Image.new("RGB", square, "black")])
        white = preprocess([Image.new("RGB", square, "white")])
        oblong_black = preprocess([Image.new("RGB", oblong, "black")])
        if black is None or black.shape != oblong_black.shape:
            return None

        # Black and white give shift and gain of each channel, if they stay images of one colour.
        low = black[0].float().flatten(1)
        high = white[0].float().flatten(1)
        unevenness = _unevenness(low) + _unevenness(high)
        if unevenness > _MAX_UNEVENNESS:
            return None
        height, width = black.shape[-2:]
        shift = low[:, 0]
        gain = (high[:, 0] - shift) / 255
        spec = cls((height, width), gain, shift)

        # Other colours show whether channels are mixed or swapped, or shades are not linear.
        probes = [_two_halves(*colours) for colours in _PROBE_COLOURS]
        return spec if spec._explains(preprocess(probes)) else None

    def _explains(self, pixels: Tensor) -> bool:
        """Return whether the outer columns of the probe images have the colours expected."""
        colours = torch.tensor(
            _PROBE_COLOURS, dtype=torch.float32, device=pixels.device
        )  # [images, 2, 3]
        expected = self._shift + colours * self._gain
        outer = pixels.float()[..., [0, -1]].permute(0, 2, 3, 1)  # [images, h, 2, 3]
        quarter_of_a_level = self._gain.abs().max() / 4
        return bool(((outer - expected[:, None]).abs() <= quarter_of_a_level).all())

    def normalise(self, levels: Tensor, out: Tensor | None = None) -> Tensor:
        """Return levels ``[..., 3, height, width]`` from 0 to 255 as the model's input."""
        # One transfer to the device for both.
        shift_and_gain = torch.stack([self._shift, self._gain])[..., None, None]
        shift, gain = shift_and_gain.to(levels.device)
        return torch.addcmul(shift, levels, gain, out=out)


def _unevenness(channels: Tensor) -> float:
    """Return how far pixels ``[channels, n]`` are from the first one of their channel."""
    return float((channels - channels[:, :1]).abs().max())


def _two_halves(left_colour: _Colour, right_colour: _Colour) -> Image.Image:
    image = Image.new("RGB", (_PROBE_EDGE, _PROBE_EDGE), left_colour)
    image.paste(right_colour, (_PROBE_EDGE // 2, 0, _PROBE_EDGE, _PROBE_EDGE))
    return image
