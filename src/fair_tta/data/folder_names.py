"""Labels that are the names of folders: ``photos/cat/indoors/1.jpg``."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fair_tta.data.problems import Problem, ProblemKind
from fair_tta.data.records import DatasetError
from fair_tta.files.whole_files import write_whole
from fair_tta.vision.files import Unlisted, pictures_below

FOLDER_LABELS = "folder-labels.csv"
"""What the label file is called."""


class FolderLabels(NamedTuple):
    """A label file that was made of the names of folders.

    Attributes:
        file: where it is.
        pictures: how many it names.
        problems: the pictures and folders that it does not name.
    """

    file: Path
    pictures: int
    problems: tuple[Problem, ...]


def write_labels_of_folders(
    images: str | os.PathLike[str], columns: Sequence[str], out: str | os.PathLike[str]
) -> FolderLabels:
    """Write a label file for pictures whose folders are named by their labels.

    Args:
        images: the folder of the pictures.
        columns: what the folders say, the outermost first.
        out: where `FOLDER_LABELS` is written, with a column ``path`` and these; a folder, made if
            it is not there.

    Raises:
        DatasetError: there are no pictures, or none so deep, or the file is somebody else's.
    """
    root = Path(images)
    if not os.path.isdir(root):
        raise DatasetError(f"`images` should be a folder (got {str(root)!r}).")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", *columns])
    header = text.getvalue()
    count, problems = 0, []
    for found in pictures_below(str(root)):
        row = _row(found, root, len(columns))
        if isinstance(row, Problem):
            problems.append(row)
        else:
            count += 1
            writer.writerow(row)
    if not count:
        layout = "/".join(column.upper() for column in columns)
        higher = sum(problem.kind is ProblemKind.TOO_HIGH for problem in problems)
        raise DatasetError(
            f"without a label file the folders of {str(root)!r} should be the labels, "
            f"{root.name}/{layout}/picture.jpg ({higher} pictures lie higher, none so deep): give "
            "`labels_csv`, or sort the pictures into folders."
        )
    file = Path(out) / FOLDER_LABELS
    file.parent.mkdir(parents=True, exist_ok=True)
    _check_is_ours(file, header.encode())
    write_whole(file, text.getvalue().encode())
    return FolderLabels(file, count, tuple(problems))


def _row(found: str | Unlisted, root: Path, depth: int) -> list[str] | Problem:
    """The path and its labels."""
    if isinstance(found, Unlisted):
        place = Path(found.path).relative_to(root).as_posix()
        return Problem(ProblemKind.CLOSED_FOLDER, f"{place} ({found.reason})")
    path = Path(found).relative_to(root)
    try:
        path.as_posix().encode()
    except UnicodeEncodeError:
        return Problem(ProblemKind.NOT_UNICODE, path.as_posix())
    if len(path.parts) <= depth:
        return Problem(ProblemKind.TOO_HIGH, path.as_posix())
    return [path.as_posix(), *path.parts[:depth]]


def _check_is_ours(file: Path, header: bytes) -> None:
    if not file.exists():
        return
    with file.open("rb") as there:
        begins = there.readline()
    if begins != header:
        raise DatasetError(
            f"{str(file)!r} is there and has other columns than it would get: move it away, or "
            "choose another place (--out)."
        )
