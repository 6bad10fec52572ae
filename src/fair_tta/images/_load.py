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

_CHANNEL_COUNTS = (1, 2, 3, 4)  # grey, grey + alpha, RGB, RGB + alpha
# How far floats may lie outside 0..1: under half a level, so that rounding clips it.
_RANGE_TOLERANCE = 1e-3
_ORIENTATION_TAG = 0x0112  # of EXIF
_TRANSPOSE_OF_ORIENTATION = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_TIFF_TILE_WIDTH_TAG = 322
_TIFF_TILE_HEIGHT_TAG = 323

MAX_ENLARGED_PIXELS = 2**24
"""Pixels that preprocessing may make of an image by enlarging it: as many as a photo has."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")
MAX_IMAGE_BYTES = 2**29  # twice what PIL's limit of pixels takes in RGB

# What PIL may read before the size of an image is known; its time may be quadratic in it.
_MAX_METADATA_BYTES = 2**23
_MAX_METADATA_READS = 10_000
# PIL may make 0.4 GB of this much EXIF data, as each tag may refer to the same bytes.
_MAX_EXIF_BYTES = 2**17
# Reads of pixels: some decoders are written in Python.
_MAX_PIXEL_READS = 2**19
# Pixels of a JPEG, counted once for each of its scans.
_MAX_SCANNED_PIXELS = 2**32
_SCAN_MARKER = b"\xff\xda"
_MAX_BYTES_PER_READ = 2**30
_DIGEST_PIXELS_AT_ONCE = 2**22  # whose bytes are copied together


class _NotAnImageError(Exception):
    """An error whose message continues a sentence that begins with a description of the input."""


class LimitedFile(io.BufferedReader):
    """A file that raises an error before it keeps PIL busy for minutes.

    Its attributes are what may still be read; `start_pixels` replaces the limits of metadata.
    """

    metadata_bytes = _MAX_METADATA_BYTES
    reads = _MAX_METADATA_READS
    exif_bytes = _MAX_EXIF_BYTES
    scanned_pixels = _MAX_SCANNED_PIXELS
    pixels_per_scan = 0

    def read(self, size: int | None = -1, /) -> bytes:
        # Reading all there is takes no more memory than that, where a damaged JPEG 2000 asks for
        # exabytes.
        is_bounded = size is not None and size <= _MAX_BYTES_PER_READ
        data = super().read(size if is_bounded else None)
        self.reads -= 1
        if size != -1:  # WebP and AVIF are read as a whole
            self.metadata_bytes -= len(data)
        elif data[4:8] == b"ftyp":
            self.exif_bytes -= _avif_exif_size(data)
        if data.startswith(b"Exif\0\0"):  # one of the parts that PIL joins in a JPEG
            self.exif_bytes -= len(data)
        if self.pixels_per_scan:
            self.scanned_pixels -= self.pixels_per_scan * data.count(_SCAN_MARKER)
        limits = (self.metadata_bytes, self.reads, self.exif_bytes, self.scanned_pixels)
        if min(limits) < 0:
            raise _NotAnImageError(
                "would take too long to read, as it has more metadata, parts or scans than images "
                "have: convert it to PNG"
            )
        return data

    def start_pixels(self, image: Image.Image) -> None:
        """Set the limits for decoding pixels, some of which are read several times."""
        self.metadata_bytes = 16 * MAX_IMAGE_BYTES
        self.reads = _MAX_PIXEL_READS
        if image.format in ("JPEG", "MPO"):
            self.pixels_per_scan = image.width * image.height


def _avif_exif_size(data: bytes) -> int:
    """Return the bytes of EXIF data in an AVIF file, which PIL parses when it opens one."""
    try:
        from PIL import _avif

        return len(_avif.AvifDecoder(data, "auto", 1).get_info()[4] or b"")
    except Exception:  # PIL itself reports what is wrong
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
        with ignore_warnings_of(r"PIL\b"):
            return _read_image(image)
    except MemoryError:
        raise
    except _NotAnImageError as error:
        raise ImageError(f"{_describe_image(image)} {error}") from error
    except Exception as error:  # on broken data PIL may raise nearly anything
        raise ImageError(
            f"cannot read {_describe_image(image)}: {_explain(error)}"
        ) from error


def is_single_image(images: object) -> bool:
    """Return True for one image of a kind `load_image` takes, False for anything else."""
    if isinstance(images, np.ndarray | torch.Tensor):
        return images.ndim <= 3
    if isinstance(images, Image.Image | str | os.PathLike | _Bytes | StoredFeature):
        return True
    return callable(getattr(images, "read", None))


def check_enlarged(loaded: Image.Image, edge: int, image: object) -> None:
    """Raise `ImageError` if an image is so long and narrow that enlarging it takes gigabytes.

    Models enlarge the short edge of an image to the size of their input and crop the centre
    afterwards, so a file of a hundred bytes with 12,000 x 1 pixels would become 2,688,000 x 224.
    """
    short, long = sorted(loaded.size)
    if short < edge and edge * edge * long / short > MAX_ENLARGED_PIXELS:
        raise ImageError(
            f"cannot use {_describe_image(image)}: {loaded.width} x {loaded.height} pixels are "
            f"too long and narrow. Enlarging the short edge to {edge}, as the model's "
            f"preprocessing may do, would give {edge} x {round(edge * long / short)} pixels, more "
            f"than {MAX_ENLARGED_PIXELS}. Crop the part that matters"
        )


def _read_image(image: Any) -> Image.Image:
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
        # A stream cannot go back, and has only what is left of it.
        with contextlib.suppress(AttributeError, OSError):
            _check_size(image.seek(0, os.SEEK_END))
            image.seek(0)
        data = image.read()
        if not isinstance(data, _Bytes):
            raise _NotAnImageError(
                f"returns {type(data).__name__}, not bytes: open it in binary mode"
            )
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


def _describe_image(image: object) -> str:
    """Return what messages call an input."""
    if isinstance(image, str):
        return repr(image[:500])
    if isinstance(image, _Bytes):
        return f"bytes of length {memoryview(image).nbytes}"
    if isinstance(image, torch.Tensor) and image.is_nested:  # it has no shape
        return "nested tensor"
    if isinstance(image, np.ndarray | torch.Tensor):
        name = "array" if isinstance(image, np.ndarray) else "tensor"
        return f"{name} of shape {tuple(image.shape)} and dtype {image.dtype}"
    if isinstance(image, Image.Image):
        path = getattr(image, "filename", "")
        if path:
            return f"PIL image {os.fsdecode(path)!r}"
        return f"PIL image of mode {image.mode}"
    class_name = type(image).__name__
    path = getattr(image, "name", None) if hasattr(image, "read") else None
    return f"{class_name} {path!r}" if isinstance(path, str) else class_name


def _explain(error: Exception) -> str:
    """Return the reason of an error, and what to do about it."""
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


def _check_size(size: int) -> None:
    """Raise an error if a file is too large to be an image."""
    if size > MAX_IMAGE_BYTES:
        raise _NotAnImageError(
            f"has {size} bytes, more than {MAX_IMAGE_BYTES >> 20} MiB: make it smaller"
        )


def _from_file(file: IO[bytes]) -> Image.Image:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        raise _NotAnImageError("is empty (0 bytes): get it again")
    _check_size(size)
    limited = LimitedFile(cast(io.RawIOBase, file))  # any file that can seek will do
    with limited, Image.open(limited, formats=FORMATS) as image:
        # The time for this decoder is quadratic in the length of comments.
        if image.tile and image.tile[0][0] == "ppm_plain":
            raise _NotAnImageError("is a PPM file in plain text: convert it to PNG")
        # PIL itself only warns up to twice its limit. Tiles of a TIFF may be larger than the image.
        _check_pixel_count(*image.size)
        tags = getattr(image, "tag_v2", {})
        tile_width = tags.get(_TIFF_TILE_WIDTH_TAG)
        tile_height = tags.get(_TIFF_TILE_HEIGHT_TAG)
        if isinstance(tile_width, int) and isinstance(tile_height, int):
            _check_pixel_count(tile_width, tile_height)
        limited.start_pixels(image)
        return _from_pil(image)


def _check_pixel_count(width: int, height: int) -> None:
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        raise Image.DecompressionBombError(
            f"{width} x {height} pixels exceed the limit of {limit}."
        )


def _from_pil(image: Image.Image) -> Image.Image:
    if 0 in image.size:
        raise _NotAnImageError(
            f"has no pixels: its size is {image.width} x {image.height}"
        )

    # A PNG may have its EXIF data behind its pixels, or as hexadecimal text: two digits a byte.
    image.load()
    exif_size = len(image.info.get("exif") or b"")
    hex_size = len(image.info.get("Raw profile type exif") or "") // 2
    if max(exif_size, hex_size) > _MAX_EXIF_BYTES:
        raise _NotAnImageError("has more EXIF data than images have: convert it to PNG")
    try:
        orientation = image.getexif().get(_ORIENTATION_TAG, 1)
        transpose = _TRANSPOSE_OF_ORIENTATION.get(orientation)
    except (MemoryError, Warning):
        raise
    except Exception:  # the pixels may be readable all the same
        transpose = None

    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        plain = Image.fromarray(_to_uint8(np.asarray(image), from_pil=True))
    else:
        plain = image.copy()
    # Otherwise PIL warns of transparency, and the next reader would turn the image again.
    plain.info = {}
    if plain.mode == "La":
        plain = plain.convert("LA")  # PIL has no direct way from La to RGB
    rgb = plain if plain.mode == "RGB" else plain.convert("RGB")
    return rgb if transpose is None else rgb.transpose(transpose)


def _from_array(pixels: _Array, *, channels_first: bool) -> Image.Image:
    """Return an image; `channels_first` decides if both ends could be the channels."""
    if pixels.ndim > 3:
        raise _NotAnImageError("is a batch: pass a list of images, as in list(batch)")
    if pixels.ndim < 2:
        raise _NotAnImageError(
            "is not an image: an image has 2 axes (HW) or 3 (HWC or CHW)"
        )
    if pixels.size == 0:
        raise _NotAnImageError("has no pixels")
    if pixels.ndim == 3:
        can_be_first = pixels.shape[0] in _CHANNEL_COUNTS
        can_be_last = pixels.shape[2] in _CHANNEL_COUNTS
        if not (can_be_first or can_be_last):
            raise _NotAnImageError(
                "has no channel axis: the first or last must be 1, 2, 3 or 4"
            )
        if can_be_first and (channels_first or not can_be_last):
            pixels = np.moveaxis(pixels, 0, 2)
        # Alpha is dropped.
        pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., 0]
    return Image.fromarray(_to_uint8(pixels)).convert("RGB")


def _to_uint8(pixels: _Array, *, from_pil: bool = False) -> _Array:
    """Return pixels as 0..255. PIL's modes I and F do not state their range: there it is guessed.

    Raises:
        _NotAnImageError: dtype or range are not those of pixels.
    """
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

    # The range decides; it is NaN if one value is.
    is_float = dtype.kind == "f"
    with np.errstate(invalid="ignore"):
        low = float(pixels.min())
        high = float(pixels.max())
    if is_float and low >= -_RANGE_TOLERANCE and high <= 1 + _RANGE_TOLERANCE:
        return _round(pixels.astype(np.float32) * 255)
    if low >= 0 and high <= 255 and (from_pil or not is_float):
        return _round(pixels)
    if low >= 0 and high <= 65535 and from_pil and not is_float:
        return _halve_depth(pixels)

    if from_pil:
        ranges = "0..1 or 0..255" if is_float else "0..255 or 0..65535"
        hint = f"rescale them to {ranges}"
    elif not is_float:
        hint = "integers must be in 0..255, or be uint16 if the pixels are 16-bit"
    else:
        hint = "floats must be in 0..1, not normalised; divide pixels of 0..255 by 255"
    raise _NotAnImageError(f"has values from {low:g} to {high:g}: {hint}")


def _round(pixels: _Array) -> _Array:
    return np.asarray(np.rint(pixels), dtype=np.uint8)


def _halve_depth(pixels: _Array) -> _Array:
    """Return 16 bits as 8, rounded: 257 k becomes k."""
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
    """Return a progress bar that is shown at once; the caller adds finished images to it."""
    total = len(images) if isinstance(images, Sized) else None
    return tqdm(total=total, unit="image", disable=not progress)


def pixel_digest(image: Image.Image, start: str) -> bytes:
    """Return the digest of a text and the pixels of an image."""
    digest = blake2b(start.encode(), digest_size=16)
    # `tobytes` needs twice the memory of its result: a few rows at a time.
    rows = max(1, _DIGEST_PIXELS_AT_ONCE // image.width)
    if rows >= image.height:
        digest.update(image.tobytes())
        return digest.digest()
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        digest.update(image.crop((0, top, image.width, bottom)).tobytes())
    return digest.digest()
