"""Any folder of images with a CSV file of labels, row by row."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from fair_tta.data.label_files import LabelTable
from fair_tta.data.problems import Problem, ProblemKind
from fair_tta.data.records import Dataset, DatasetError, Record, collect
from fair_tta.data.source import image_problem
from fair_tta.data.tasks import BenchmarkTask

PATH_COLUMNS = (
    "path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path",
    "image_file", "image_id", "image_name", "img", "img_path", "img_filename", "img_name",
)  # fmt: skip
"""Where the names of images are looked for, if no column is given."""

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "null"})
"""Cells that say nothing, in lower case."""


def iter_folder(
    images_dir: str | os.PathLike[str],
    labels_csv: str | os.PathLike[str],
    *,
    target_column: str,
    sensitive_columns: str | Sequence[str],
    path_column: str | None = None,
    allowed: Mapping[str, Collection[str]] | None = None,
    check_images: bool = True,
) -> Iterator[Record | Problem]:
    """Read a file of labels row by row: a record, or what is wrong with the row.

    Only one row is in memory at a time, so it is not noticed here if an image comes twice;
    `read_folder` does. A missing folder, file or column is an error at once.

    The file may be UTF-8 with or without a mark, UTF-16 or Windows-1252, separated by commas,
    semicolons, tabs or bars; other columns are ignored. Paths are absolute, or relative to
    `images_dir` or, failing that, to the folder of the file.

    Args:
        images_dir: the folder of the images.
        labels_csv: the file of labels, with a header.
        target_column: the column of the target.
        sensitive_columns: the columns of sensitive attributes, which keep these names.
        path_column: the column of the paths; the first of `PATH_COLUMNS` there is, if None.
        allowed: for some columns the values that are expected; other values are problems.
        check_images: whether images must be there and not empty.
    """
    images, labels = Path(images_dir), Path(labels_csv)
    columns = [sensitive_columns] if isinstance(sensitive_columns, str) else [*sensitive_columns]
    if not columns:
        raise DatasetError("`sensitive_columns` should name at least one column (got none).")
    if check_images and not os.path.isdir(images):
        raise DatasetError(f"`images_dir` should be a folder (got {str(images)!r}).")
    if not os.path.isfile(labels):
        raise DatasetError(f"`labels_csv` should be a file (got {str(labels)!r}).")
    given = [] if path_column is None else [path_column]
    table = LabelTable(labels, [*given, target_column, *columns])
    if path_column is None:
        path_column = _path_column(table)
    return _rows(table, images, (path_column, target_column, *columns), allowed or {}, check_images)


def read_folder(
    images_dir: str | os.PathLike[str],
    labels_csv: str | os.PathLike[str],
    *,
    target_column: str,
    sensitive_columns: str | Sequence[str],
    path_column: str | None = None,
    task: BenchmarkTask | None = None,
    check_images: bool = True,
) -> Dataset:
    """Read a folder of images with a file of labels; see `iter_folder` for what it may look like.

    Args:
        images_dir: the folder of the images.
        labels_csv: the file of labels, with a header.
        target_column: the column of the target.
        sensitive_columns: the columns of sensitive attributes, which keep these names.
        path_column: the column of the paths; the first of `PATH_COLUMNS` there is, if None.
        task: names and template, if they should go with the dataset. Its sensitive attributes are
            the columns, and values that it does not name are problems.
        check_images: whether images must be there and not empty.
    """
    columns = (sensitive_columns,) if isinstance(sensitive_columns, str) else sensitive_columns
    allowed: dict[str, Collection[str]] = {}
    if task is not None:
        if sorted(task.sensitive) != sorted(columns):
            raise DatasetError(
                f"`task` should have the sensitive attributes {sorted(columns)} "
                f"(got {sorted(task.sensitive)})."
            )
        allowed = {target_column: task.targets, **task.sensitive}
    rows = iter_folder(
        images_dir,
        labels_csv,
        target_column=target_column,
        sensitive_columns=columns,
        path_column=path_column,
        allowed=allowed,
        check_images=check_images,
    )
    records, problems = collect(rows, file_of)
    if not records:
        raise DatasetError(f"no usable record in {os.fspath(labels_csv)!r}.\n{problems}")
    parameters = {"labels": Path(labels_csv).name, "target": target_column}
    return Dataset(Path(images_dir).name, records, problems, parameters, task)


def _path_column(table: LabelTable) -> str:
    names = {name.lower(): name for name in reversed(table.header)}
    for candidate in PATH_COLUMNS:
        if candidate in names:
            return names[candidate]
    raise DatasetError(
        f"{str(table.path)!r} has no column of paths that is known by its name: give it as "
        f"`path_column` (it has {table.header})."
    )


def _rows(
    table: LabelTable,
    images: Path,
    columns: tuple[str, ...],
    allowed: Mapping[str, Collection[str]],
    check_images: bool,
) -> Iterator[Record | Problem]:
    name_column, target_column, *sensitive = columns
    for row in table.rows(columns):
        if isinstance(row, Problem):
            yield row
            continue
        cells, where = row.cells, f"{table.path.name} line {row.line}"
        blank = [name for name in columns if cells[name].lower() in MISSING]
        if blank:
            yield Problem(ProblemKind.MISSING_VALUE, f"{where} ({', '.join(blank)})")
            continue
        odd = [name for name in columns if cells[name] not in allowed.get(name, cells.values())]
        if odd:
            what = ", ".join(f"{name} {cells[name]!r}" for name in odd)
            yield Problem(ProblemKind.UNKNOWN_VALUE, f"{where} ({what})")
            continue
        name = cells[name_column]
        path, problem = _find(name, images, table.path.parent)
        if check_images and problem is not None:
            yield problem
            continue
        attributes = {attribute: cells[attribute] for attribute in sensitive}
        yield Record(path, cells[target_column], attributes, _key(path, images, name))


def file_of(record: Record) -> str:
    """One text for one file, however its path is spelt; links to folders are followed."""
    place = os.path.join(_real(os.path.join(os.getcwd(), record.path.parent)), record.path.name)
    if sys.platform == "darwin":  # whose disks do not tell these apart
        place = unicodedata.normalize("NFC", place)
    return os.path.normcase(place)


def _key(path: Path, images: Path, name: str) -> str:
    """The name within the folder of the pictures; outside of it as it is written."""
    found, asked = os.path.abspath(path), os.path.abspath(images)
    for folder in (asked, _real(asked)):
        if os.path.normcase(found).startswith(os.path.normcase(os.path.join(folder, ""))):
            name = os.path.relpath(found, folder)
            break
    return os.path.normpath(name).replace(os.sep, "/")


@lru_cache(maxsize=2**16)  # a dataset may have a folder for each person
def _real(folder: str) -> str:
    try:
        return os.path.realpath(folder)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return folder


def _find(name: str, images: Path, beside: Path) -> tuple[Path, Problem | None]:
    """The file that a cell means: as written, or with the slashes and accents of this machine."""
    plain = name.replace("\\", "/")
    forms = dict.fromkeys(
        (name, plain, *(unicodedata.normalize(form, plain) for form in ("NFC", "NFD")))
    )
    places = [folder / form for folder in (images, beside) for form in forms]
    problems = []
    for path in places:
        problem = image_problem(path, name)
        if problem is None:
            return path, None
        problems.append(problem)
    there = [problem for problem in problems if problem.kind is not ProblemKind.MISSING_IMAGE]
    return places[0], (there or problems)[0]
