"""The files of pictures: what is in them, and whether they are as they were."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b

from fair_tta.errors import ImageError
from fair_tta.vision.files import open_file

MOST_BYTES = 2**30
"""A file that is larger is no picture that a model can use."""


@dataclass(frozen=True)
class AskedPicture:
    """A picture to be answered.

    Attributes:
        name: what it is called in rows: within its dataset, or as the user called it.
        source: the path of its file, or the content of one.
    """

    name: str
    source: str | bytes


@dataclass(frozen=True)
class PictureFile:
    """What was read.

    Attributes:
        data: the content.
        content: its digest.
        stamp: see `stamp_of`.
    """

    data: bytes
    content: str
    stamp: str


def read_picture(picture: AskedPicture) -> PictureFile:
    """Read a file.

    Raises:
        OSError: it cannot be read, or is a pipe or a device.
        ImageError: it is too large.
    """
    if isinstance(picture.source, bytes):
        return PictureFile(picture.source, content_digest(picture.source), "")
    with open_file(picture.source) as file:
        found = os.fstat(file.fileno())
        if found.st_size > MOST_BYTES:
            raise ImageError(f"cannot use {picture.source!r}: it has more than {MOST_BYTES} bytes")
        data = file.read()
    return PictureFile(data, content_digest(data), _stamp(picture.source, found))


def stamp_of(picture: AskedPicture) -> str:
    """Tells a file from all others and from what it was before, without reading it.

    It has the path, the size and the times of writing and of change; the last cannot be set back.
    Empty for a file that is not there.
    """
    if isinstance(picture.source, bytes):
        return ""
    try:
        return _stamp(picture.source, os.stat(picture.source))
    except (OSError, ValueError):
        return ""


def content_digest(data: bytes) -> str:
    """What a content is known by."""
    return blake2b(data, digest_size=16).hexdigest()


def _stamp(path: str, found: os.stat_result) -> str:
    facts = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return content_digest(repr((os.fsencode(os.path.abspath(path)), *facts)).encode())
