"""Features of views on disk, so that the vision tower sees every image once.

A bank is a folder with a file of float16 features for each image, named by the digest of the image
file. It is written under another name and then renamed, and begins with a checksum: what is not
whole or not as it was written is not there, and is computed again.
"""

from __future__ import annotations

import json
import os
import time
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
from fair_tta._images.stored import StoredFeature
from fair_tta._images.vision import image_digest
from fair_tta._io import open_file, sweep, write_whole
from fair_tta._linalg import unit
from fair_tta.errors import FairTTAError, ImageError

D = TypeVar("D")

MOST_BYTES = 2**30  # no model can use a larger image file


@dataclass(frozen=True)
class ImageSource:
    """An image to be classified.

    Attributes:
        name: its name in rows: within its dataset, or as the user wrote it.
        source: the path of its file, the content of one, or its features.
    """

    name: str
    source: str | bytes | StoredFeature


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
        if found.st_size > MOST_BYTES:
            raise ImageError(f"cannot use {image.source!r}: it has more than {MOST_BYTES} bytes")
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


BANK_FORMAT = "fair-tta/bank/2"
_CHECKSUM, _SECONDS = 32, 8  # bytes before the features


class Bank:
    """Features for one model, one kind of views and one seed.

    Args:
        root: the folder of all banks.
        facts: of `fair_tta._identity.feature_identity`.
        seed: the seed of the views.
    """

    def __init__(self, root: str | os.PathLike[str], facts: dict[str, Any], seed: int) -> None:
        key = json.dumps({**facts, "format": BANK_FORMAT, "seed": seed}, sort_keys=True)
        self.folder = Path(root) / sha256(key.encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        sweep(self.folder)
        if not (self.folder / "bank.json").exists():
            write_whole(self.folder / "bank.json", (key + "\n").encode())
        self._dim = facts["dim"]

    def __contains__(self, digest: str) -> bool:
        return self._path(digest).exists()

    def get(
        self, digests: Sequence[str], encode: Callable[[list[int]], Tensor]
    ) -> tuple[Tensor, list[float]]:
        """Unit features ``[images, views, dim]`` in float32, and the seconds that making them took
        for each image, whenever that was.

        Those that are not there yet are made and stored. They are rounded to float16 too, so it
        does not matter which were there.

        Args:
            digests: of the image files, as in `Key.content`.
            encode: makes unit features ``[some, views, dim]`` of the images at these places.
        """
        found = {digest: self._read(digest) for digest in digests}
        missing = [digest for digest, row in found.items() if row is None]
        if missing:
            start = time.perf_counter()
            made = encode([digests.index(digest) for digest in missing]).half().cpu()
            seconds = (time.perf_counter() - start) / len(missing)
            for digest, features in zip(missing, made, strict=True):
                self._write(digest, features, seconds)
                found[digest] = features, seconds
        rows = [row for digest in digests if (row := found[digest]) is not None]
        return unit(torch.stack([of for of, _ in rows]).float()), [took for _, took in rows]

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}.features"

    def _write(self, digest: str, features: Tensor, seconds: float) -> None:
        body = np.float64(seconds).tobytes() + features.numpy(force=True).tobytes()
        try:
            write_whole(self._path(digest), _checksum(digest, body) + body)
        except OSError as error:
            raise FairTTAError(
                f"cannot write features to {str(self.folder)!r}: {error}. What is finished is on "
                "disk: solve this, and the same command resumes from there."
            ) from error

    def _read(self, digest: str) -> tuple[Tensor, float] | None:
        """None if it is not there, or not as it was written."""
        try:
            data = self._path(digest).read_bytes()
        except OSError:
            return None
        checksum, body = data[:_CHECKSUM], data[_CHECKSUM:]
        if checksum != _checksum(digest, body):
            return None
        features = np.frombuffer(body[_SECONDS:], np.float16).reshape(-1, self._dim)
        return torch.from_numpy(features.copy()), float(np.frombuffer(body[:_SECONDS])[0])


def bytes_needed(facts: dict[str, Any], views: int, images: int) -> int:
    """How much disk the features of so many images take."""
    return images * (2 * views * int(facts["dim"]) + 128)


def _checksum(digest: str, body: bytes) -> bytes:
    """Of the features and of whose they are, so that they cannot come to be another's."""
    return content_digest(digest.encode() + body).encode()


def kept_features(
    folder: Path, facts: dict[str, Any], digests: Sequence[str], encode: Callable[[], Tensor]
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
    write_whole(file, content.getvalue())
    return features
