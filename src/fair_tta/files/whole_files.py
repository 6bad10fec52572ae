"""Files that are there as a whole or not at all, whoever else is writing them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where to write a file; when that is done it takes its place, and if it fails nothing does."""
    place = Path(os.path.realpath(path))  # a link stays a link
    part = place.with_name(f".{uuid4().hex}.part")
    try:
        yield part
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """A small file at once. What is no regular file, such as a terminal, is written to as it is."""
    if Path(path).exists() and not Path(path).is_file():
        Path(path).write_bytes(data)
        return
    with whole_file(path) as part:
        part.write_bytes(data)
