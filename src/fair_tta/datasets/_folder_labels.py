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


def write_labels_of_folders(
    images: str | os.PathLike[str], columns: Sequence[str], out: str | os.PathLike[str]
) -> tuple[Path, int, tuple[Problem, ...]]:
    """Write `FOLDER_LABELS` in `out` for images whose folders are named by their labels.

    It has a column ``path`` and one for each level of folders, the outermost first. Returned are
    the file, how many images it names, and the images and folders that it does not name.
    """
    root = Path(images)
    if not os.path.isdir(root):
        raise DatasetError(
            f"`images` should be a folder (got {str(root)!r}).", argument="images"
        )
    rows: list[list[str]] = []
    problems: list[Problem] = []
    for found in find_image_files(str(root)):
        row = _row(found, root, len(columns))
        if isinstance(row, Problem):
            problems.append(row)
        else:
            rows.append(row)
    if not rows:
        layout = "/".join(column.upper() for column in columns)
        higher = sum(problem.kind is ProblemKind.TOO_HIGH for problem in problems)
        raise DatasetError(
            f"without a label file the folders of {str(root)!r} should be the labels, "
            f"{root.name}/{layout}/image.jpg ({higher} images lie higher, none so deep): give "
            "`labels_csv`, or sort the images into folders."
        )
    header = ["path", *columns]
    file = Path(out) / FOLDER_LABELS
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        with file.open(encoding="utf-8", errors="replace", newline="") as there:
            if next(csv.reader(there), None) != header:
                raise DatasetError(
                    f"{str(file)!r} is there and has other columns than it would get: move it "
                    "away, or choose another place (--out)."
                )
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_atomically(file, text.getvalue().encode())
    return file, len(rows), tuple(problems)


def _row(found: str | UnlistedFolder, root: Path, depth: int) -> list[str] | Problem:
    """The path and its labels."""
    if isinstance(found, UnlistedFolder):
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
