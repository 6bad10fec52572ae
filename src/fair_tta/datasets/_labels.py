"""The labels of a folder of images: a file, or the names of its folders."""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fair_tta._io import ENDINGS, Unlisted, images_below, write_whole
from fair_tta._spelling import escaped, meaning, same_cells
from fair_tta.datasets._label_files import (
    LabelRow,
    LabelTable,
    file_of,
    find_image,
    find_images,
    key_of,
    summarize_names,
)
from fair_tta.datasets._records import (
    Dataset,
    Problem,
    ProblemKind,
    Record,
    collect_records,
    resolve_repeats,
)
from fair_tta.datasets._tasks import BenchmarkTask
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

MISSING_CELLS = frozenset({"", "na", "n/a", "#n/a", "nan", "null"})
"""Cells that say nothing, in lower case."""

_NO_CLUSTER = MISSING_CELLS | {
    "none",
    "<na>",
}  # which may be the name of a class, but of no person

_TRIED = 100  # rows in which a column of paths is looked for
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


def _path_column(
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


def _column_of_names(table: LabelTable, others: Collection[str]) -> str | None:
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
    return Path(name).suffix.lower() in ENDINGS


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


def usual_path_column(header: Sequence[str]) -> str | None:
    """The first of `PATH_COLUMNS` that is there, as it is spelt there."""
    names = {name.lower(): name for name in reversed(header)}
    return next((names[known] for known in PATH_COLUMNS if known in names), None)


_MOST_RENAMED = 20  # values that a message shows how to rename
_MOST_SPELLINGS = 5  # values with several spellings that a message shows

MOST_VALUES = 1000  # more different values than this in a column are a mistake


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
            named = self.path or _path_column(table, self.images, stored, wanted)
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
        names = self.path or _column_of_names(table, {*self.columns, *self._clusters})
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
        counts = Counter(cell for cell in cells if cell.lower() not in _NO_CLUSTER)
        groups = same_cells(counts)
        if groups:
            raise DatasetError(
                f"column {self.cluster!r} of {self.file.name!r} holds clusters that read alike: "
                f"{_shown_spellings(groups, counts)}. Write each in one way in the file or, if "
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


@dataclass(frozen=True, eq=False)
class LabelValues:
    """What a label file holds.

    Attributes:
        labels: where it came from.
        value_counts: ``{column: {value in the file: rows}}``.
        row_count: how many rows there are, usable or not.
    """

    labels: Labels
    value_counts: Mapping[str, Mapping[str, int]]
    row_count: int
    _columns: Sequence[str] = field(repr=False)
    _rows: Sequence[LabelRow | Problem] = field(repr=False)

    @property
    def path_column(self) -> str | None:
        """The column that names images or features; None if rows are joined by their order."""
        return None if self.labels.is_joined_by_position else self._columns[0]

    def labels_in(self, column: str) -> list[str]:
        """Return all labels of a column, sorted.

        Raises:
            DatasetError: there are too many, or some are spellings of one another.
        """
        if len(self.value_counts[column]) > MOST_VALUES:
            raise DatasetError(
                f"column {column!r} of {str(self.labels.file)!r} holds more than {MOST_VALUES} "
                "different values: is it the right one?"
            )
        self.check_spellings(column)
        return sorted(
            {self.labels._label(column, value) for value in self.value_counts[column]}
        )

    def check_spellings(self, column: str) -> None:
        """Raise if labels of a column read alike, such as CIRCLE and circle, with renames to paste.

        Case, composed letters, spaces and invisible characters are all that differs; or they are
        the same number, such as 1 and 1.0.
        """
        counts: Counter[str] = Counter()
        for value, n in self.value_counts[column].items():
            counts[self.labels._label(column, value)] += n
        groups = same_cells(counts)
        if not groups:
            return
        options = []
        for spellings in groups:
            # one that can be typed as it is shown: the shortest numeral, or what is most frequent
            label = max(spellings, key=lambda name: (_typed(name), counts[name]))
            others = {value for value in self.value_counts[column]
                      if self.labels._label(column, value) in spellings}  # fmt: skip
            options += [
                rename_option(column, v, label) for v in sorted(others - {label})
            ]
        raise DatasetError(
            f"column {column!r} of {self.labels.file.name!r} holds values that read alike: "
            f"{_shown_spellings(groups, counts)}. If they mean the same, rename them:\n"
            f"{' '.join(options)}"
        )

    def allowed_values(
        self, named: Mapping[str, Any], *, skip_unknown: bool
    ) -> dict[str, set[str]]:
        """For each column the values in the file whose labels were named.

        Args:
            named: ``{column: labels}``.
            skip_unknown: whether other values are to be left out; they are an error otherwise.
        """
        allowed: dict[str, set[str]] = {}
        unknown, options = [], list[str]()
        for column, counts in self.value_counts.items():
            by_meaning = {meaning(label): label for label in named[column]}
            known = {
                v for v in counts if self.labels._label(column, v) in named[column]
            }
            allowed[column] = known
            unknown += [
                f"{column} {value!r} ({n} {'row' if n == 1 else 'rows'})"
                for value, n in counts.items()
                if value not in known
            ]
            options += [
                rename_option(column, value, by_meaning[meaning(value)])
                for value in counts
                if value not in known and meaning(value) in by_meaning
            ]
        if unknown and not skip_unknown:
            more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
            raise DatasetError(
                f"{self.labels.file.name!r} holds values that were not named: "
                f"{', '.join(unknown[:10])}{more}. Name them, rename them (`rename`) or leave "
                f"their rows out (`skip_unknown`).{' '.join(['', *options[:_MOST_RENAMED]])}"
            )
        return allowed

    def records(
        self,
        allowed: Mapping[str, Collection[str]] | None = None,
        *,
        check_images: bool = True,
    ) -> list[Record | Problem]:
        """For each row a record with renamed values, or a problem, as for an image that comes
        again.

        Args:
            allowed: for some columns the values that are expected; other values are problems.
            check_images: whether images must be there and not empty; False does not look for them.
        """
        labels = self.labels
        read = self._read(allowed or {}, check_images)
        renamed = (
            (None if of is None else labels._renamed(of), why) for of, why in read
        )
        if labels.features is None:
            settled = resolve_repeats(renamed, lambda record: file_of(record.path))
        else:
            settled = resolve_repeats(renamed, attrgetter("key"))
        return [*settled, *labels.left_out]

    def _read(
        self, allowed: Mapping[str, Collection[str]], check_images: bool
    ) -> Iterator[tuple[Record | None, Problem | None]]:
        """For each row the record, if its cells are there, and why it cannot be used, if so."""
        images, features, cluster = (
            self.labels.images,
            self.labels.features,
            self.labels.cluster,
        )
        columns, file = self._columns, self.labels.file
        name_column, target_column, *sensitive = columns
        found: dict[str, tuple[Path, Problem | None]] = {}
        if features is None and check_images:
            written = (
                row.cells[name_column]
                for row in self._rows
                if isinstance(row, LabelRow)
            )
            names = [name for name in written if name.lower() not in MISSING_CELLS]
            found, notes = find_images(names, images, file)
            if file.name != FOLDER_LABELS:  # which lists such images itself
                yield from ((None, note) for note in notes)
        for row in self._rows:
            if isinstance(row, Problem):
                yield None, row
                continue
            cells, where = row.cells, f"{file.name} line {row.line}"
            blank = [name for name in columns if cells[name].lower() in MISSING_CELLS]
            if blank:
                yield (
                    None,
                    Problem(ProblemKind.MISSING_VALUE, f"{where} ({', '.join(blank)})"),
                )
                continue
            key = name = cells[name_column]
            path, problem = found.get(name, (images / name, None))
            if features is None:
                key = key_of(path, images, name)
            elif name not in features.row_of_id:
                problem = Problem(ProblemKind.NO_FEATURES, name)
            odd = [
                name for name, values in allowed.items() if cells[name] not in values
            ]
            if odd:
                what = ", ".join(f"{name} {cells[name]!r}" for name in odd)
                problem = Problem(ProblemKind.UNKNOWN_VALUE, f"{where} ({what})")
            attributes = {attribute: cells[attribute] for attribute in sensitive}
            source = None
            if cluster is not None:
                source = "" if cells[cluster].lower() in _NO_CLUSTER else cells[cluster]
            yield Record(path, cells[target_column], attributes, key, source), problem


def _typed(name: str) -> tuple[bool, int]:
    """Return whether a name can be typed as it is shown, and how short it is if it is a number."""
    return escaped(name) == name, -len(name) if isinstance(
        meaning(name), Decimal
    ) else 0


def _shown_spellings(groups: Sequence[Sequence[str]], counts: Mapping[str, int]) -> str:
    """Return the first groups of spellings with their rows."""
    shown = [
        " and ".join(f"{escaped(name)!r} ({counts[name]} rows)" for name in spellings)
        for spellings in groups[:_MOST_SPELLINGS]
    ]
    return "; ".join(shown)


def rename_values(
    tables: Sequence[LabelValues], rename: Mapping[str, Mapping[str, str]]
) -> list[LabelValues]:
    """Return tables with renamed values, each renaming wherever its column and its value occur.

    Raises:
        DatasetError: a value is in none of the tables.
    """
    renamed: list[dict[str, dict[str, str]]] = [{} for _ in tables]
    known = dict.fromkeys(
        value for table in tables for of in table.value_counts.values() for value in of
    )
    for asked, labels in rename.items():
        columns = list(dict.fromkeys(chain(*(table.value_counts for table in tables))))
        column = _as_shown(asked, columns) or asked
        missing = set(labels)
        for table, found in zip(tables, renamed, strict=True):
            for written, label in labels.items():
                value = _as_shown(written, table.value_counts.get(column, ()))
                if value is not None:
                    found.setdefault(column, {})[value] = (
                        _as_shown(label, known) or label
                    )
                    missing.discard(written)
        if missing:
            held = sorted(
                {
                    value
                    for table in tables
                    for value in table.value_counts.get(column, ())
                }
            )
            raise DatasetError(
                f"`rename` should name values of the column {column!r}, which holds {held[:20]} "
                f"(got {sorted(missing)}).",
                argument="rename",
            )
    pairs = zip(tables, renamed, strict=True)
    return [
        replace(table, labels=replace(table.labels, rename=names))
        for table, names in pairs
    ]


def _as_shown(written: str, names: Collection[str]) -> str | None:
    """Return the name that is written so, or that `rename_option` shows so; None if none is."""
    if written in names:
        return written
    return next((name for name in names if _shown(name) == written), None)


def _shown(name: str) -> str:
    """Return a name as options have it: `escaped`, and without a backslash before a separator."""
    text = escaped(name)
    return f"{text[:-1]}\\x5c" if text.endswith("\\") else text


def rename_option(column: str, value: str, label: str) -> str:
    r"""Return the option of a command that renames a value.

    Example:
        >>> print(rename_option("ratio", "1:2", "low"))
        --rename 'ratio: 1\:2=low'
    """
    shown = [_shown(part) for part in (column, value, label)]
    parts = [re.sub("([,:=])", r"\\\1", part) for part in shown]
    return f"--rename {shlex.quote('{}: {}={}'.format(*parts))}"


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
    for found in images_below(str(root)):
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
    write_whole(file, text.getvalue().encode())
    return file, len(rows), tuple(problems)


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
