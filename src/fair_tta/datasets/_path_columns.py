"""Which column of a label file names images or features."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from fair_tta._io import IMAGE_SUFFIXES
from fair_tta.datasets._image_paths import find_image
from fair_tta.datasets._label_files import LabelRow, LabelTable
from fair_tta.datasets._label_values import MISSING_CELLS
from fair_tta.errors import DatasetError

if TYPE_CHECKING:
    from fair_tta.datasets._features import FeatureFile


PATH_COLUMNS = (
    "path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path",
    "image_file", "image_id", "image_name", "img", "img_path", "img_filename", "img_name",
    "id",
)  # fmt: skip
"""Where the names of images are looked for, if no column is given."""


ID_COLUMNS = (
    "id",
    "ids",
    *PATH_COLUMNS,
    "paths",
    "files",
    "filenames",
    "name",
    "names",
)
"""Where the ids of features are looked for, if no column is given."""


_TRIED = 100  # rows in which a column of paths is looked for


def find_path_column(
    table: LabelTable,
    images: Path,
    features: FeatureFile | None,
    others: Collection[str],
) -> str:
    """Return the column that names images or features: the one most of whose values are there.

    Args:
        table: the label file.
        images: the folder of the images.
        features: in place of images.
        others: columns that mean something else.

    Raises:
        DatasetError: there is none, or several fit that do not name the same images.
    """

    def is_there(value: str) -> bool:
        if features is not None:
            return features.find_id(value) is not None
        if os.path.isabs(value) or ".." in value:
            return False  # an uploaded file does not learn what else is on this machine
        return find_image(value, (images, table.path.parent))[1] is None

    # Any column may hold ids of features; paths end as files of images do
    header = [column for column in dict.fromkeys(table.header) if column not in others]
    usual = usual_path_column(header)
    values = _first_values(table, header, _TRIED)
    named = {column: sum(map(_is_image, values[column])) for column in header}
    columns = [c for c in header if named[c] or c == usual or features is not None]
    if not columns:
        raise DatasetError(
            f"{str(table.path)!r} has no column of paths that is known by its values or its name: "
            f"give it as `path_column` (it has {table.header})."
        )
    if len(columns) == 1:
        return columns[0]
    there = {column: sum(map(is_there, values[column])) for column in columns}
    if features is not None and not any(there.values()):
        # the first rows may be those without a vector
        values = _first_values(table, columns, None)
        there = {column: sum(map(is_there, values[column])) for column in columns}

    # A rival is a column of which at least half as much is there: the best may lack some images
    fitting = there if any(there.values()) else named
    most = max(fitting[column] for column in columns)
    if not most:
        return usual or columns[0]
    rivals = [column for column in columns if 2 * fitting[column] >= most]
    if len(rivals) == 1 or _name_the_same(table, rivals):
        return max(
            rivals, key=lambda column: (fitting[column], named[column], column == usual)
        )
    known = [column for column in rivals if column.lower() in ID_COLUMNS]
    if len(known) == 1 and fitting[known[0]] == most:
        return known[0]
    held = "paths of images" if features is None else f"ids of {features.path.name!r}"
    raise DatasetError(
        f"{table.path.name!r} has several columns that hold {held}: "
        f"{', '.join(map(repr, rivals))}; say which one names the rows with `path_column`."
    )


def _first_values(
    table: LabelTable, columns: Sequence[str], rows: int | None
) -> dict[str, set[str]]:
    """Return the different values of each column in the first rows, or in all; not empty ones."""
    values: dict[str, set[str]] = {column: set() for column in columns}
    for row in islice(table.rows(columns), rows):
        if isinstance(row, LabelRow):
            for column, cell in row.cells.items():
                values[column].add(cell)
    return {column: cells - {""} for column, cells in values.items()}


def _name_the_same(table: LabelTable, columns: Sequence[str]) -> bool:
    """Return whether columns are equal in each row, but for folders that some leave out."""
    for row in table.rows(columns):
        if isinstance(row, LabelRow):
            names = [row.cells[column].replace("\\", "/") for column in columns]
            longest = max(names, key=len)
            if not all(f"/{longest}".endswith(f"/{name}") and name for name in names):
                return False
    return True


_FILLED = 0.5  # of the rows at least have a name, if a column is one of names


def find_name_column(table: LabelTable, others: Collection[str]) -> str | None:
    """Return a column that names images, by its own name or its values; None if there is none.

    Values are names if some end like files of images, if all are different and some are text, or
    if they count the rows in another order.
    """
    columns = [column for column in dict.fromkeys(table.header) if column not in others]
    lowered = {column.lower(): column for column in reversed(columns)}
    usual = next((lowered[known] for known in ID_COLUMNS if known in lowered), None)
    if usual is not None:
        return usual
    rows = [row.cells for row in table.rows(columns) if isinstance(row, LabelRow)]
    for column in columns:
        cells = [
            row[column] for row in rows if row[column].lower() not in MISSING_CELLS
        ]
        if any(map(_is_image, cells)):
            return column
        is_filled = len(cells) > 1 and len(cells) >= _FILLED * len(rows)
        if is_filled and len(set(cells)) == len(cells) and _are_names(cells):
            return column
    return None


def _are_names(cells: Sequence[str]) -> bool:
    """Return whether different values name rows: text, or the numbers of rows in another order."""
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return True
    counted = sorted(numbers)
    is_count = counted == [counted[0] + i for i in range(len(counted))] and counted[
        0
    ] in (0, 1)
    return is_count and numbers != counted


def _is_image(name: str) -> bool:
    """Return whether something is named like a file of an image."""
    return Path(name).suffix.lower() in IMAGE_SUFFIXES


def usual_path_column(header: Sequence[str]) -> str | None:
    """The first of `PATH_COLUMNS` that is there, as it is spelt there."""
    names = {name.lower(): name for name in reversed(header)}
    return next((names[known] for known in PATH_COLUMNS if known in names), None)
