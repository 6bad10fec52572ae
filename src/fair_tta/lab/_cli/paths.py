"""Which images a command is about: files, folders, or paths from stdin, one after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator

import typer

from fair_tta._io import Unlisted, images_below


def find_images(paths: Iterable[str], *, null: bool = False) -> Iterator[str | Unlisted]:
    """Paths of images, without holding all of them in memory, and folders that are closed.

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


def chosen_images(context: typer.Context) -> Callable[[], Iterable[str | Unlisted]]:
    """The images of a command, each time it is called: all, the first --limit or a --sample.

    Paths on stdin are read once: with a --reference, which needs them twice, they are kept.
    """
    from fair_tta.lab.data._sampling import choose

    given = context.params
    paths, seed = given["images"], given["seed"]

    def group(item: str | Unlisted) -> str | None:
        return "" if isinstance(item, str) else None  # folders are reported in any case

    def found() -> Iterable[str | Unlisted]:
        every = find_images(paths, null=given["null"])
        key = lambda path: os.path.normpath(str(path))  # noqa: E731
        return choose(every, given["limit"], given["sample"], seed, key=key, group=group)

    if given["reference"] is None or "-" not in paths:
        return found
    every = list(found())
    return lambda: every


def _expand(path: str) -> Iterator[str | Unlisted]:
    if os.path.isdir(path):
        yield from images_below(path)
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
