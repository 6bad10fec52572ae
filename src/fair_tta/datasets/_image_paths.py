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

# A path that normalising does not change
_NORMAL_PATH = re.compile(r"\w[\w-]*(/\w[\w-]*)*(\.\w+)?", re.ASCII)


def image_problem(path: Path, name: str) -> Problem | None:
    """Return what is wrong with the file of an image, without opening it."""
    try:
        status = os.stat(path)
    except PermissionError:
        return Problem(ProblemKind.CLOSED_IMAGE, name)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return Problem(ProblemKind.MISSING_IMAGE, name)
    if stat.S_ISDIR(status.st_mode):
        return Problem(ProblemKind.MISSING_IMAGE, name)
    if not stat.S_ISREG(status.st_mode):
        return Problem(ProblemKind.NOT_A_FILE, name)
    return None if status.st_size else Problem(ProblemKind.EMPTY_IMAGE, name)


def find_images(
    names: Iterable[str], images: Path, label_file: Path
) -> tuple[dict[str, tuple[Path, Problem | None]], list[Problem]]:
    """Find the files that the cells of a label file mean.

    Paths are as written, or with the slashes and accents of this machine, in the folder of the
    images or beside the label file. Those of another machine are matched by their ends.

    Returns:
        ``{name: (path, what is wrong with it)}``, and notes about the folder as a whole.
    """
    folders = (images, label_file.parent)
    listed = [path for path in find_image_files(images) if isinstance(path, str)]
    located = {}
    missing = []
    for name in names:
        if name not in located:
            located[name] = find_image(name, folders)
            if _is_missing(located[name][1]):
                missing.append(name)
    notes = []

    # Match what is missing by the ends of the paths
    matches = {}
    for name, file in match_by_ends(missing, listed).items():
        relative = os.path.relpath(file, images)
        if relative != name:  # such as a link that leads nowhere
            matches[name] = relative
            located[name] = (Path(file), image_problem(Path(file), name))
    if matches:
        name, relative = next(iter(matches.items()))
        detail = f"{len(matches)} in {label_file.name}, such as {name} for {relative}"
        notes.append(Problem(ProblemKind.OTHER_MACHINE, detail))

    # Images without a row may be those that rows without an image should name
    named_files = set()
    n_missing = 0
    for path, problem in located.values():
        named_files.add(file_of(path))
        n_missing += _is_missing(problem)
    unnamed = []
    for file in listed:
        if file_of(Path(file)) not in named_files:
            unnamed.append(os.path.relpath(file, images))
    if unnamed:
        detail = (
            f"images without a row: {summarize_names(unnamed)}; "
            f"rows without an image: {n_missing}"
        )
        notes.append(Problem(ProblemKind.UNPAIRED, detail))
    return located, notes


def file_of(path: Path) -> str:
    """Return the same text for all paths of one file; links to folders are followed."""
    folder, name = os.path.split(path)
    real_path = os.path.join(real_folder(os.path.join(os.getcwd(), folder)), name)
    if sys.platform == "darwin":  # whose disks ignore how accents are composed
        real_path = unicodedata.normalize("NFC", real_path)
    return os.path.normcase(real_path)


@lru_cache(maxsize=2**16)  # a dataset may have a folder for each person
def real_folder(folder: str) -> str:
    """Return a folder without links."""
    try:
        return os.path.realpath(folder)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return folder


def _is_missing(problem: Problem | None) -> bool:
    return problem is not None and problem.kind is ProblemKind.MISSING_IMAGE


def find_image(name: str, folders: Sequence[Path]) -> tuple[Path, Problem | None]:
    """Return the file that a cell means: the first good one of its spellings in the folders.

    If there is none, the path is as written in the first folder.
    """
    reported = None
    for folder in folders:
        for spelling in dict.fromkeys(spellings(name)):
            path = folder / spelling
            problem = image_problem(path, name)
            if problem is None:
                return path, None
            # Report a file that cannot be used rather than one that is missing
            if reported is None or (_is_missing(reported) and not _is_missing(problem)):
                reported = problem
    return folders[0] / name, reported


def match_by_ends(names: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """Return ``{name: file}`` of paths of another machine, by their longest common ends.

    A match has to be the only file with that end, and a relative path has to be matched as a
    whole. Once a path is matched, others that begin with what differs in it lie below the same
    folder, or nowhere: if ``D:/faces/test/1.jpg`` is ``test/1.jpg``, then ``D:/faces/train/1.jpg``
    is not.
    """
    reversed_files = sorted(
        (_reversed_parts(os.path.abspath(file)), file) for file in files
    )
    candidates = []
    for name in names:
        # In this order, the files with the longest common end stand beside the name
        parts = _reversed_parts(name)
        index = bisect_left(reversed_files, (parts, ""))
        neighbours = reversed_files[max(0, index - 2) : index + 2]
        longest = 0
        best_files = []
        for file_parts, file in neighbours:
            length = _common_length(parts, file_parts)
            if length > longest:
                longest = length
                best_files = [file]
            elif length == longest:
                best_files.append(file)
        required = 1 if PureWindowsPath(name).anchor else len(parts)
        if 0 < required <= longest and len(best_files) == 1:
            differing_start = tuple(reversed(parts[longest:]))
            candidates.append((differing_start, name, best_files[0]))

    # Shorter starts first: they decide about all paths that begin with them
    candidates.sort(key=lambda candidate: len(candidate[0]))
    known_starts: set[tuple[str, ...]] = set()
    matches = {}
    for start, name, file in candidates:
        if not any(start[:n] in known_starts for n in range(1, len(start))):
            known_starts.add(start)
            matches[name] = file
    return matches


def _reversed_parts(path: str) -> list[str]:
    """Return the parts of a path of any machine, the file first, with composed accents."""
    composed = unicodedata.normalize("NFC", path)
    return list(reversed(PureWindowsPath(composed).parts))


def _common_length(parts: Sequence[str], other_parts: Sequence[str]) -> int:
    """Return how many elements two lists have in common at their beginnings."""
    length = 0
    for part, other_part in zip(parts, other_parts, strict=False):
        if part != other_part:
            break
        length += 1
    return length


def spellings(name: str) -> tuple[str, ...]:
    """Return a name as written, and with the slashes and accents of other machines."""
    with_slashes = name.replace("\\", "/")
    composed = unicodedata.normalize("NFC", with_slashes)
    decomposed = unicodedata.normalize("NFD", with_slashes)
    return name, with_slashes, composed, decomposed


def summarize_names(names: Sequence[str]) -> str:
    """Return how many names there are, and the first three of them."""
    first = ", ".join(map(repr, names[:3]))
    ellipsis = ", ..." if len(names) > 3 else ""
    return f"{len(names)} ({first}{ellipsis})"


def key_of(path: Path, images: Path, name: str) -> str:
    """Return a path relative to the folder of the images, or as written if it is outside."""
    if _NORMAL_PATH.fullmatch(name) and os.path.join(images, name) == str(path):
        return name  # by far the most frequent case
    absolute = os.path.abspath(path)
    images_folder = os.path.abspath(images)
    for folder in (images_folder, real_folder(images_folder)):
        beginning = os.path.normcase(os.path.join(folder, ""))
        if os.path.normcase(absolute).startswith(beginning):
            name = os.path.relpath(absolute, folder)
            break
    return os.path.normpath(name).replace(os.sep, "/")
