"""Files that are there as a whole or not at all, whoever else is writing them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
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
