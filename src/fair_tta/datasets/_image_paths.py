"""Paths of images as label files write them, and the files that they mean."""

from __future__ import annotations

import os
import re
import stat
import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PureWindowsPath

from fair_tta._io import find_image_files
from fair_tta.datasets._records import Problem, ProblemKind

# a path with nothing to make plain
_PLAIN_PATH = re.compile(r"\w[\w-]*(/\w[\w-]*)*(\.\w+)?", re.ASCII)


def image_problem(path: Path, name: str) -> Problem | None:
    """Whether an image is there, without opening it."""
    try:
        found = os.stat(path)
    except PermissionError:
        return Problem(ProblemKind.CLOSED_IMAGE, name)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return Problem(ProblemKind.MISSING_IMAGE, name)
    if stat.S_ISDIR(found.st_mode):
        return Problem(ProblemKind.MISSING_IMAGE, name)
    if not stat.S_ISREG(found.st_mode):
        return Problem(ProblemKind.NOT_A_FILE, name)
    return None if found.st_size else Problem(ProblemKind.EMPTY_IMAGE, name)


def find_images(
    names: Iterable[str], images: Path, labels: Path
) -> tuple[dict[str, tuple[Path, Problem | None]], list[Problem]]:
    """The files that cells mean, or why there is none; and notes about the folder as a whole.

    Paths are as written, or with the slashes and accents of this machine, in the folder of the
    images or beside the label file. Those of another machine are known by their ends.
    """
    found = {
        name: find_image(name, (images, labels.parent)) for name in dict.fromkeys(names)
    }
    there = [path for path in find_image_files(images) if isinstance(path, str)]
    missing = [name for name, (_, why) in found.items() if _is_missing(why)]
    ends = {
        name: file
        for name, file in _match_ends(missing, there).items()
        if os.path.relpath(file, images) != name  # such as a link that leads nowhere
    }
    found |= {
        name: (Path(file), image_problem(Path(file), name))
        for name, file in ends.items()
    }
    notes = []
    if ends:
        name, file = next(iter(ends.items()))
        what = f"{len(ends)} in {labels.name}, such as {name} for {os.path.relpath(file, images)}"
        notes.append(Problem(ProblemKind.OTHER_MACHINE, what))
    named = {file_of(path) for path, _ in found.values()}
    other = [
        os.path.relpath(path, images)
        for path in there
        if file_of(Path(path)) not in named
    ]
    if other:
        lost = sum(_is_missing(why) for _, why in found.values())
        what = f"images without a row: {summarize_names(other)}; rows without an image: {lost}"
        notes.append(Problem(ProblemKind.UNPAIRED, what))
    return found, notes


def file_of(path: Path) -> str:
    """One text for one file, however its path is spelt; links to folders are followed."""
    folder, name = os.path.split(path)
    return _file_in(os.getcwd(), folder, name)


def _file_in(here: str, folder: str, name: str) -> str:
    """`file_of` a name in a folder, which may be relative to the current one."""
    place = os.path.join(_real_below(here, folder), name)
    if sys.platform == "darwin":  # whose disks do not tell these apart
        place = unicodedata.normalize("NFC", place)
    return os.path.normcase(place)


@lru_cache(maxsize=2**16)
def _real_below(here: str, folder: str) -> str:
    """Return a folder without links."""
    return real_folder(os.path.join(here, folder))


@lru_cache(maxsize=2**16)  # a dataset may have a folder for each person
def real_folder(folder: str) -> str:
    """Without links."""
    try:
        return os.path.realpath(folder)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return folder


def _is_missing(problem: Problem | None) -> bool:
    return problem is not None and problem.kind is ProblemKind.MISSING_IMAGE


def find_image(name: str, folders: Sequence[Path]) -> tuple[Path, Problem | None]:
    """The file that a cell means: as written, or with the slashes and accents of this machine."""
    places = list(
        dict.fromkeys(folder / form for folder in folders for form in spellings(name))
    )
    problems = []
    for path in places:
        problem = image_problem(path, name)
        if problem is None:
            return path, None
        problems.append(problem)
    return places[0], min(problems, key=_is_missing)


def _match_ends(names: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """``{name: file}`` of paths of another machine: the file with the longest common end.

    There should be one such file. Of a relative path the whole should be its end. Once a path is
    found, others that begin with what differs in it lie below the same folder, or nowhere: if
    ``D:/faces/test/1.jpg`` is ``test/1.jpg``, then ``D:/faces/train/1.jpg`` is not.
    """

    def backwards(path: str) -> list[str]:
        return [*map(_composed, reversed(PureWindowsPath(path).parts))]

    ends = sorted((backwards(os.path.abspath(file)), file) for file in files)
    pairs = []
    for name in names:
        parts = backwards(name)
        place = bisect_left(ends, (parts, ""))
        close = ends[max(0, place - 2) : place + 2]
        shared = [len(os.path.commonprefix([parts, end])) for end, _ in close]  # noqa: RUF071
        most = max(shared, default=0)
        least = 1 if PureWindowsPath(name).anchor else len(parts)
        if 0 < least <= most and shared.count(most) == 1:
            begins = tuple(reversed(parts[most:]))
            pairs.append((begins, name, close[shared.index(most)][1]))
    known: set[tuple[str, ...]] = set()
    found = {}
    for begins, name, file in sorted(pairs, key=lambda pair: len(pair[0])):
        if not any(begins[:n] in known for n in range(1, len(begins))):
            known.add(begins)
            found[name] = file
    return found


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def spellings(name: str) -> tuple[str, ...]:
    """A name as written, and with the slashes and accents of other machines."""
    plain = name.replace("\\", "/")
    return name, plain, *(unicodedata.normalize(form, plain) for form in ("NFC", "NFD"))


def summarize_names(names: Sequence[str]) -> str:
    """How many there are, and the first of them."""
    more = ", ..." if len(names) > 3 else ""
    return f"{len(names)} ({', '.join(map(repr, names[:3]))}{more})"


def key_of(path: Path, images: Path, name: str) -> str:
    """The name within the folder of the images; outside of it as it is written."""
    if _PLAIN_PATH.fullmatch(name) and os.path.join(images, name) == str(path):
        return name
    found, asked = os.path.abspath(path), os.path.abspath(images)
    for folder in (asked, real_folder(asked)):
        if os.path.normcase(found).startswith(
            os.path.normcase(os.path.join(folder, ""))
        ):
            name = os.path.relpath(found, folder)
            break
    return os.path.normpath(name).replace(os.sep, "/")
