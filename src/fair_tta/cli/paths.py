"""Which pictures a command is about: files, folders, or paths from stdin, one after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice

ENDINGS = frozenset(
    ".jpg .jpeg .jpe .jfif .png .apng .webp .gif .bmp .dib .tif .tiff .avif .avifs .jp2 .j2k "
    ".ppm .pgm .pbm .pnm .ico .tga .heic .heif".split()
)
"""Files of a folder that are taken for pictures, in lower case. Files given by name all are."""

_AT_ONCE = 10_000  # names in memory


def find_pictures(paths: Iterable[str], *, null: bool = False) -> Iterator[str]:
    """Paths of pictures, without holding all of them in memory.

    Args:
        paths: files, folders (read with their subfolders), and ``-`` for paths on stdin.
        null: whether paths on stdin end with a null character instead of a line end.
    """
    for path in paths:
        if path == "-":
            for given in _from_stdin(b"\0" if null else b"\n"):
                yield from _expand(given)
        else:
            yield from _expand(path)


def _expand(path: str) -> Iterator[str]:
    return _walk(path) if os.path.isdir(path) else iter((path,))


def _walk(folder: str) -> Iterator[str]:
    """Files and subfolders by name; in a folder of more than 10,000, every 10,000 by name."""
    with os.scandir(folder) as entries:
        while part := list(islice(entries, _AT_ONCE)):
            for entry in sorted(part, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(entry.path)
                elif os.path.splitext(entry.name)[1].lower() in ENDINGS:
                    yield entry.path


def _from_stdin(end: bytes) -> Iterator[str]:
    rest = b""
    while chunk := sys.stdin.buffer.read1(1 << 16):  # type: ignore[union-attr]
        *whole, rest = (rest + chunk).split(end)
        yield from filter(None, map(_decoded, whole))
    if rest:
        yield _decoded(rest)


def _decoded(path: bytes) -> str:
    return os.fsdecode(path.removesuffix(b"\r"))
