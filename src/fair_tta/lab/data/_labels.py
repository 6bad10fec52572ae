"""The labels of a folder of images: a CSV file, or the names of its folders."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sys
import unicodedata
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fair_tta._io import Unlisted, pictures_below, write_whole
from fair_tta.errors import DatasetError
from fair_tta.lab.data._label_files import LabelTable, image_problem
from fair_tta.lab.data._records import Dataset, Problem, ProblemKind, Record, collect
from fair_tta.lab.data._tasks import BenchmarkTask

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


MOST_VALUES = 1000
"""More different values than this in a column are a mistake."""


@dataclass(frozen=True)
class Labels:
    """Where pictures and labels are, and what the columns mean.

    Args:
        images: the folder of the pictures.
        file: the CSV file; `fair_tta.lab.data.iter_folder` says what it may look like.
        target: the column of the target.
        sensitive: the columns of sensitive attributes, which keep these names.
        path: the column of the paths; found by its name if None.
        rename: ``{column: {value in the file: label}}``; several values may get the same label.
        left_out: what is missing in the file, listed after its rows.
    """

    images: Path
    file: Path
    target: str
    sensitive: tuple[str, ...]
    path: str | None = None
    rename: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: tuple[Problem, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.columns)) < len(self.columns):
            raise DatasetError(f"columns should differ (got {list(self.columns)}).")
        unknown = [column for column in self.rename if column not in self.columns]
        if unknown:
            raise DatasetError(
                f"`rename` should be about the columns {list(self.columns)} (got {unknown})."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The target's column and those of sensitive attributes."""
        return (self.target, *self.sensitive)

    def rows(
        self, allowed: Mapping[str, set[str]] | None = None, *, check_images: bool = True
    ) -> Iterator[Record | Problem]:
        """Row by row a record with renamed values, or a problem."""
        rows = iter_folder(
            self.images,
            self.file,
            target_column=self.target,
            sensitive_columns=self.sensitive,
            path_column=self.path,
            allowed=allowed,
            check_images=check_images,
        )
        renamed = (row if isinstance(row, Problem) else self._renamed(row) for row in rows)
        return chain(renamed, self.left_out)

    def scan(self) -> LabelValues:
        """Read the file once, without opening pictures: values, repeated rows and a hash."""
        if not os.path.isdir(self.images):
            raise DatasetError(f"`images` should be a folder (got {str(self.images)!r}).")
        raw: dict[str, Counter[str]] = {column: Counter() for column in self.columns}
        keys, contents, rows = array("Q"), array("Q"), 0
        for row in replace(self, rename={}).rows(check_images=False):
            if isinstance(row, Problem):
                rows += not row.kind.is_of_file
                continue
            rows += 1
            for column, value in zip(self.columns, row.group, strict=True):
                raw[column][value] += 1
                if len(raw[column]) > MOST_VALUES:
                    raise DatasetError(
                        f"column {column!r} of {str(self.file)!r} holds more than {MOST_VALUES} "
                        "different values: is it the right one?"
                    )
            renamed = self._renamed(row)
            keys.append(_hash(file_of(row)))
            contents.append(_hash(json.dumps([renamed.target, *renamed.sensitive.values()])))
        for column, names in self.rename.items():
            missing = [value for value in names if value not in raw[column]]
            if missing:
                raise DatasetError(
                    f"`rename` should name values of the column {column!r}, which holds "
                    f"{sorted(raw[column])[:20]} (got {missing})."
                )
        return LabelValues(self, raw, rows, _repeated(keys, contents), _file_hash(self.file))

    def _renamed(self, row: Record) -> Record:
        sensitive = {a: self._label(a, value) for a, value in row.sensitive.items()}
        return replace(row, target=self._label(self.target, row.target), sensitive=sensitive)

    def _label(self, column: str, value: str) -> str:
        return self.rename.get(column, {}).get(value, value)


@dataclass(frozen=True)
class LabelValues:
    """What a label file holds.

    Attributes:
        labels: where it came from.
        raw: ``{column: {value in the file: rows}}``.
        rows: how many rows there are, usable or not.
        repeated: hash of the file of each picture that comes more than once -> whether its rows
            agree.
        sha256: hash of the file.
    """

    labels: Labels
    raw: Mapping[str, Mapping[str, int]]
    rows: int
    repeated: Mapping[int, bool]
    sha256: str

    def names(self, column: str) -> list[str]:
        """All labels of a column, sorted."""
        return sorted({self.labels._label(column, value) for value in self.raw[column]})

    def allowed(self, named: Mapping[str, Any], *, skip_unknown: bool) -> dict[str, set[str]]:
        """For each column the values in the file whose labels were named.

        Args:
            named: ``{column: labels}``.
            skip_unknown: whether other values are to be left out; they are an error otherwise.
        """
        allowed: dict[str, set[str]] = {}
        unknown = []
        for column, counts in self.raw.items():
            known = {v for v in counts if self.labels._label(column, v) in named[column]}
            allowed[column] = known
            unknown += [
                f"{column} {value!r} ({n} {'row' if n == 1 else 'rows'})"
                for value, n in counts.items()
                if value not in known
            ]
        if unknown and not skip_unknown:
            more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
            raise DatasetError(
                f"{self.labels.file.name!r} holds values that were not named: "
                f"{', '.join(unknown[:10])}{more}. Name them, rename them (`rename`) or leave "
                "their rows out (`skip_unknown`)."
            )
        return allowed

    def unique(self, rows: Iterator[Record | Problem]) -> Iterator[Record | Problem]:
        """The same rows, with problems for pictures that come again."""
        seen: set[int] = set()
        for row in rows:
            if isinstance(row, Problem) or (key := _hash(file_of(row))) not in self.repeated:
                yield row
            elif not self.repeated[key]:
                yield Problem(ProblemKind.CONFLICT, row.key)
            elif key in seen:
                yield Problem(ProblemKind.DUPLICATE, row.key)
            else:
                seen.add(key)
                yield row


def _repeated(keys: array[int], contents: array[int]) -> dict[int, bool]:
    names = np.frombuffer(keys, np.uint64) if keys else np.zeros(0, np.uint64)
    distinct, counts = np.unique(names, return_counts=True)
    again = distinct[counts > 1]
    found: dict[int, set[int]] = {int(key): set() for key in again}
    for place in np.flatnonzero(np.isin(names, again)):
        found[keys[place]].add(contents[place])
    return {key: len(different) == 1 for key, different in found.items()}


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


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
