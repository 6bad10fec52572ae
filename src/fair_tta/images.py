"""One way in for pictures: what the user holds becomes an upright RGB image, or an ImageError."""

from __future__ import annotations

import contextlib
import io
import math
import os
import warnings
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, UnidentifiedImageError

from fair_tta.errors import ImageError

_Array: TypeAlias = npt.NDArray[Any]
_Bytes: TypeAlias = bytes | bytearray | memoryview
ImageInput: TypeAlias = (
    Image.Image | str | os.PathLike[str] | _Bytes | IO[bytes] | _Array | torch.Tensor
)

_CHANNELS = (1, 2, 3, 4)  # grey, grey + alpha, RGB, RGB + alpha
_TOLERANCE = 1e-3  # how far floats may overshoot 0..1: under half a level, so rounding clips it
_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def load_image(image: ImageInput) -> Image.Image:
    """Returns `image` as a new RGB picture, EXIF orientation applied; the input is not changed.

    Takes a PIL image, a path, the bytes of an image file, a binary file object (read from its
    start), a numpy array or a torch tensor. Anything that cannot be read raises ImageError.

    * Eight-bit pictures come out as `.convert("RGB")` gives them: alpha is dropped, not blended.
    * Deep grey pictures are scaled, where PIL would clip them to white. I;16: 65535 becomes 255.
      I: 0..255 is kept, up to 65535 is taken as 16-bit. F: 0..1, or else 0..255.
    * Of a file with several frames the first is read; of a PIL image, the frame it is at.
    * Arrays are HW, HWC or CHW with 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha) channels.
      If both ends could be the channels, as in 3x5x3, numpy is read as HWC and torch as CHW.
    * Array values: bool, uint8, uint16 (65535 becomes 255), other integers in 0..255, or floats
      in 0..1. Other floats are refused: they mean a normalised tensor or unscaled pixels.
    * Files above `PIL.Image.MAX_IMAGE_PIXELS` are refused; a PIL image you opened yourself is not.
    """
    if isinstance(image, os.PathLike):
        image = os.fsdecode(image)
    what = _describe(image)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\b")  # all of PIL's, no one else's
            if isinstance(image, Image.Image):
                return _from_pil(image, what)
            if isinstance(image, torch.Tensor):
                return _from_array(_to_numpy(image, what), what, channels_first=True)
            if isinstance(image, np.ndarray):
                return _from_array(np.asarray(image), what, channels_first=False)
            if isinstance(image, str):
                if image.lower().startswith(("http://", "https://")):
                    raise ImageError(f"{what} is a URL: download it first, then pass its path")
                with open(image, "rb") as file:
                    return _from_file(file, what)
            if isinstance(image, _Bytes):
                return _from_file(io.BytesIO(bytes(image)), what)
            if callable(getattr(image, "read", None)):
                return _from_file(io.BytesIO(_read(image, what)), what)
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # on broken data PIL may raise nearly anything
        raise ImageError(f"cannot read {what}: {_explain(error)}") from error
    raise ImageError(
        f"{what} is not an image: pass a PIL image, a path (str or PathLike), the bytes of an "
        "image file, a binary file object, a numpy array or a torch tensor"
    )


def is_single_image(value: object) -> bool:
    """True for one image of a kind `load_image` takes, False for a batch or anything else."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.ndim <= 3
    if isinstance(value, Image.Image | str | os.PathLike | _Bytes):
        return True
    return callable(getattr(value, "read", None))


def _from_file(file: IO[bytes], what: str) -> Image.Image:
    try:
        picture = Image.open(file)
    except UnidentifiedImageError as error:
        if file.seek(0, os.SEEK_END) == 0:
            raise ImageError(f"cannot read {what}: it is empty (0 bytes). Get it again") from error
        raise
    with picture:
        limit = Image.MAX_IMAGE_PIXELS  # PIL itself only warns up to twice the limit
        if limit is not None and picture.width * picture.height > limit:
            size = f"{picture.width} x {picture.height}"
            raise Image.DecompressionBombError(f"{size} pixels exceed the limit of {limit}.")
        return _from_pil(picture, what)


def _from_pil(picture: Image.Image, what: str) -> Image.Image:
    if 0 in picture.size:
        raise ImageError(f"{what} has no pixels: its size is {picture.width} x {picture.height}")
    picture.load()
    try:
        turn = _TURNS.get(picture.getexif().get(_ORIENTATION, 1))
    except MemoryError:
        raise
    except Exception:  # unreadable EXIF is no reason to refuse readable pixels
        turn = None
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        plain = Image.fromarray(_to_uint8(np.asarray(picture), what, from_pil=True))
    else:
        plain = picture.copy()
    plain.info = {}  # else PIL warns of transparency, and the next reader would turn it again
    if plain.mode == "La":
        plain = plain.convert("LA")  # PIL has no direct way from La to RGB
    rgb = plain if plain.mode == "RGB" else plain.convert("RGB")
    return rgb if turn is None else rgb.transpose(turn)


def _from_array(pixels: _Array, what: str, *, channels_first: bool) -> Image.Image:
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
    return Image.fromarray(_to_uint8(pixels, what)).convert("RGB")


def _to_uint8(pixels: _Array, what: str, *, from_pil: bool = False) -> _Array:
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


def _to_numpy(tensor: torch.Tensor, what: str) -> _Array:
    try:
        if tensor.is_floating_point() and tensor.dtype != torch.float64:
            tensor = tensor.float()  # numpy has no bfloat16
        return tensor.numpy(force=True)  # from any device, with or without gradient
    except (RuntimeError, TypeError) as error:
        raise ImageError(f"{what} has no values to read ({error}): pass a dense tensor") from error


def _read(file: Any, what: str) -> bytes:
    with contextlib.suppress(AttributeError, OSError):  # a stream has only what is left of it
        file.seek(0)
    data = file.read()
    if not isinstance(data, _Bytes):
        raise ImageError(f"{what} gives {type(data).__name__}, not bytes: open it in binary mode")
    return bytes(data)


def _describe(image: object) -> str:
    if isinstance(image, str):
        return repr(image[:500])
    if isinstance(image, _Bytes):
        return f"bytes of length {memoryview(image).nbytes}"
    if isinstance(image, np.ndarray | torch.Tensor):
        kind = "array" if isinstance(image, np.ndarray) else "tensor"
        return f"{kind} of shape {tuple(image.shape)} and dtype {image.dtype}"
    if isinstance(image, Image.Image):
        path = getattr(image, "filename", "")
        return f"PIL image {os.fsdecode(path)!r}" if path else f"PIL image of mode {image.mode}"
    path = getattr(image, "name", None) if hasattr(image, "read") else None
    return f"{type(image).__name__} {path!r}" if isinstance(path, str) else type(image).__name__


def _explain(error: Exception) -> str:
    """The reason, and what to do about it."""
    if isinstance(error, FileNotFoundError):
        return "no such file. Check the path and the working directory"
    if isinstance(error, IsADirectoryError):
        return "it is a directory. Pass the image files in it"
    if isinstance(error, PermissionError):
        return "permission denied. Make it a file that this user may read"
    if isinstance(error, Image.DecompressionBombError):
        return f"{error} Shrink it, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
    if isinstance(error, UnidentifiedImageError):
        return "not an image format that PIL knows, or damaged. Convert it to PNG, or get it again"
    reason = getattr(error, "strerror", None) or error
    return f"{reason} ({type(error).__name__}). If it is damaged or cut short, get it again"
