"""Which pictures a command is about: files, folders, or paths from stdin, one after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fair_tta._io import Unlisted, pictures_below

if TYPE_CHECKING:
    from fair_tta.lab._runs.bank import ImageSource

NO_PICTURE = (
    "no picture was found: name files, folders with files such as .jpg or .png, or - to read paths "
    "from stdin."
)


def find_pictures(paths: Iterable[str], *, null: bool = False) -> Iterator[str | Unlisted]:
    """Paths of pictures, without holding all of them in memory, and folders that are closed.

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


def some_pictures(
    found: Iterator[str | Unlisted], limit: int | None, sample: int | None, seed: int
) -> Iterable[str | Unlisted]:
    """The first so many of them, or a sample of so many that the seed chooses."""
    from fair_tta.lab.data._sampling import choose

    def group(item: str | Unlisted) -> str | None:
        return "" if isinstance(item, str) else None  # folders are told in any case

    return choose(found, limit, sample, seed, key=lambda p: os.path.normpath(str(p)), group=group)


def chosen_pictures(
    paths: list[str],
    *,
    null: bool,
    limit: int | None,
    sample: int | None,
    seed: int,
    often: bool = False,
) -> Callable[[], Iterable[str | Unlisted]]:
    """What a command is about, each time it is called.

    Args:
        paths: of `find_pictures`, as `null`.
        limit: of `some_pictures`, as `sample` and `seed`.
        often: whether it is called more than once; then all paths from stdin are read first.
    """

    def found() -> Iterable[str | Unlisted]:
        return some_pictures(find_pictures(paths, null=null), limit, sample, seed)

    if not often or "-" not in paths:
        return found
    every = list(found())
    return lambda: every


def image_sources(found: Iterable[str | Unlisted]) -> Iterator[ImageSource]:
    """All that are no closed folders."""
    return (asked for one in found if (asked := image_source(one)) is not None)


def image_source(found: str | Unlisted) -> ImageSource | None:
    """For the runner; None for a folder that is closed."""
    from fair_tta.lab._runs.bank import ImageSource

    return None if isinstance(found, Unlisted) else ImageSource(found, os.path.abspath(found))


def as_named(problem: str, path: str) -> str:
    """A message about a file in the words of whoever named it."""
    return problem.replace(repr(os.path.abspath(path)), repr(path))


def closed_folder(found: Unlisted) -> str:
    """What to say of it."""
    return f"cannot look into the folder {found.path!r}: {found.reason}"


def rows_file(out: Path) -> Path:
    """The file of finished rows in a folder, which is created if it does not exist."""
    from fair_tta.lab._runs.store import ROWS

    out.mkdir(parents=True, exist_ok=True)
    return out / ROWS


def _expand(path: str) -> Iterator[str | Unlisted]:
    if os.path.isdir(path):
        yield from pictures_below(path)
    else:
        yield path


def _from_stdin(end: bytes) -> Iterator[str]:
    rest = b""
    while chunk := sys.stdin.buffer.read1(1 << 16):  # type: ignore[union-attr]
        *whole, rest = (rest + chunk).split(end)
        yield from filter(None, map(_decoded, whole))
    if rest:
        yield _decoded(rest)


def _decoded(path: bytes) -> str:
    path = path.removesuffix(b"\r")
    try:
        return os.fsdecode(path)
    except UnicodeDecodeError:  # on Windows, whose consoles write in a code page of their own
        return path.decode("oem", "replace")
