"""Labels that are the names of folders: ``photos/cat/indoors/1.jpg``."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from fair_tta.data.records import DatasetError
from fair_tta.files.whole_files import write_whole
from fair_tta.vision.files import pictures_below


def write_labels_of_folders(
    images: str | os.PathLike[str], columns: Sequence[str], labels: str | os.PathLike[str]
) -> int:
    """Write a label file for pictures whose folders are named by their labels.

    Args:
        images: the folder of the pictures.
        columns: what the folders say, the outermost first.
        labels: the CSV file, with a column ``path`` and these.

    Returns:
        How many pictures it names.

    Raises:
        DatasetError: there are none, or none so deep.
    """
    root = Path(images)
    if not os.path.isdir(root):
        raise DatasetError(f"`images` should be a folder (got {str(root)!r}).")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", *columns])
    count = shallow = 0
    for found in pictures_below(str(root)):
        if not isinstance(found, str):
            continue  # a folder that is closed
        path = Path(found).relative_to(root)
        names = path.parts[: len(columns)]
        if len(path.parts) <= len(columns):
            shallow += 1
            continue
        count += 1
        writer.writerow([path.as_posix(), *names])
    if not count:
        layout = "/".join(column.upper() for column in columns)
        raise DatasetError(
            f"without a label file the folders of {str(root)!r} should be the labels, "
            f"{root.name}/{layout}/picture.jpg ({shallow} pictures lie higher, none so deep): give "
            "`labels_csv`, or sort the pictures into folders."
        )
    write_whole(labels, text.getvalue().encode("utf-8", "surrogateescape"))
    return count
