"""Image files as they are read, and features of references that are kept on disk."""

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
    """An image file as it was read or decoded, the digest of its content, its `file_signature`."""

    data: D
    content: str
    signature: str


def read_image(image: ImageSource) -> ImageFile[bytes | StoredFeature]:
    """Read a file.

    Raises:
        OSError: it cannot be read, or is a pipe or a device.
        ImageError: it is too large.
    """
    if isinstance(image.source, bytes):
        return ImageFile(image.source, content_digest(image.source), "")
    if isinstance(image.source, StoredFeature):
        return ImageFile(image.source, image_digest(image.source), "")
    with open_file(image.source) as file:
        found = os.fstat(file.fileno())
        if (
            found.st_size > MAX_IMAGE_BYTES
        ):  # the limit of `load_image`, before memory is taken
            raise ImageError(
                f"cannot read {image.source!r}: it has {found.st_size} bytes, more than "
                f"{MAX_IMAGE_BYTES >> 20} MiB: make it smaller"
            )
        data = file.read()
    return ImageFile(data, content_digest(data), _signature(image.source, found))


def file_signature(image: ImageSource) -> str:
    """Distinguishes a file from all others and from what it was before, without reading it.

    It is made of the path, the size and the times of writing and of change; the last cannot be set
    back. Empty for a file that does not exist.
    """
    if not isinstance(image.source, str):
        return ""
    try:
        return _signature(image.source, os.stat(image.source))
    except (OSError, ValueError):
        return ""


def _signature(path: str, found: os.stat_result) -> str:
    facts = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return content_digest(repr((os.fsencode(os.path.abspath(path)), *facts)).encode())


def kept_features(
    folder: Path,
    facts: dict[str, Any],
    digests: Sequence[str],
    encode: Callable[[], Tensor],
) -> Tensor:
    """Features of image files with these digests in full precision, made and kept if they are not
    there: a run that was killed finds them again."""
    key = sha256(json.dumps([facts, *digests], sort_keys=True).encode()).hexdigest()
    file = folder / f"{key}.npy"
    with suppress(OSError, ValueError, EOFError):
        return torch.from_numpy(np.load(file))
    features, content = encode(), BytesIO()
    np.save(content, features.numpy())
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, content.getvalue())
    return features
