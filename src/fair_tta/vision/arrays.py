"""Arrays and tensors of all kinds as pictures."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from fair_tta.errors import ImageError

_Array: TypeAlias = npt.NDArray[Any]

_CHANNELS = (1, 2, 3, 4)  # grey, grey + alpha, RGB, RGB + alpha
_TOLERANCE = 1e-3  # how far floats may overshoot 0..1: under half a level, so rounding clips it


def from_array(pixels: _Array, what: str, *, channels_first: bool) -> Image.Image:
    """An RGB picture of an array; `what` is for messages."""
    if pixels.ndim > 3:
        raise ImageError(f"{what} is a batch: pass a list of images, as in list(batch)")
    if pixels.ndim < 2:
        raise ImageError(f"{what} is not an image: an image has 2 axes (HW) or 3 (HWC or CHW)")
    if pixels.size == 0:
        raise ImageError(f"{what} has no pixels")
    if pixels.ndim == 3:
        first, last = pixels.shape[0] in _CHANNELS, pixels.shape[2] in _CHANNELS
        if not (first or last):
            raise ImageError(f"{what} has no channel axis: the first or last must be 1, 2, 3 or 4")
        if first and (channels_first or not last):
            pixels = np.moveaxis(pixels, 0, 2)
        pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., 0]  # drops alpha
    return Image.fromarray(to_uint8(pixels, what)).convert("RGB")


def to_uint8(pixels: _Array, what: str, *, from_pil: bool = False) -> _Array:
    """Pixels as 0..255. PIL's modes I and F do not tell their range, so there it is guessed."""
    dtype = pixels.dtype
    if dtype == np.uint8:
        return pixels
    if dtype.kind == "b":
        return _round(pixels * 255)
    if dtype.kind == "u" and dtype.itemsize == 2:
        return _halve_depth(pixels)
    if dtype.kind not in "iuf":
        raise ImageError(f"{what} does not hold pixels: its dtype must be bool, integer or float")

    is_float = dtype.kind == "f"
    with np.errstate(invalid="ignore"):
        low, high = float(pixels.min()), float(pixels.max())  # nan if there is one
    if is_float and low >= -_TOLERANCE and high <= 1 + _TOLERANCE:
        return _round(pixels.astype(np.float32) * 255)
    if low >= 0 and high <= 255 and (from_pil or not is_float):
        return _round(pixels)
    if low >= 0 and high <= 65535 and from_pil and not is_float:
        return _halve_depth(pixels)

    if not (math.isfinite(low) and math.isfinite(high)):
        hint = "values must be finite"
    elif from_pil:
        hint = f"rescale them to {'0..1 or 0..255' if is_float else '0..255 or 0..65535'}"
    elif not is_float:
        hint = "integers must be in 0..255, or be uint16 if the pixels are 16-bit"
    elif low >= 0 and high <= 255:
        hint = "floats must be in 0..1; pass 0..255 pixels as uint8, or divide them by 255"
    else:
        hint = "floats must be in 0..1; pass the picture's pixels, not a normalised tensor"
    raise ImageError(f"{what} has values from {low:g} to {high:g}: {hint}")


def _round(pixels: _Array) -> _Array:
    return np.asarray(np.rint(pixels), dtype=np.uint8)


def _halve_depth(pixels: _Array) -> _Array:
    """16 bits to 8, rounded: 257 k becomes k."""
    return np.asarray((pixels.astype(np.uint32) + 128) // 257, dtype=np.uint8)


def to_numpy(tensor: torch.Tensor, what: str) -> _Array:
    """The values of a tensor; `what` is for messages."""
    if tensor.is_nested:
        raise ImageError(f"{what} is a batch: pass a list of images, as in list(batch)")
    try:
        if tensor.is_floating_point() and tensor.dtype != torch.float64:
            tensor = tensor.float()  # numpy has no bfloat16
        return tensor.numpy(force=True)  # from any device, with or without gradient
    except (RuntimeError, TypeError) as error:
        raise ImageError(f"{what} has no values to read ({error}): pass a dense tensor") from error
