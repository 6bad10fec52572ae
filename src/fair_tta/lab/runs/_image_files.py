"""Image files and their identity, and features of references that are kept on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from fair_tta._identity import content_digest
from fair_tta._io import open_file, write_atomically
from fair_tta.errors import ImageError
from fair_tta.images._load import MAX_IMAGE_BYTES
from fair_tta.images._stored import ImageSource, StoredFeature
from fair_tta.images._vision import image_digest

D = TypeVar("D")


@dataclass(frozen=True)
class ImageFile(Generic[D]):
    """An image file that was read or decoded.

    Attributes:
        content: digest of the file's bytes.
        signature: its `file_signature`.
    """

    data: D
    content: str
    signature: str


def read_image_bytes(image: ImageSource) -> ImageFile[bytes | StoredFeature]:
    """Read the content of an image file, without decoding it.

    Raises:
        OSError: it cannot be read, or is a pipe or a device.
        ImageError: it is too large.
    """
    if isinstance(image.source, bytes):
        return ImageFile(image.source, content_digest(image.source), "")
    if isinstance(image.source, StoredFeature):
        return ImageFile(image.source, image_digest(image.source), "")
    with open_file(image.source) as file:
        status = os.fstat(file.fileno())
        # `load_image` has the same limit, but would see the file in memory only.
        if status.st_size > MAX_IMAGE_BYTES:
            raise ImageError(
                f"cannot read {image.source!r}: it has {status.st_size} bytes, more than "
                f"{MAX_IMAGE_BYTES >> 20} MiB: make it smaller"
            )
        data = file.read()
    return ImageFile(data, content_digest(data), _signature(image.source, status))


def file_signature(image: ImageSource) -> str:
    """Return a text that identifies one version of a file without reading it.

    It is made of path, inode, size and the times of writing and of change; the last cannot be set
    back. Empty if there is no such file.
    """
    if not isinstance(image.source, str):
        return ""
    try:
        return _signature(image.source, os.stat(image.source))
    except (OSError, ValueError):
        return ""


def _signature(path: str, status: os.stat_result) -> str:
    identity = (
        os.fsencode(os.path.abspath(path)),
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
    return content_digest(repr(identity).encode())


def kept_features(
    folder: Path,
    identity: dict[str, Any],
    contents: Sequence[str],
    make_features: Callable[[], Tensor],
) -> Tensor:
    """Return features that an earlier call kept in a folder, or make and keep them.

    Args:
        identity: what features depend on besides the images.
        contents: digests of the image files.
    """
    key = json.dumps([identity, *contents], sort_keys=True)
    file = folder / f"{sha256(key.encode()).hexdigest()}.npy"
    with suppress(OSError, ValueError, EOFError):
        return torch.from_numpy(np.load(file))
    features = make_features()
    buffer = BytesIO()
    np.save(buffer, features.numpy())
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, buffer.getvalue())
    return features
