"""Files: write them whole or not at all, keep CSV cells text, open and list them safely."""

from __future__ import annotations

import csv
import errno
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

_PAUSES = (0.01, 0.1, 1.0)  # seconds
_OLD = 24 * 3600  # seconds after which nobody is still writing a file


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to, which then replaces `path`; if writing fails, `path` stays as it was."""
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


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a small file at once; to what is not a regular file, such as a terminal, as it is."""
    if Path(path).exists() and not Path(path).is_file():
        Path(path).write_bytes(data)
        return
    with atomic_file(path) as part:
        part.write_bytes(data)


def remove_stale_parts(folder: Path) -> None:
    """Remove what kills have left. Younger files may be those of another process."""
    for path in folder.glob(".*.part"):
        with suppress(OSError):  # another process may sweep too
            if time.time() - path.stat().st_mtime > _OLD:
                path.unlink()


_SIGNS = frozenset("=+-@\t\r\n")


def write_csv_row(file: IO[str], cells: Iterable[object]) -> None:
    """One row of CSV, to a file opened with ``newline=""``, without formulas for spreadsheets."""
    csv.writer(file, lineterminator="\n").writerow([csv_cell(cell) for cell in cells])


def csv_cell(cell: object) -> object:
    """A cell that a spreadsheet does not take for a formula; a lone sign is not one."""
    if not isinstance(cell, str):
        return cell
    begins = cell.lstrip(" ")[:1]
    return ("'" if begins in _SIGNS and len(cell) > 1 else "") + printable(cell)


def printable(text: str) -> str:
    """Text that any terminal and any file can hold: what is not printable becomes an escape."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def printable_lines(text: str) -> str:
    """The same of several lines, which stay lines; spaces that must not be broken stay too."""
    return re.sub(r"[^\n\xa0]+", lambda part: printable(part[0]), text)


IMAGE_SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jfif .png .apng .webp .gif .bmp .dib .tif .tiff .avif .avifs .jp2 .j2k "
    ".ppm .pgm .pbm .pnm .ico .tga .heic .heif".split()
)
"""Files of a folder that are taken for images, in lower case. Files given by name all are."""


class NotRegularError(OSError):
    """A path leads to a pipe, a socket or a device, which may never stop sending."""


@dataclass(frozen=True)
class UnlistedFolder:
    """A folder that cannot be listed, and why, in few words."""

    path: str
    reason: str


def open_file(path: str | os.PathLike[str], *, pipes: bool = False) -> IO[bytes]:
    """Open a regular file, or one of the `pipes`, for reading. Else raise an OSError at once."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(
            errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path)
        )
    if not (stat.S_ISREG(mode) or (pipes and stat.S_ISFIFO(mode))):
        raise NotRegularError(errno.EINVAL, "not a regular file", os.fspath(path))
    return open(path, "rb")


def points_outside(path: Path, folder: Path) -> bool:
    """Return whether a path, with all links followed, lies neither in a folder nor in its blobs.

    In the hub's cache the files of a revision, ``models--NAME/snapshots/REVISION``, are links to
    ``models--NAME/blobs``, which therefore belong to it.
    """
    real = folder.resolve()
    allowed = [real]
    for revision in (real, *real.parents):
        snapshots = revision.parent
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith(
            "models--"
        ):
            allowed.append((snapshots.parent / "blobs").resolve())
    try:
        target = path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or a null character
        return True
    return not any(target.is_relative_to(root) for root in allowed)


def walk_files(
    folder: str | os.PathLike[str], *, follow_links: bool = False
) -> Iterator[str | UnlistedFolder]:
    """Paths of all files in a folder and its subfolders, by name; then what could not be listed.

    Links to folders are left out, or followed, each folder once.
    """
    errors: list[OSError] = []
    seen: set[str] = set()
    for place, folders, files in os.walk(
        folder, onerror=errors.append, followlinks=follow_links
    ):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from (os.path.join(place, name) for name in sorted(files))
    yield from (UnlistedFolder(str(e.filename), e.strerror or str(e)) for e in errors)


def find_image_files(folder: str | os.PathLike[str]) -> Iterator[str | UnlistedFolder]:
    """What `walk_files` finds and looks like an image by its name."""
    for found in walk_files(folder):
        if (
            isinstance(found, UnlistedFolder)
            or os.path.splitext(found)[1].lower() in IMAGE_SUFFIXES
        ):
            yield found
