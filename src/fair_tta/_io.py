"""Files: write them completely or not at all, keep CSV cells text, open and list them safely."""

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

# On Windows a virus scanner opens new files for a moment: seconds to wait between attempts.
_REPLACE_PAUSES = (0.01, 0.1, 1.0)

# Partial files older than a day, in seconds, belong to no running process.
_STALE_AGE_SECONDS = 24 * 3600


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that then replaces `path`; if writing fails, `path` is unchanged."""
    target = Path(os.path.realpath(path))  # a link stays a link
    part = target.with_name(f".{uuid4().hex}.part")
    try:
        yield part
        replace_file(part, target)
    finally:
        part.unlink(missing_ok=True)


def replace_file(source: Path, target: Path) -> None:
    """Move a file over another one, waiting for Windows to release it."""
    for pause in _REPLACE_PAUSES if sys.platform == "win32" else ():
        with suppress(PermissionError):
            os.replace(source, target)
            return
        time.sleep(pause)
    # The last attempt raises if another program keeps the file open.
    os.replace(source, target)


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a small file completely or not at all; a terminal or a pipe is written directly."""
    if Path(path).exists() and not Path(path).is_file():
        Path(path).write_bytes(data)
        return
    with atomic_file(path) as part:
        part.write_bytes(data)


def remove_stale_parts(folder: Path) -> None:
    """Remove partial files of killed processes. Younger files may be those of a running one."""
    for path in folder.glob(".*.part"):
        with suppress(OSError):  # another process may remove it too
            if time.time() - path.stat().st_mtime > _STALE_AGE_SECONDS:
                path.unlink()


# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA_STARTS = frozenset("=+-@\t\r\n")


def write_csv_row(file: IO[str], cells: Iterable[object]) -> None:
    """Write one row of CSV, without formulas for spreadsheets.

    The file should be opened with ``newline=""``.
    """
    csv.writer(file, lineterminator="\n").writerow([csv_cell(cell) for cell in cells])


def csv_cell(cell: object) -> object:
    """Return a cell that no spreadsheet takes for a formula; a lone sign is not one."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    is_formula = cell.lstrip(" ")[:1] in _FORMULA_STARTS and len(cell) > 1
    return f"'{text}" if is_formula else text


def printable(text: str) -> str:
    """Return text that any terminal and file can hold: other characters become escapes."""
    characters = [
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    ]
    return "".join(characters)


def printable_lines(text: str) -> str:
    """Return `printable` text in which line ends and non-breaking spaces stay."""
    return re.sub(r"[^\n\xa0]+", lambda part: printable(part[0]), text)


IMAGE_SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jfif .png .apng .webp .gif .bmp .dib .tif .tiff .avif .avifs .jp2 .j2k "
    ".ppm .pgm .pbm .pnm .ico .tga .heic .heif".split()
)
"""Suffixes of files that are taken for images in a folder. Files given by name all are."""


class NotRegularError(OSError):
    """A path leads to a pipe, a socket or a device, which may never stop sending."""


@dataclass(frozen=True)
class UnlistedFolder:
    """A folder that cannot be listed, and the reason in few words."""

    path: str
    reason: str


def open_file(path: str | os.PathLike[str], *, pipes: bool = False) -> IO[bytes]:
    """Open a regular file, or a pipe if allowed, for reading; else raise an OSError at once."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(
            errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path)
        )
    if not (stat.S_ISREG(mode) or (pipes and stat.S_ISFIFO(mode))):
        raise NotRegularError(errno.EINVAL, "not a regular file", os.fspath(path))
    return open(path, "rb")


def points_outside_model(path: Path, folder: Path) -> bool:
    """Return whether a path, with all links followed, lies neither in a folder nor in its blobs.

    In the hub's cache the files of a revision, ``models--NAME/snapshots/REVISION``, are links to
    ``models--NAME/blobs``, which therefore belong to it.
    """
    real_folder = folder.resolve()
    allowed = [real_folder]
    for revision in (real_folder, *real_folder.parents):
        snapshots = revision.parent
        model = snapshots.parent
        if snapshots.name == "snapshots" and model.name.startswith("models--"):
            allowed.append((model / "blobs").resolve())
    try:
        target = path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or a null character
        return True
    return not any(target.is_relative_to(root) for root in allowed)


def walk_files(
    folder: str | os.PathLike[str], *, follow_links: bool = False
) -> Iterator[str | UnlistedFolder]:
    """Yield the paths of all files below a folder, by name; then the folders it cannot list.

    Links to folders are left out, or followed, each folder once.
    """
    errors: list[OSError] = []
    visited: set[str] = set()
    for current, subfolders, names in os.walk(
        folder, onerror=errors.append, followlinks=follow_links
    ):
        real = os.path.realpath(current)
        if real in visited:
            subfolders.clear()  # `os.walk` then goes no deeper
            continue
        visited.add(real)
        subfolders.sort()
        for name in sorted(names):
            yield os.path.join(current, name)
    for error in errors:
        yield UnlistedFolder(str(error.filename), error.strerror or str(error))


def find_image_files(folder: str | os.PathLike[str]) -> Iterator[str | UnlistedFolder]:
    """Yield the entries of `walk_files` that have a suffix of images, or cannot be listed."""
    for entry in walk_files(folder):
        if (
            isinstance(entry, UnlistedFolder)
            or os.path.splitext(entry)[1].lower() in IMAGE_SUFFIXES
        ):
            yield entry
