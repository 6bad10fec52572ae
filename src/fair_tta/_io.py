"""Files: written whole or not at all, CSV cells that stay text, folders that are walked."""

from __future__ import annotations

import csv
import errno
import io
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO
from uuid import uuid4

_PAUSES = (0.01, 0.1, 1.0)  # seconds
_OLD = 24 * 3600  # seconds after which nobody is still writing a file


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where to write a file; when that is done it takes its place, and if it fails nothing does."""
    place = Path(os.path.realpath(path))  # a link stays a link
    part = place.with_name(f".{uuid4().hex}.part")
    try:
        yield part
        replace_file(part, place)
    finally:
        part.unlink(missing_ok=True)


def replace_file(part: Path, place: Path) -> None:
    """Put a file into the place of another.

    On Windows a scanner that looks at new files keeps them for a moment; so does whoever has the
    other one open, and then it fails in the end.
    """
    for pause in _PAUSES if sys.platform == "win32" else ():
        with suppress(PermissionError):
            os.replace(part, place)
            return
        time.sleep(pause)
    os.replace(part, place)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """A small file at once. What is no regular file, such as a terminal, is written to as it is."""
    if Path(path).exists() and not Path(path).is_file():
        Path(path).write_bytes(data)
        return
    with whole_file(path) as part:
        part.write_bytes(data)


def sweep(folder: Path) -> None:
    """Remove what kills have left. Younger files may be those of another process."""
    for path in folder.glob(".*.part"):
        with suppress(OSError):  # another process may sweep too
            if time.time() - path.stat().st_mtime > _OLD:
                path.unlink()


_FORMULA = "=+-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}"
_SIGNS = frozenset(_FORMULA + "\N{FULLWIDTH COMMERCIAL AT}\t\r\n")


class CsvRows:
    """Writes rows by the rule of this module.

    Args:
        file: where to write them, opened with ``newline=""``.
    """

    def __init__(self, file: IO[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")

    def add(self, cells: Iterable[object]) -> None:
        """One more row."""
        self._writer.writerow([text_cell(cell) for cell in cells])


def text_cell(cell: object) -> object:
    """A cell by the rule of this module; a lone sign is no formula."""
    if not isinstance(cell, str):
        return cell
    begins = cell.lstrip(" ")[:1]
    return ("'" if begins in _SIGNS and len(cell) > 1 else "") + printable(cell)


def printable(text: str) -> str:
    """Text that any terminal and any file can hold: what is not printable becomes an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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
