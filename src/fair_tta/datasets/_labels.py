"""The labels of a folder of images: a file, or the names of its folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fair_tta._spelling import equal_cells
from fair_tta.datasets._image_paths import summarize_names
from fair_tta.datasets._label_files import LabelRow, LabelTable
from fair_tta.datasets._label_values import (
    MISSING_CELLS,
    NO_CLUSTER,
    LabelValues,
    list_spellings,
    rename_values,
)
from fair_tta.datasets._path_columns import find_name_column, find_path_column
from fair_tta.datasets._records import (
    Dataset,
    Problem,
    ProblemKind,
    Record,
    collect_records,
)
from fair_tta.datasets._tasks import BenchmarkTask
from fair_tta.errors import DatasetError

if TYPE_CHECKING:
    from fair_tta.datasets._features import FeatureFile

_NUMBER = "number of the row"  # in place of paths, where there are none


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
    columns = (
        (sensitive_columns,)
        if isinstance(sensitive_columns, str)
        else (*sensitive_columns,)
    )
    if not columns:
        raise DatasetError(
            "`sensitive_columns` should name at least one column (got none).",
            argument="sensitive_columns",
        )
    if not os.path.isdir(images_dir):
        raise DatasetError(
            f"`images_dir` should be a folder (got {os.fspath(images_dir)!r}).",
            argument="images_dir",
        )
    allowed: dict[str, Collection[str]] = {}
    if task is not None:
        if sorted(task.sensitive) != sorted(columns):
            raise DatasetError(
                f"`task` should have the sensitive attributes {sorted(columns)} "
                f"(got {sorted(task.sensitive)}).",
                argument="task",
            )
        allowed = {target_column: task.targets, **task.sensitive}
    labels = Labels(
        Path(images_dir), Path(labels_csv), target_column, columns, path_column
    )
    rows = labels.scan().records(allowed, check_images=check_images)
    # a table may be about some of the images of a folder
    some = (
        r for r in rows if isinstance(r, Record) or r.kind is not ProblemKind.UNPAIRED
    )
    records, problems = collect_records(some)
    if not records:
        raise DatasetError(
            f"no usable record in {os.fspath(labels_csv)!r}.\n{problems}"
        )
    parameters = {"labels": Path(labels_csv).name, "target": target_column}
    return Dataset(Path(images_dir).name, records, problems, parameters, task)


def _match(
    features: FeatureFile,
    labels: str,
    rows: Sequence[LabelRow | Problem],
    column: str,
    skip: bool,
) -> None:
    """Write the id of its features into each row, by its own id or, if there are none, in order."""
    every = [
        row for row in rows if isinstance(row, LabelRow) or not row.kind.is_of_file
    ]
    file, n = features.path.name, len(features.features)
    if features.ids is None and len(every) != n:
        raise DatasetError(
            f"{file!r} has {n} vectors without ids and {labels!r} has {len(every)} rows: give them "
            "ids, or as many rows in the same order."
        )
    unknown = []
    for place, row in enumerate(every):
        if isinstance(row, LabelRow) and features.ids is None:
            row.cells[column] = str(place)
        elif (
            isinstance(row, LabelRow) and row.cells[column].lower() not in MISSING_CELLS
        ):
            found = features.find_id(row.cells[column])
            row.cells[column] = found or row.cells[column]
            unknown += [] if found else [row.cells[column]]
    if unknown and (not skip or len(unknown) == len(every)):
        raise DatasetError(
            f"{labels!r} has ids that are not in {file!r}: {summarize_names(unknown)}; ids there: "
            f"{summarize_names(features.ids or ())}. Leave such rows out with `skip_unknown`."
        )


@dataclass(frozen=True)
class Labels:
    """Where images and labels are, and what the columns mean.

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
            image whose cell is empty, or says so (NA, None), is a cluster of its own.
        features: in place of images.
        by_position: let rows without ids belong to the rows of a label file that has names, in the
            order of both.
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
        read = [*self.columns, *self._clusters]
        if len(set(read)) < len(read):
            raise DatasetError(f"columns should differ (got {read}).")
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
    def _clusters(self) -> tuple[str, ...]:
        return () if self.cluster is None else (self.cluster,)

    def scan(self, *, skip_unknown: bool = False) -> LabelValues:
        """Read the file into memory, without looking for images.

        Ids that have no features are an error, unless they are to be left out (`skip_unknown`).
        """
        stored, wanted = self.features, [*self.columns, *self._clusters]
        if stored is None and not os.path.isdir(self.images):
            raise DatasetError(
                f"`images` should be a folder (got {str(self.images)!r}).",
                argument="images",
            )
        if not os.path.exists(self.file) or os.path.isdir(self.file):
            raise DatasetError(
                f"`labels_csv` should be a file (got {str(self.file)!r}).",
                argument="labels_csv",
            )
        table = LabelTable(
            self.file, wanted if self.path is None else [self.path, *wanted]
        )
        if stored is not None and stored.ids is None:
            self._check_position(table)
            named, read = _NUMBER, wanted
        else:
            named = self.path or find_path_column(table, self.images, stored, wanted)
            table.check_once([named])
            read = [named, *wanted]
        rows = list(table.rows(read))
        if stored is not None:
            _match(stored, self.file.name, rows, named, skip_unknown)
        self._check_clusters(rows)
        columns = [named, *self.columns]
        raw: dict[str, Counter[str]] = {column: Counter() for column in self.columns}
        for row in rows:
            if isinstance(row, LabelRow) and not any(
                row.cells[c].lower() in MISSING_CELLS for c in columns
            ):
                for column in self.columns:
                    raw[column][row.cells[column]] += 1
        count = sum(
            isinstance(row, LabelRow) or not row.kind.is_of_file for row in rows
        )
        count += sum(not problem.kind.is_of_file for problem in self.left_out)
        values = LabelValues(self, raw, count, columns, rows)
        return rename_values([values], self.rename)[0]

    def _check_position(self, table: LabelTable) -> None:
        """Raise if features without ids would be joined by their order to rows that have names."""
        if self.by_position or self.features is None:
            return
        names = self.path or find_name_column(table, {*self.columns, *self._clusters})
        if names is not None:
            raise DatasetError(
                f"{self.features.path.name!r} has no ids, and {self.file.name!r} has names, in the "
                f"column {names!r}: store the ids beside the features; or, if both have their rows "
                "in the same order for certain, say so with `by_position`."
            )

    def _check_clusters(self, rows: Sequence[LabelRow | Problem]) -> None:
        """Raise if clusters read alike: the images of one person would be those of two."""
        if self.cluster is None:
            return
        cells = [row.cells[self.cluster] for row in rows if isinstance(row, LabelRow)]
        counts = Counter(cell for cell in cells if cell.lower() not in NO_CLUSTER)
        groups = equal_cells(counts)
        if groups:
            raise DatasetError(
                f"column {self.cluster!r} of {self.file.name!r} holds clusters that read alike: "
                f"{list_spellings(groups, counts)}. Write each in one way in the file or, if "
                "they differ, so that they do not read alike."
            )

    @property
    def is_joined_by_position(self) -> bool:
        """Whether features and labels belong together by nothing but the order of their rows."""
        return self.features is not None and self.features.ids is None

    def _renamed(self, row: Record) -> Record:
        if not self.rename:
            return row
        sensitive = {a: self._label(a, value) for a, value in row.sensitive.items()}
        return replace(
            row, target=self._label(self.target, row.target), sensitive=sensitive
        )

    def _label(self, column: str, value: str) -> str:
        """Return what a value is renamed to, or the value itself."""
        return self.rename.get(column, {}).get(value, value)
