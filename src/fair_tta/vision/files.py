"""Files and folders of others: read without waiting for ever, and without giving up on the rest."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO

ENDINGS = frozenset(
    ".jpg .jpeg .jpe .jfif .png .apng .webp .gif .bmp .dib .tif .tiff .avif .avifs .jp2 .j2k "
    ".ppm .pgm .pbm .pnm .ico .tga .heic .heif".split()
)
"""Files of a folder that are taken for pictures, in lower case. Files given by name all are."""

_AT_ONCE = 10_000  # names in memory
_MANY_BYTES = 2**20


class NotRegularError(OSError):
    """A path leads to a pipe, a socket or a device, of which reading may never end."""


@dataclass(frozen=True)
class Unlisted:
    """A folder that cannot be looked into.

    Attributes:
        path: the folder.
        reason: why, in few words.
    """

    path: str
    reason: str


def open_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """A regular file for reading. Anything else is an OSError at once."""
    _check_regular(os.stat(path), path)  # first, for opening a device may do something
    file = _Regular(io.FileIO(os.fspath(path), "rb", opener=_without_waiting))
    try:
        _check_regular(os.fstat(file.fileno()), path)
    except OSError:
        file.close()
        raise
    return file


class _Regular(io.BufferedReader):
    """Takes memory for what is there only, however much a header says that there is."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MANY_BYTES:
            size = max(0, min(size, os.fstat(self.fileno()).st_size - self.tell()))
        return super().read(size)


def walk(folder: str | os.PathLike[str], *, follow_links: bool = False) -> Iterator[str | Unlisted]:
    """Paths of all that is in a folder and its subfolders and is no folder itself.

    By name; in a folder of more than 10,000, every 10,000 by name. Folders that cannot be looked
    into are told and do not stop the others.

    Args:
        folder: where to begin.
        follow_links: whether links to folders are followed, each folder once; if not they are
            left out.
    """
    levels = [_entries(os.fspath(folder))]
    seen = {os.path.realpath(folder)}
    while levels:  # no recursion: folders may be nested deeper than Python's stack
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
        elif isinstance(entry, Unlisted):
            yield entry
        elif _is_folder(entry, follow_links=False) and not follow_links:
            levels.append(_entries(entry.path))
        elif not _is_folder(entry, follow_links=True):
            yield entry.path
        elif follow_links and (place := os.path.realpath(entry.path)) not in seen:
            seen.add(place)
            levels.append(_entries(entry.path))


def pictures_below(folder: str | os.PathLike[str]) -> Iterator[str | Unlisted]:
    """What `walk` finds and looks like a picture by its name."""
    for found in walk(folder):
        if isinstance(found, Unlisted) or os.path.splitext(found)[1].lower() in ENDINGS:
            yield found


def _entries(folder: str) -> Iterator[os.DirEntry[str] | Unlisted]:
    try:
        with os.scandir(folder) as entries:
            while part := list(islice(entries, _AT_ONCE)):
                yield from sorted(part, key=lambda entry: entry.name)
    except OSError as error:
        yield Unlisted(folder, error.strerror or str(error))


def _is_folder(entry: os.DirEntry[str], *, follow_links: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow_links)
    except OSError:
        return False


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has none


def _check_regular(found: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularError(errno.EINVAL, "not a regular file", os.fspath(path))
