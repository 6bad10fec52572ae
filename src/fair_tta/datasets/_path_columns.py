"""Columns of label files that name images or stored features."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from fair_tta._io import IMAGE_SUFFIXES
from fair_tta.datasets._image_paths import find_image
from fair_tta.datasets._label_files import LabelRow, LabelTable
from fair_tta.datasets._label_values import MISSING_CELLS
from fair_tta.errors import DatasetError

if TYPE_CHECKING:
    from fair_tta.datasets._feature_files import FeatureFile


PATH_COLUMNS = (
    "path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path",
    "image_file", "image_id", "image_name", "img", "img_path", "img_filename", "img_name",
    "id",
)  # fmt: skip
"""Usual names of columns of paths, the first choice first."""

ID_COLUMNS = (
    "id", "ids", *PATH_COLUMNS, "paths", "files", "filenames", "name", "names",
)  # fmt: skip
"""Usual names of columns of ids, the first choice first."""

# Rows that are enough to tell what a column holds
_SAMPLED_ROWS = 100

# A column of names may lack some, but not as many as a column of remarks
_MIN_FILLED_SHARE = 0.5


def usual_column(header: Sequence[str], usual_names: Sequence[str]) -> str | None:
    """Return the column that has the first of the usual names, in any case."""
    by_lower_case = {column.lower(): column for column in reversed(header)}
    for name in usual_names:
        if name in by_lower_case:
            return by_lower_case[name]
    return None


def find_path_column(
    table: LabelTable,
    images: Path,
    features: FeatureFile | None,
    reserved: Collection[str],
) -> str:
    """Return the column that names images or features: the one most of whose values exist.

    Args:
        table: the label file.
        images: the folder of the images.
        features: stored features, if there are no images.
        reserved: columns that mean something else.

    Raises:
        DatasetError: there is none, or several fit that do not name the same images.
    """

    def exists(value: str) -> bool:
        if features is not None:
            return features.find_id(value) is not None
        # An uploaded label file must not find out which files this machine has
        if os.path.isabs(value) or ".." in value:
            return False
        _, problem = find_image(value, (images, table.path.parent))
        return problem is None

    # Any column may hold ids of features, but paths of images have the endings of images
    columns = _unreserved(table, reserved)
    usual = usual_column(columns, PATH_COLUMNS)
    n_image_names = _count_values(table, columns, _SAMPLED_ROWS, _is_image_name)
    if features is None:
        columns = [name for name in columns if n_image_names[name] or name == usual]
    if not columns:
        raise DatasetError(
            f"no column of {str(table.path)!r} looks like a column of paths: name it with "
            f"`path_column` (the columns are {table.header})."
        )
    if len(columns) == 1:
        return columns[0]

    # Compare how many values exist; without any, how many look like images
    scores = _count_values(table, columns, _SAMPLED_ROWS, exists)
    if features is not None and not any(scores.values()):
        # The first rows may be those without a vector
        scores = _count_values(table, columns, None, exists)
    if not any(scores.values()):
        scores = n_image_names
    best_score = max(scores[column] for column in columns)
    if best_score == 0:
        return usual or columns[0]

    # Images may be missing, so half of the best score makes a column a rival
    rivals = [column for column in columns if 2 * scores[column] >= best_score]
    if len(rivals) == 1 or _name_the_same(table, rivals):
        return max(rivals, key=lambda c: (scores[c], n_image_names[c], c == usual))
    usually_named = [column for column in rivals if column.lower() in ID_COLUMNS]
    if len(usually_named) == 1 and scores[usually_named[0]] == best_score:
        return usually_named[0]
    content = "paths of images"
    if features is not None:
        content = f"ids of {features.path.name!r}"
    raise DatasetError(
        f"{table.path.name!r} has several columns that hold {content}: "
        f"{', '.join(map(repr, rivals))}; say which one names the rows with `path_column`."
    )


def _unreserved(table: LabelTable, reserved: Collection[str]) -> list[str]:
    """Return the different columns of a table that are not reserved."""
    return [name for name in dict.fromkeys(table.header) if name not in reserved]


def _count_values(
    table: LabelTable,
    columns: Sequence[str],
    n_rows: int | None,
    is_counted: Callable[[str], bool],
) -> dict[str, int]:
    """Return how many different values of each column pass a check.

    Args:
        n_rows: looks at the first rows only; all if None.
    """
    values: dict[str, set[str]] = {column: set() for column in columns}
    for row in islice(table.rows(columns), n_rows):
        if isinstance(row, LabelRow):
            for column, cell in row.cells.items():
                values[column].add(cell)
    return {column: sum(map(is_counted, values[column] - {""})) for column in columns}


def _name_the_same(table: LabelTable, columns: Sequence[str]) -> bool:
    """Return True if columns agree in each row, except for folders that some leave out."""
    for row in table.rows(columns):
        if isinstance(row, LabelRow):
            names = [cell.replace("\\", "/") for cell in row.cells.values()]
            longest = f"/{max(names, key=len)}"
            for name in names:
                if not name or not longest.endswith(f"/{name}"):
                    return False
    return True


def find_name_column(table: LabelTable, reserved: Collection[str]) -> str | None:
    """Return a column that names images, by its own name or its values; None if there is none.

    Values are names if some end like files of images, if all are different and some are text, or
    if they count the rows in another order.
    """
    columns = _unreserved(table, reserved)
    usual = usual_column(columns, ID_COLUMNS)
    if usual is not None:
        return usual
    n_rows = 0
    cells_of: dict[str, list[str]] = {column: [] for column in columns}
    for row in table.rows(columns):
        if isinstance(row, LabelRow):
            n_rows += 1
            for column, cell in row.cells.items():
                if cell.lower() not in MISSING_CELLS:
                    cells_of[column].append(cell)
    for column, cells in cells_of.items():
        if any(map(_is_image_name, cells)):
            return column
        is_filled = len(cells) > 1 and len(cells) >= _MIN_FILLED_SHARE * n_rows
        is_unique = len(set(cells)) == len(cells)
        if is_filled and is_unique and _are_names(cells):
            return column
    return None


def _are_names(cells: Sequence[str]) -> bool:
    """Return True if different cells are text, or the numbers of the rows in another order."""
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return True
    in_order = sorted(numbers)
    row_numbers = (list(range(len(numbers))), list(range(1, len(numbers) + 1)))
    return in_order in row_numbers and numbers != in_order


def _is_image_name(name: str) -> bool:
    return Path(name).suffix.lower() in IMAGE_SUFFIXES
