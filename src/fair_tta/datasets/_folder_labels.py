"""Labels that are the names of folders."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from fair_tta._io import UnlistedFolder, find_image_files, write_atomically
from fair_tta.datasets._records import Problem, ProblemKind
from fair_tta.errors import DatasetError

FOLDER_LABELS = "folder-labels.csv"
"""The name of the label file that is written."""


def write_labels_of_folders(
    images: str | os.PathLike[str], columns: Sequence[str], out: str | os.PathLike[str]
) -> tuple[Path, int, tuple[Problem, ...]]:
    """Write a label file for images whose folders are named by their labels.

    It has a column ``path`` and one for each level of folders, the outermost first.

    Returns:
        The file, the number of images in it, and the images and folders that it does not name.
    """
    root = Path(images)
    if not os.path.isdir(root):  # `Path.is_dir` raises for names that are too long
        raise DatasetError(
            f"`images` should be a folder (got {str(root)!r}).", argument="images"
        )
    # Sort the images into rows of the file and problems
    rows = []
    problems = []
    for entry in find_image_files(str(root)):
        row = _row_of_image(entry, root, len(columns))
        if isinstance(row, Problem):
            problems.append(row)
        else:
            rows.append(row)
    if not rows:
        layout = "/".join(column.upper() for column in columns)
        n_higher = sum(problem.kind is ProblemKind.TOO_HIGH for problem in problems)
        raise DatasetError(
            f"without a label file the folders of {str(root)!r} should be the labels, "
            f"{root.name}/{layout}/image.jpg, but no image lies that deep ({n_higher} lie higher): "
            "give `labels_csv`, or sort the images into folders."
        )

    # An earlier file is replaced only if it looks as if it was written here
    header = ["path", *columns]
    file = Path(out) / FOLDER_LABELS
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        with file.open(encoding="utf-8", errors="replace", newline="") as existing:
            if next(csv.reader(existing), None) != header:
                raise DatasetError(
                    f"{str(file)!r} exists and has other columns than it would get: move it "
                    "away, or choose another folder (--out)."
                )
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_atomically(file, text.getvalue().encode())
    return file, len(rows), tuple(problems)


def _row_of_image(
    entry: str | UnlistedFolder, root: Path, n_labels: int
) -> list[str] | Problem:
    """Return the path of an image and the names of its outer folders, or why it is left out."""
    if isinstance(entry, UnlistedFolder):
        folder = Path(entry.path).relative_to(root).as_posix()
        return Problem(ProblemKind.CLOSED_FOLDER, f"{folder} ({entry.reason})")
    path = Path(entry).relative_to(root)
    name = path.as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        return Problem(ProblemKind.NOT_UNICODE, name)
    if len(path.parts) <= n_labels:
        return Problem(ProblemKind.TOO_HIGH, name)
    return [name, *path.parts[:n_labels]]
