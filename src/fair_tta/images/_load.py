"""Turn what the user holds into an upright RGB image, or raise `ImageError`."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping, Sized
from hashlib import blake2b
from typing import IO, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, UnidentifiedImageError
from tqdm.auto import tqdm

from fair_tta._io import NotRegularError, open_file
from fair_tta.errors import ImageError
from fair_tta.images._stored import StoredFeature
from fair_tta.models._model_lock import ignore_warnings_of

_Array: TypeAlias = npt.NDArray[Any]
_Bytes: TypeAlias = bytes | bytearray | memoryview
ImageInput: TypeAlias = (
    Image.Image
    | str
    | os.PathLike[str]
    | _Bytes
    | IO[bytes]
    | npt.NDArray[Any]
    | torch.Tensor
    | StoredFeature
)

_CHANNELS = (1, 2, 3, 4)  # grey, grey + alpha, RGB, RGB + alpha
_TOLERANCE = (
    1e-3  # how far floats may overshoot 0..1: under half a level, so rounding clips it
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
MAX_ENLARGED_PIXELS = 2**24
"""Pixels that preprocessing may make of an image by enlarging it: as many as a photo has."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")
MAX_IMAGE_BYTES = 2**29  # twice what PIL's limit of pixels takes in RGB
# What PIL may read, at most, before an image's size is known; its time may be quadratic in it.
_MOST_METADATA, _MOST_PARTS = 2**23, 10_000
_MOST_EXIF = 2**17  # of which PIL may make 0.4 GB, as each tag may have the same bytes
_MOST_READS = 2**19  # of pixels: some decoders are written in Python
_MOST_SCANNED = 2**32  # pixels of a JPEG, counted once for each of its scans
_SCAN = b"\xff\xda"
_PIXELS_AT_ONCE = 2**22  # of which bytes are made


class _NotAnImageError(Exception):
    """The message continues a sentence that begins with a description of the input."""


class LimitedFile(io.BufferedReader):
    """A file that ends with an error before it keeps PIL busy for minutes."""

    metadata, parts, scanned, pixels = _MOST_METADATA, _MOST_PARTS, _MOST_SCANNED, 0
    exif = _MOST_EXIF

    def read(self, size: int | None = -1, /) -> bytes:
        # takes memory for what is there only: a damaged JPEG 2000 may ask for exabytes
        data = super().read(None if size is None or size > 2**30 else size)
        self.metadata -= (
            0 if size == -1 else len(data)
        )  # WebP and AVIF are read as a whole
        if data.startswith(b"Exif\0\0"):  # of a JPEG, which joins such parts
            self.exif -= len(data)
        if size == -1 and data[4:8] == b"ftyp":
            self.exif -= _avif_exif(data)
        self.parts -= 1
        self.scanned -= self.pixels * data.count(_SCAN) if self.pixels else 0
        if min(self.metadata, self.parts, self.scanned, self.exif) < 0:
            raise _NotAnImageError(
                "would take too long to read, as it has more metadata, parts or scans than images "
                "have: convert it to PNG"
            )
        return data

    def decode(self, image: Image.Image) -> None:
        """From now on pixels are read, some of them several times."""
        self.metadata, self.parts = 16 * MAX_IMAGE_BYTES, _MOST_READS
        self.pixels = (
            image.width * image.height if image.format in ("JPEG", "MPO") else 0
        )


def _avif_exif(data: bytes) -> int:
    """Bytes of EXIF in an AVIF file, which PIL takes apart as it opens one."""
    try:
        from PIL import _avif

        return len(_avif.AvifDecoder(data, "auto", 1).get_info()[4] or b"")
    except Exception:  # PIL finds out what is wrong
        return 0


def load_image(image: ImageInput) -> Image.Image:
    """Return `image` as a new RGB image, EXIF orientation applied; the input is not changed.

    Takes a PIL image, a path, the bytes of an image file, a binary file object (read from its
    start), a numpy array or a torch tensor. Anything that cannot be read raises ImageError.

    * Eight-bit images come out as `.convert("RGB")` gives them: alpha is dropped, not blended.
    * Deep grey images are scaled, where PIL would clip them to white. I;16: 65535 becomes 255.
      I: 0..255 is kept, up to 65535 is taken as 16-bit. F: 0..1, or else 0..255.
    * Of a file with several frames the first is read; of a PIL image, the frame it is at.
    * Arrays are HW, HWC or CHW with 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha) channels.
      If both ends could be the channels, as in 3x5x3, numpy is read as HWC and torch as CHW.
    * Array values: bool, uint8, uint16 (65535 becomes 255), other integers in 0..255, or floats
      in 0..1. Other floats are refused: they mean a normalised tensor or unscaled pixels.
    * Files are JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, JPEG 2000 or PPM. Those above
      `PIL.Image.MAX_IMAGE_PIXELS` or 512 MiB are refused, and those with more metadata or scans
      than images have; of a PIL image you opened yourself, only what has too much EXIF data.
    * Paths of pipes, sockets and devices are refused, as reading them may never end.
    """
    if isinstance(image, os.PathLike):
        image = os.fsdecode(image)
    try:
        with ignore_warnings_of(r"PIL\b"):  # all of PIL's, no one else's
            return _read(image)
    except MemoryError:
        raise
    except _NotAnImageError as error:
        raise ImageError(f"{_describe(image)} {error}") from error
    except Exception as error:  # on broken data PIL may raise nearly anything
        raise ImageError(
            f"cannot read {_describe(image)}: {_explain(error)}"
        ) from error


def is_single_image(value: object) -> bool:
    """True for one image of a kind `load_image` takes, False for a batch or anything else."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.ndim <= 3
    if isinstance(value, Image.Image | str | os.PathLike | _Bytes | StoredFeature):
        return True
    return callable(getattr(value, "read", None))


def check_enlarged(loaded: Image.Image, edge: int, image: object) -> None:
    """Refuse an image so long and narrow that enlarging it would take gigabytes.

    Models enlarge the short edge of an image to the size of their input and cut out the middle
    afterwards, so a file of a hundred bytes with 12,000 x 1 pixels would become 2,688,000 x 224.
    """
    short, long = sorted(loaded.size)
    if short < edge and edge * edge * long / short > MAX_ENLARGED_PIXELS:
        raise ImageError(
            f"cannot use {_describe(image)}: {loaded.width} x {loaded.height} pixels are too "
            f"long and narrow. Enlarging the short edge to {edge}, as the model's preprocessing "
            f"may do, would give {edge} x {round(edge * long / short)} pixels, more than "
            f"{MAX_ENLARGED_PIXELS}. Cut out the part that matters"
        )


def _read(image: Any) -> Image.Image:
    if isinstance(image, Image.Image):
        return _from_pil(image)
    if isinstance(image, torch.Tensor):
        return _from_array(_to_numpy(image), channels_first=True)
    if isinstance(image, np.ndarray):
        return _from_array(np.asarray(image), channels_first=False)
    if isinstance(image, str):
        if image.lower().startswith(("http://", "https://")):
            raise _NotAnImageError("is a URL: download it first, then pass its path")
        with open_file(image) as file:
            return _from_file(file)
    if isinstance(image, _Bytes):
        return _from_file(io.BytesIO(bytes(image)))
    if callable(getattr(image, "read", None)):
        with contextlib.suppress(
            AttributeError, OSError
        ):  # a stream has only what is left of it
            _check_bytes(image.seek(0, os.SEEK_END))
            image.seek(0)
        data = image.read()
        if not isinstance(data, _Bytes):
            kind = type(data).__name__
            raise _NotAnImageError(f"gives {kind}, not bytes: open it in binary mode")
        return _from_file(io.BytesIO(bytes(data)))
    if isinstance(image, Mapping):
        raise _NotAnImageError(
            f"with the columns {[str(key) for key in image][:8]} is not an image: pass the column "
            'of the images, such as dataset["image"]'
        )
    raise _NotAnImageError(
        "is not an image: pass a PIL image, a path (str or PathLike), the bytes of an image file, "
        "a binary file object, a numpy array or a torch tensor"
    )


def _describe(image: object) -> str:
    if isinstance(image, str):
        return repr(image[:500])
    if isinstance(image, _Bytes):
        return f"bytes of length {memoryview(image).nbytes}"
    if isinstance(image, torch.Tensor) and image.is_nested:  # it has no shape
        return "nested tensor"
    if isinstance(image, np.ndarray | torch.Tensor):
        kind = "array" if isinstance(image, np.ndarray) else "tensor"
        return f"{kind} of shape {tuple(image.shape)} and dtype {image.dtype}"
    if isinstance(image, Image.Image):
        path = getattr(image, "filename", "")
        return (
            f"PIL image {os.fsdecode(path)!r}"
            if path
            else f"PIL image of mode {image.mode}"
        )
    path = getattr(image, "name", None) if hasattr(image, "read") else None
    return (
        f"{type(image).__name__} {path!r}"
        if isinstance(path, str)
        else type(image).__name__
    )


def _explain(error: Exception) -> str:
    """The reason, and what to do about it."""
    if isinstance(error, FileNotFoundError):
        return "no such file. Check the path and the working directory"
    if isinstance(error, NotRegularError):
        return "it is a pipe, a socket or a device. Save the image to a file first"
    if isinstance(error, IsADirectoryError):
        return "it is a directory. Pass the image files in it"
    if isinstance(error, PermissionError):
        return "permission denied. Make it a file that this user may read"
    if isinstance(error, Image.DecompressionBombError):
        return f"{error} Shrink it, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
    if isinstance(error, UnidentifiedImageError):
        return f"not one of {', '.join(FORMATS)}, or damaged. Convert it to PNG, or get it again"
    reason = getattr(error, "strerror", None) or error
    return f"{reason} ({type(error).__name__}). If it is damaged or cut short, get it again"


def _check_bytes(size: int) -> None:
    if size > MAX_IMAGE_BYTES:
        raise _NotAnImageError(
            f"has {size} bytes, more than {MAX_IMAGE_BYTES >> 20} MiB: make it smaller"
        )


def _from_file(file: IO[bytes]) -> Image.Image:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        raise _NotAnImageError("is empty (0 bytes): get it again")
    _check_bytes(size)
    raw = cast(io.RawIOBase, file)  # any file that can seek will do
    with LimitedFile(raw) as metered, Image.open(metered, formats=FORMATS) as opened:
        if (
            opened.tile and opened.tile[0][0] == "ppm_plain"
        ):  # quadratic in its comments
            raise _NotAnImageError("is a PPM file in plain text: convert it to PNG")
        limit = Image.MAX_IMAGE_PIXELS  # PIL itself only warns up to twice the limit
        tags = getattr(
            opened, "tag_v2", {}
        )  # tiles of a TIFF may be larger than the image
        tile = [
            edge if isinstance(edge, int) else 0
            for edge in (tags.get(322), tags.get(323))
        ]
        for width, height in (opened.size, tile):
            if limit is not None and width * height > limit:
                raise Image.DecompressionBombError(
                    f"{width} x {height} pixels exceed the limit of {limit}."
                )
        metered.decode(opened)
        return _from_pil(opened)


def _from_pil(image: Image.Image) -> Image.Image:
    if 0 in image.size:
        raise _NotAnImageError(
            f"has no pixels: its size is {image.width} x {image.height}"
        )
    image.load()  # a PNG may have its EXIF data behind its pixels, or as hexadecimal text
    written = image.info.get("Raw profile type exif") or ""
    if max(len(image.info.get("exif") or b""), len(written) // 2) > _MOST_EXIF:
        raise _NotAnImageError("has more EXIF data than images have: convert it to PNG")
    try:
        turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except (MemoryError, Warning):
        raise
    except Exception:  # the pixels may be readable all the same
        turn = None
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        plain = Image.fromarray(_to_uint8(np.asarray(image), from_pil=True))
    else:
        plain = image.copy()
    plain.info = {}  # else PIL warns of transparency, and the next reader would turn it again
    if plain.mode == "La":
        plain = plain.convert("LA")  # PIL has no direct way from La to RGB
    rgb = plain if plain.mode == "RGB" else plain.convert("RGB")
    return rgb if turn is None else rgb.transpose(turn)


def _from_array(pixels: _Array, *, channels_first: bool) -> Image.Image:
    if pixels.ndim > 3:
        raise _NotAnImageError("is a batch: pass a list of images, as in list(batch)")
    if pixels.ndim < 2:
        raise _NotAnImageError(
            "is not an image: an image has 2 axes (HW) or 3 (HWC or CHW)"
        )
    if pixels.size == 0:
        raise _NotAnImageError("has no pixels")
    if pixels.ndim == 3:
        first, last = pixels.shape[0] in _CHANNELS, pixels.shape[2] in _CHANNELS
        if not (first or last):
            raise _NotAnImageError(
                "has no channel axis: the first or last must be 1, 2, 3 or 4"
            )
        if first and (channels_first or not last):
            pixels = np.moveaxis(pixels, 0, 2)
        pixels = (
            pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., 0]
        )  # drops alpha
    return Image.fromarray(_to_uint8(pixels)).convert("RGB")


def _to_uint8(pixels: _Array, *, from_pil: bool = False) -> _Array:
    """Pixels as 0..255. PIL's modes I and F do not state their range, so there it is guessed."""
    dtype = pixels.dtype
    if dtype == np.uint8:
        return pixels
    if dtype.kind == "b":
        return _round(pixels * 255)
    if dtype.kind == "u" and dtype.itemsize == 2:
        return _halve_depth(pixels)
    if dtype.kind not in "iuf":
        raise _NotAnImageError(
            "does not hold pixels: its dtype must be bool, integer or float"
        )

    is_float = dtype.kind == "f"
    with np.errstate(invalid="ignore"):
        low, high = float(pixels.min()), float(pixels.max())  # nan if there is one
    if is_float and low >= -_TOLERANCE and high <= 1 + _TOLERANCE:
        return _round(pixels.astype(np.float32) * 255)
    if low >= 0 and high <= 255 and (from_pil or not is_float):
        return _round(pixels)
    if low >= 0 and high <= 65535 and from_pil and not is_float:
        return _halve_depth(pixels)

    if from_pil:
        hint = (
            f"rescale them to {'0..1 or 0..255' if is_float else '0..255 or 0..65535'}"
        )
    elif not is_float:
        hint = "integers must be in 0..255, or be uint16 if the pixels are 16-bit"
    else:
        hint = "floats must be in 0..1, not normalised; divide pixels of 0..255 by 255"
    raise _NotAnImageError(f"has values from {low:g} to {high:g}: {hint}")


def _round(pixels: _Array) -> _Array:
    return np.asarray(np.rint(pixels), dtype=np.uint8)


def _halve_depth(pixels: _Array) -> _Array:
    """16 bits to 8, rounded: 257 k becomes k."""
    return np.asarray((pixels.astype(np.uint32) + 128) // 257, dtype=np.uint8)


def _to_numpy(tensor: torch.Tensor) -> _Array:
    try:
        if tensor.is_floating_point() and tensor.dtype != torch.float64:
            tensor = tensor.float()  # numpy has no bfloat16
        return tensor.numpy(force=True)  # from any device, with or without gradient
    except (RuntimeError, TypeError) as error:
        raise _NotAnImageError(
            f"has no values to read ({error}): pass a dense tensor"
        ) from error


def image_bar(images: Any, progress: bool) -> Any:
    """A progress bar that is there at once; finished images are to be added to it."""
    total = len(images) if isinstance(images, Sized) else None
    return tqdm(total=total, unit="image", disable=not progress)


def pixel_digest(image: Image.Image, start: str) -> bytes:
    """Of a text and the pixels; `tobytes` needs twice the memory of its result, so part by part."""
    digest = blake2b(start.encode(), digest_size=16)
    rows = max(1, _PIXELS_AT_ONCE // image.width)
    for top in range(0, image.height, rows):
        is_all = rows >= image.height
        part = (
            image
            if is_all
            else image.crop((0, top, image.width, min(top + rows, image.height)))
        )
        digest.update(part.tobytes())
    return digest.digest()
