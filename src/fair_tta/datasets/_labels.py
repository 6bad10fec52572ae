"""The labels of a folder of images: a file, or the names of its folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fair_tta.datasets._image_paths import summarize_names
from fair_tta.datasets._label_files import LabelRow, LabelTable
from fair_tta.datasets._label_values import (
    MISSING_CELLS,
    NO_CLUSTER,
    LabelValues,
    describe_spellings,
    rename_values,
)
from fair_tta.datasets._path_columns import find_name_column, find_path_column
from fair_tta.datasets._records import (
    Dataset,
    Problem,
    ProblemKind,
    collect_records,
)
from fair_tta.datasets._tasks import BenchmarkTask
from fair_tta.errors import DatasetError

if TYPE_CHECKING:
    from fair_tta.datasets._feature_files import FeatureFile

# Holds the id of a row's features where the file has no column of ids
_ROW_NUMBER = "number of the row"


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
    """Read a folder of images with a file of labels; see `Labels` for what it may look like.

    Args:
        images_dir: the folder of the images.
        labels_csv: the file of labels, with a header.
        target_column: the column of the target.
        sensitive_columns: the columns of sensitive attributes, which keep these names.
        path_column: the column of the paths; found by its values, or else its name, if None.
        task: names and template, if they should go with the dataset. Its sensitive attributes are
            the columns, and values that it does not name are problems.
        check_images: whether images must be there and not empty; False does not look for them.
    """
    if isinstance(sensitive_columns, str):
        sensitive_columns = [sensitive_columns]
    if not sensitive_columns:
        raise DatasetError(
            "`sensitive_columns` should name at least one column (got none).",
            argument="sensitive_columns",
        )
    if not os.path.isdir(images_dir):
        raise DatasetError(
            f"`images_dir` should be a folder (got {os.fspath(images_dir)!r}).",
            argument="images_dir",
        )
    # Values that the task does not name are problems
    allowed: dict[str, Collection[str]] = {}
    if task is not None:
        if sorted(task.sensitive) != sorted(sensitive_columns):
            raise DatasetError(
                f"`task` should have the sensitive attributes {sorted(sensitive_columns)} "
                f"(got {sorted(task.sensitive)}).",
                argument="task",
            )
        allowed = {target_column: task.targets, **task.sensitive}

    images = Path(images_dir)
    file = Path(labels_csv)
    labels = Labels(images, file, target_column, tuple(sensitive_columns), path_column)
    rows = labels.scan().records(allowed, check_images=check_images)
    # A table may be about some of the images of a folder: the note that images have no row is left
    # out. A row without an image is a problem of its own, which stays.
    about_rows = []
    for row in rows:
        if not (isinstance(row, Problem) and row.kind is ProblemKind.UNPAIRED):
            about_rows.append(row)
    records, problems = collect_records(about_rows)
    if not records:
        details = f"\n{problems}" if problems else ""
        raise DatasetError(f"no usable record in {str(file)!r}.{details}")
    parameters = {"labels": file.name, "target": target_column}
    return Dataset(images.name, records, problems, parameters, task)


@dataclass(frozen=True)
class Labels:
    """The places of images and labels, and the meanings of the columns.

    The file may be CSV (UTF-8 with or without a mark, UTF-16 or Windows-1252, separated by commas,
    semicolons, tabs or bars), JSON lines, Excel (its first sheet) or parquet; other columns are
    ignored. Paths are absolute, or relative to `images` or, failing that, to the folder of the
    file; those of another machine are matched by their longest common ends.

    Args:
        images: the folder of the images, or the file of their features.
        file: the file of labels, with a header.
        target: the column of the target.
        sensitive: the columns of sensitive attributes, which keep these names.
        path: the column of the paths; found by its values, or else its name, if None.
        rename: ``{column: {value in the file: label}}``; several values may get the same label.
        left_out: what is missing in the file, listed after its rows.
        cluster: the column of the person or source that an image comes from, if there is one; an
            image whose cell is empty, or says so (NA, None), is a cluster by itself.
        features: stored features, instead of images.
        by_position: match features without ids to rows by the order of both, even though the rows
            have names.
    """

    images: Path
    file: Path
    target: str
    sensitive: tuple[str, ...]
    path: str | None = None
    rename: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: tuple[Problem, ...] = ()
    cluster: str | None = None
    features: FeatureFile | None = None
    by_position: bool = False

    def __post_init__(self) -> None:
        if len(set(self._read_columns)) < len(self._read_columns):
            raise DatasetError(f"columns should differ (got {self._read_columns}).")
        unknown = [column for column in self.rename if column not in self.columns]
        if unknown:
            raise DatasetError(
                f"`rename` should be about the columns {list(self.columns)} (got {unknown}).",
                argument="rename",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The target's column and those of sensitive attributes."""
        return (self.target, *self.sensitive)

    @property
    def is_joined_by_position(self) -> bool:
        """True if only the order of their rows matches features and labels."""
        return self.features is not None and self.features.ids is None

    @property
    def _read_columns(self) -> list[str]:
        """All columns except that of the paths."""
        return [*self.columns, *([] if self.cluster is None else [self.cluster])]

    def scan(self, *, skip_unknown: bool = False) -> LabelValues:
        """Read the file into memory, without looking for images.

        Ids that have no features are an error, unless they are to be left out (`skip_unknown`).
        """
        if self.features is None and not os.path.isdir(self.images):
            raise DatasetError(
                f"`images` should be a folder (got {str(self.images)!r}).",
                argument="images",
            )
        if not os.path.exists(self.file) or os.path.isdir(self.file):
            raise DatasetError(
                f"`labels_csv` should be a file (got {str(self.file)!r}).",
                argument="labels_csv",
            )
        # Parse the file; the required columns choose the separator of CSV
        required = self._read_columns
        if self.path is not None:
            required = [self.path, *required]
        table = LabelTable(self.file, required)

        # Read the rows, each with the path of its image or the id of its features
        if self.is_joined_by_position:
            self._check_has_no_names(table)
            path_column = _ROW_NUMBER
            rows = list(table.rows(self._read_columns))
        else:
            path_column = self.path or find_path_column(
                table, self.images, self.features, self._read_columns
            )
            table.check_unique([path_column])
            rows = list(table.rows([path_column, *self._read_columns]))
        if self.features is not None:
            _match_features(
                self.features, self.file.name, rows, path_column, skip_unknown
            )
        self._check_clusters(rows)

        # Count the values of rows that are complete
        columns = [path_column, *self.columns]
        counts: dict[str, Counter[str]] = {column: Counter() for column in self.columns}
        n_rows = sum(not problem.kind.is_of_file for problem in self.left_out)
        for row in rows:
            if isinstance(row, Problem):
                n_rows += not row.kind.is_of_file
                continue
            n_rows += 1
            if not any(
                row.cells[column].lower() in MISSING_CELLS for column in columns
            ):
                for column in self.columns:
                    counts[column][row.cells[column]] += 1
        values = LabelValues(self, counts, n_rows, columns, rows)
        (renamed,) = rename_values([values], self.rename)
        return renamed

    def _check_has_no_names(self, table: LabelTable) -> None:
        """Raise if features without ids would be matched by position to rows that have names."""
        if self.by_position or self.features is None:
            return
        name_column = self.path or find_name_column(table, self._read_columns)
        if name_column is not None:
            raise DatasetError(
                f"{self.features.path.name!r} has no ids, and {self.file.name!r} has names, in the "
                f"column {name_column!r}: store the ids beside the features; or, if both certainly "
                "have their rows in the same order, say so with `by_position`."
            )

    def _check_clusters(self, rows: Sequence[LabelRow | Problem]) -> None:
        """Raise if clusters read alike: the images of one person would be those of two."""
        if self.cluster is None:
            return
        counts: Counter[str] = Counter()
        for row in rows:
            if isinstance(row, LabelRow):
                cell = row.cells[self.cluster]
                if cell.lower() not in NO_CLUSTER:
                    counts[cell] += 1
        complaint = describe_spellings(self.cluster, self.file, "clusters", counts)
        if complaint is not None:
            raise DatasetError(
                f"{complaint}. Spell each cluster in one way in the file; if they are different "
                "clusters, give them clearly different names."
            )

    def _label_of(self, column: str, value: str) -> str:
        """Return what a value is renamed to, or the value itself."""
        return self.rename.get(column, {}).get(value, value)


def _match_features(
    features: FeatureFile,
    label_file: str,
    rows: Sequence[LabelRow | Problem],
    column: str,
    skip_unknown: bool,
) -> None:
    """Write the id of its features into each row: by its id, or by position if there are no ids."""
    # Malformed rows have a vector too, and count where vectors are matched by position
    file = features.path.name
    data_rows = []
    for row in rows:
        if isinstance(row, LabelRow) or not row.kind.is_of_file:
            data_rows.append(row)
    if features.ids is None:
        n_vectors = len(features.features)
        if len(data_rows) != n_vectors:
            raise DatasetError(
                f"{file!r} has {n_vectors} vectors without ids, but {label_file!r} has another "
                f"number of rows ({len(data_rows)}): give the vectors ids, or as many rows in the "
                "same order."
            )
        for index, row in enumerate(data_rows):
            if isinstance(row, LabelRow):
                row.cells[column] = str(index)
        return

    # Ids may differ in slashes and accents: store them as the feature file spells them
    unknown = []
    for row in data_rows:
        if isinstance(row, LabelRow) and row.cells[column].lower() not in MISSING_CELLS:
            feature_id = features.find_id(row.cells[column])
            if feature_id is None:
                unknown.append(row.cells[column])
            else:
                row.cells[column] = feature_id
    # Without any match, the ids are of other features
    if unknown and (not skip_unknown or len(unknown) == len(data_rows)):
        raise DatasetError(
            f"{label_file!r} has ids that are not in {file!r}: {summarize_names(unknown)}; ids "
            f"there: {summarize_names(features.ids)}. Leave such rows out with `skip_unknown`."
        )
