"""Features of views on disk, so that the vision tower sees every image once.

A bank is a folder of safetensors files, *shards*, with float16 features of some images each. A
shard is written under another name and then renamed, so it is there as a whole or not at all. Its
header names the images by the digest of their files and has a checksum for each, and what is in a
bank is read off these headers: there is no index that could disagree with the shards. What cannot
be read or does not match its checksum is not there, and is computed again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fair_tta._identity import content_digest
from fair_tta._io import open_file, sweep, whole_file, write_whole
from fair_tta._linalg import unit
from fair_tta.errors import FairTTAError, ImageError

MOST_BYTES = 2**30
"""No model can use a larger image file."""


@dataclass(frozen=True)
class ImageSource:
    """An image to be classified.

    Attributes:
        name: its name in rows: within its dataset, or as the user wrote it.
        source: the path of its file, or the content of one.
    """

    name: str
    source: str | bytes


class ImageFile(NamedTuple):
    """The content of an image file, the digest of the content, and its `file_signature`."""

    data: bytes
    content: str
    signature: str


def read_image(image: ImageSource) -> ImageFile:
    """Read a file.

    Raises:
        OSError: it cannot be read, or is a pipe or a device.
        ImageError: it is too large.
    """
    if isinstance(image.source, bytes):
        return ImageFile(image.source, content_digest(image.source), "")
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
    if isinstance(image.source, bytes):
        return ""
    try:
        return _signature(image.source, os.stat(image.source))
    except (OSError, ValueError):
        return ""


def _signature(path: str, found: os.stat_result) -> str:
    facts = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return content_digest(repr((os.fsencode(os.path.abspath(path)), *facts)).encode())


BANK_FORMAT = "fair-tta/bank/1"
_ENDING = ".safetensors"
_NOT_THERE = (OSError, SafetensorError, LookupError, TypeError, ValueError, RecursionError,
              msgspec.MsgspecError)  # fmt: skip


class StoredFeatures(NamedTuple):
    """Unit features ``[images, views, dim]`` in float32, and the seconds that making them took for
    each image, whenever that was."""

    features: Tensor
    seconds: list[float]


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
        self._where: dict[str, tuple[Path, int]] = {}
        for path in sorted(self.folder.glob(f"*{_ENDING}")):
            self._read_header(path)

    def __len__(self) -> int:
        """Number of images."""
        return len(self._where)

    def __contains__(self, digest: object) -> bool:
        return digest in self._where

    def get(self, digests: Sequence[str], encode: Callable[[list[int]], Tensor]) -> StoredFeatures:
        """Features of images; those that are not there yet are made and stored, in one shard.

        What is made is rounded to float16 too, so it does not matter which were there.

        Args:
            digests: of the image files, as in `Key.content`.
            encode: makes unit features ``[some, views, dim]`` of the images at these places.
        """
        found: dict[str, tuple[Tensor, float]] = {}
        missing: dict[str, int] = {}
        for place, digest in enumerate(digests):
            if digest not in found:
                row = self._read(digest)
                if row is None:
                    missing.setdefault(digest, place)
                else:
                    found[digest] = row
        if missing:
            found |= self._make(list(missing), lambda: encode(list(missing.values())))
        features = torch.stack([found[digest][0] for digest in digests])
        return StoredFeatures(unit(features.float()), [found[digest][1] for digest in digests])

    def _make(
        self, digests: list[str], encode: Callable[[], Tensor]
    ) -> dict[str, tuple[Tensor, float]]:
        path = self.folder / f"{content_digest(' '.join(digests).encode())}{_ENDING}"
        self._read_header(path)  # another process may have just made it
        found = {d: row for d in digests if (row := self._read(d)) is not None}
        if len(found) == len(digests):
            return found
        start = time.perf_counter()
        features = encode().half().cpu().contiguous()
        seconds = (time.perf_counter() - start) / len(digests)
        self._write(path, digests, features, seconds)
        return {digest: (row, seconds) for digest, row in zip(digests, features, strict=True)}

    def _write(self, path: Path, digests: list[str], features: Tensor, seconds: float) -> None:
        metadata = {
            "format": BANK_FORMAT,
            "images": json.dumps(digests),
            "checksums": json.dumps([*map(_checksum, digests, features)]),
            "seconds": repr(seconds),
        }
        try:
            with whole_file(path) as part:
                save_file({"features": features}, part, metadata=metadata)
                with part.open("r+b") as file:  # Windows syncs only what may be written
                    os.fsync(file.fileno())
        except (OSError, SafetensorError) as error:
            raise FairTTAError(
                f"cannot write features to {str(self.folder)!r}: {error}. What is finished is on "
                "disk: solve this, and the same command resumes from there."
            ) from error
        self._where |= {digest: (path, row) for row, digest in enumerate(digests)}

    def _read_header(self, path: Path) -> None:
        try:
            with safe_open(path, "pt") as shard:
                metadata = shard.metadata()
            digests = msgspec.json.decode(metadata["images"], type=list[str])
        except _NOT_THERE:
            return
        for row, digest in enumerate(digests):
            self._where.setdefault(digest, (path, row))

    def _read(self, digest: str) -> tuple[Tensor, float] | None:
        """None if it is not there, or not as it was written."""
        if digest not in self._where:
            return None
        path, row = self._where[digest]
        try:
            with safe_open(path, "pt") as shard:
                metadata = shard.metadata()
                features: Tensor = shard.get_slice("features")[row : row + 1][0].clone()
            expected = json.loads(metadata["checksums"])[row]
            seconds = float(metadata["seconds"])
            is_ours = features.dtype == torch.float16 and features.shape[1:] == (self._dim,)
        except _NOT_THERE:
            is_ours = False
        if not is_ours or _checksum(digest, features) != expected:
            del self._where[digest]
            return None
        return features, seconds


def bytes_needed(facts: dict[str, Any], views: int, images: int) -> int:
    """How much disk the features of so many images take."""
    return images * (2 * views * int(facts["dim"]) + 128)


def _checksum(digest: str, features: Tensor) -> str:
    """Of the features and of whose they are, so that they cannot come to be another's."""
    data = features.numpy(force=True).tobytes()
    return content_digest(digest.encode("utf-8", "surrogatepass") + data)
