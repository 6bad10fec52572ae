"""One way in for pictures: what the user holds becomes an upright RGB image, or an ImageError."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, UnidentifiedImageError

from fair_tta.backends.guard import quiet
from fair_tta.errors import ImageError
from fair_tta.vision.arrays import from_array, to_numpy, to_uint8
from fair_tta.vision.complaints import describe, explain
from fair_tta.vision.files import open_file

_Bytes: TypeAlias = bytes | bytearray | memoryview
ImageInput: TypeAlias = (
    Image.Image | str | os.PathLike[str] | _Bytes | IO[bytes] | npt.NDArray[Any] | torch.Tensor
)

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
    * Paths of pipes, sockets and devices are refused, as reading them may never end; so are EPS
      files, which are programs.
    """
    if isinstance(image, os.PathLike):
        image = os.fsdecode(image)
    what = describe(image)
    try:
        with quiet(r"PIL\b"):  # all of PIL's, no one else's
            if isinstance(image, Image.Image):
                return _from_pil(image, what)
            if isinstance(image, torch.Tensor):
                return from_array(to_numpy(image, what), what, channels_first=True)
            if isinstance(image, np.ndarray):
                return from_array(np.asarray(image), what, channels_first=False)
            if isinstance(image, str):
                if image.lower().startswith(("http://", "https://")):
                    raise ImageError(f"{what} is a URL: download it first, then pass its path")
                with open_file(image) as file:
                    return _from_file(file, what)
            if isinstance(image, _Bytes):
                return _from_file(io.BytesIO(bytes(image)), what)
            if callable(getattr(image, "read", None)):
                return _from_file(io.BytesIO(_read(image, what)), what)
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # on broken data PIL may raise nearly anything
        raise ImageError(f"cannot read {what}: {explain(error)}") from error
    if isinstance(image, Mapping):
        raise ImageError(
            f"a row with the columns {[str(key) for key in image][:8]} is not an image: pass the "
            'column of the pictures, such as dataset["image"]'
        )
    raise ImageError(
        f"{what} is not an image: pass a PIL image, a path (str or PathLike), the bytes of an "
        "image file, a binary file object, a numpy array or a torch tensor"
    )


def is_single_image(value: object) -> bool:
    """True for one image of a kind `load_image` takes, False for a batch or anything else."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.ndim <= 3 and not getattr(value, "is_nested", False)
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
        if picture.format == "EPS":
            raise ImageError(f"cannot read {what}: EPS files are programs. Convert it to PNG")
        limit = Image.MAX_IMAGE_PIXELS  # PIL itself only warns up to twice the limit
        for width, height in (picture.size, _tile_size(picture)):
            if limit is not None and width * height > limit:
                size = f"{width} x {height}"
                raise Image.DecompressionBombError(f"{size} pixels exceed the limit of {limit}.")
        return _from_pil(picture, what)


def _tile_size(picture: Image.Image) -> tuple[int, int]:
    """Of a TIFF file: its tiles may be larger than the picture, and are decoded as a whole."""
    tags = getattr(picture, "tag_v2", {})
    width, height = (tags.get(tag) for tag in (322, 323))
    return (width, height) if isinstance(width, int) and isinstance(height, int) else (0, 0)


def _from_pil(picture: Image.Image, what: str) -> Image.Image:
    if 0 in picture.size:
        raise ImageError(f"{what} has no pixels: its size is {picture.width} x {picture.height}")
    picture.load()
    try:
        turn = _TURNS.get(picture.getexif().get(_ORIENTATION, 1))
    except (MemoryError, Warning):
        raise
    except Exception:  # unreadable EXIF is no reason to refuse readable pixels
        turn = None
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        plain = Image.fromarray(to_uint8(np.asarray(picture), what, from_pil=True))
    else:
        plain = picture.copy()
    plain.info = {}  # else PIL warns of transparency, and the next reader would turn it again
    if plain.mode == "La":
        plain = plain.convert("LA")  # PIL has no direct way from La to RGB
    rgb = plain if plain.mode == "RGB" else plain.convert("RGB")
    return rgb if turn is None else rgb.transpose(turn)


def _read(file: Any, what: str) -> bytes:
    with contextlib.suppress(AttributeError, OSError):  # a stream has only what is left of it
        file.seek(0)
    data = file.read()
    if not isinstance(data, _Bytes):
        raise ImageError(f"{what} gives {type(data).__name__}, not bytes: open it in binary mode")
    return bytes(data)
