"""The values of a label file: their counts, their new names and their records."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fair_tta._spelling import cell_meaning, equal_cells, escape_invisible
from fair_tta.datasets._folder_labels import FOLDER_LABELS
from fair_tta.datasets._image_paths import file_of, find_images, key_of
from fair_tta.datasets._label_files import LabelRow
from fair_tta.datasets._records import Problem, ProblemKind, Record, resolve_repeats
from fair_tta.errors import DatasetError

if TYPE_CHECKING:
    from fair_tta.datasets._labels import Labels


MISSING_CELLS = frozenset({"", "na", "n/a", "#n/a", "nan", "null"})
"""Cells without a value, in lower case."""

NO_CLUSTER = MISSING_CELLS | {"none", "<na>"}
"""Cells without a cluster: these may be the names of a class, but not of a person."""

# Messages show at most so many
_SHOWN_UNKNOWN_VALUES = 10
_SHOWN_RENAMES = 20
_SHOWN_SPELLINGS = 5

# A column with more different values does not hold labels
_MAX_VALUES = 1000

LocatedImages: TypeAlias = Mapping[str, tuple[Path, Problem | None]]


@dataclass(frozen=True, eq=False)
class LabelValues:
    """The rows of a label file and the values in them.

    Attributes:
        labels: where it came from.
        value_counts: ``{column: {value in the file: rows}}``.
        row_count: how many rows there are, usable or not.
    """

    labels: Labels
    value_counts: Mapping[str, Mapping[str, int]]
    row_count: int
    # The column of paths or ids, then those of labels
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
        values = self.value_counts[column]
        if len(values) > _MAX_VALUES:
            raise DatasetError(
                f"column {column!r} of {str(self.labels.file)!r} holds more than {_MAX_VALUES} "
                "different values: is it the right column?"
            )
        self.check_spellings(column)
        return sorted({self.labels._label_of(column, value) for value in values})

    def check_spellings(self, column: str) -> None:
        """Raise if labels of a column read alike, such as CIRCLE and circle, or 1 and 1.0.

        The message has the options that rename them, ready to paste.
        """
        counts: Counter[str] = Counter()
        for value, n in self.value_counts[column].items():
            counts[self.labels._label_of(column, value)] += n
        complaint = describe_spellings(column, self.labels.file, "values", counts)
        if complaint is None:
            return
        # Of each group of spellings keep the one that is easiest to type, then the most frequent
        options = []
        for spellings in equal_cells(counts):
            best = max(
                spellings, key=lambda label: (_typing_ease(label), counts[label])
            )
            for value in sorted(self.value_counts[column]):
                label = self.labels._label_of(column, value)
                if label in spellings and value != best:
                    options.append(rename_option(column, value, best))
        raise DatasetError(
            f"{complaint}. If they mean the same, rename them:\n{' '.join(options)}"
        )

    def allowed_values(
        self, named: Mapping[str, Any], *, skip_unknown: bool
    ) -> dict[str, set[str]]:
        """Return the values of each column whose labels were named.

        Args:
            named: ``{column: labels}``.
            skip_unknown: leave other values out; they are an error otherwise.
        """
        allowed: dict[str, set[str]] = {}
        unknown = []
        options = []
        for column, counts in self.value_counts.items():
            allowed[column] = set()
            label_by_meaning = {cell_meaning(label): label for label in named[column]}
            for value, n in counts.items():
                if self.labels._label_of(column, value) in named[column]:
                    allowed[column].add(value)
                    continue
                unknown.append(f"{column} {value!r} ({_count_rows(n)})")
                # Suggest a label that differs in its spelling only
                label = label_by_meaning.get(cell_meaning(value))
                if label is not None:
                    options.append(rename_option(column, value, label))
        if unknown and not skip_unknown:
            n_more = len(unknown) - _SHOWN_UNKNOWN_VALUES
            suffix = f" and {n_more} more" if n_more > 0 else ""
            raise DatasetError(
                f"{self.labels.file.name!r} holds values that were not named: "
                f"{', '.join(unknown[:_SHOWN_UNKNOWN_VALUES])}{suffix}. Name them, rename them "
                "(`rename`) or leave their rows out (`skip_unknown`)."
                f"{' '.join(['', *options[:_SHOWN_RENAMES]])}"
            )
        return allowed

    def records(
        self,
        allowed: Mapping[str, Collection[str]] | None = None,
        *,
        check_images: bool = True,
    ) -> list[Record | Problem]:
        """Return for each row a record with renamed values, or why it cannot be used.

        Args:
            allowed: for some columns the values that are expected; other values are problems.
            check_images: whether images must be there and not empty; False does not look for them.
        """
        rows = self._read_records(allowed or {}, check_images)
        if self.labels.features is None:
            resolved = resolve_repeats(rows, lambda record: file_of(record.path))
        else:
            resolved = resolve_repeats(rows, attrgetter("key"))
        return [*resolved, *self.labels.left_out]

    def _read_records(
        self, allowed: Mapping[str, Collection[str]], check_images: bool
    ) -> list[tuple[Record | None, Problem | None]]:
        """Return all rows as `_read_record` does, and problems of the file and the folder."""
        rows: list[tuple[Record | None, Problem | None]] = []
        located: LocatedImages = {}
        if check_images and self.labels.features is None:
            names = []
            for row in self._rows:
                if isinstance(row, LabelRow):
                    name = row.cells[self._columns[0]]
                    if name.lower() not in MISSING_CELLS:
                        names.append(name)
            located, notes = find_images(names, self.labels.images, self.labels.file)
            # Labels that are names of folders come with a list of such images
            if self.labels.file.name != FOLDER_LABELS:
                rows += [(None, note) for note in notes]
        for row in self._rows:
            if isinstance(row, Problem):
                rows.append((None, row))
            else:
                rows.append(self._read_record(row, allowed, located))
        return rows

    def _read_record(
        self,
        row: LabelRow,
        allowed: Mapping[str, Collection[str]],
        located: LocatedImages,
    ) -> tuple[Record | None, Problem | None]:
        """Return the record of a row, None if a cell is missing, and its problem, if any.

        Rows with a problem need their record too: labels of an image may contradict each other.
        """
        labels = self.labels
        cells = row.cells
        line = f"{labels.file.name} line {row.line}"
        blank = [name for name in self._columns if cells[name].lower() in MISSING_CELLS]
        if blank:
            detail = f"{line} ({', '.join(blank)})"
            return None, Problem(ProblemKind.MISSING_VALUE, detail)

        # Find the image or its features
        name = cells[self._columns[0]]
        path, problem = located.get(name, (labels.images / name, None))
        if labels.features is None:
            key = key_of(path, labels.images, name)
        else:
            key = name
            if name not in labels.features.row_of_id:
                problem = Problem(ProblemKind.NO_FEATURES, name)

        # Values that are not expected replace any other problem
        unexpected = []
        for column, values in allowed.items():
            if cells[column] not in values:
                unexpected.append(f"{column} {cells[column]!r}")
        if unexpected:
            detail = f"{line} ({', '.join(unexpected)})"
            problem = Problem(ProblemKind.UNKNOWN_VALUE, detail)

        # Rename the values
        sensitive = {}
        for column in labels.sensitive:
            sensitive[column] = labels._label_of(column, cells[column])
        cluster = None
        if labels.cluster is not None:
            cluster = cells[labels.cluster]
            if cluster.lower() in NO_CLUSTER:
                cluster = ""
        target = labels._label_of(labels.target, cells[labels.target])
        return Record(path, target, sensitive, key, cluster), problem


def _typing_ease(label: str) -> tuple[bool, int]:
    """Return a key by which the spelling of a label that is easiest to type is the largest.

    Spellings of one label are all numbers, such as 1 and 1.0, or none is. Ties are left to the
    caller, who takes the most frequent one.
    """
    can_be_typed = escape_invisible(label) == label
    is_number = isinstance(cell_meaning(label), Decimal)
    length = len(label) if is_number else 0
    return can_be_typed, -length


def _count_rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def describe_spellings(
    column: str, file: Path, content: str, counts: Mapping[str, int]
) -> str | None:
    """Return a sentence about cells of a column that read alike, None if there are none.

    Args:
        content: what the cells are, in the plural.
        counts: ``{cell: rows}``.
    """
    groups = equal_cells(counts)
    if not groups:
        return None
    lists = []
    for spellings in groups[:_SHOWN_SPELLINGS]:
        cells = [
            f"{escape_invisible(cell)!r} ({_count_rows(counts[cell])})"
            for cell in spellings
        ]
        lists.append(" and ".join(cells))
    return f"column {column!r} of {file.name!r} holds {content} that read alike: {'; '.join(lists)}"


def rename_values(
    tables: Sequence[LabelValues], rename: Mapping[str, Mapping[str, str]]
) -> list[LabelValues]:
    """Return tables with renamed values, each renaming wherever its column and its value occur.

    Columns and values are known as written in the files, or as `rename_option` shows them.

    Raises:
        DatasetError: a value is in none of the tables.
    """
    # A renaming may concern one of several tables only
    counts_of_column: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for table in tables:
        for column, counts in table.value_counts.items():
            counts_of_column[column].update(counts)
    all_values = set().union(*counts_of_column.values())

    # Find the columns and values that are meant
    renames: dict[str, dict[str, str]] = {}
    for shown_column, labels in rename.items():
        column = _find_shown(shown_column, counts_of_column) or shown_column
        known_values = counts_of_column[column]
        missing = []
        for shown_value, label in labels.items():
            value = _find_shown(shown_value, known_values)
            if value is None:
                missing.append(shown_value)
            else:
                names = renames.setdefault(column, {})
                names[value] = _find_shown(label, all_values) or label
        if missing:
            raise DatasetError(
                f"`rename` should name values of the column {column!r}, which holds "
                f"{sorted(known_values)[:_SHOWN_RENAMES]} (got {sorted(missing)}).",
                argument="rename",
            )
    renamed = []
    for table in tables:
        names_in_table = {}
        for column, names in renames.items():
            if column in table.value_counts:
                names_in_table[column] = names
        renamed.append(
            replace(table, labels=replace(table.labels, rename=names_in_table))
        )
    return renamed


def _find_shown(text: str, names: Collection[str]) -> str | None:
    """Return the name that is equal to a text, or that `rename_option` shows as this text."""
    if text in names:
        return text
    return next((name for name in names if _option_text(name) == text), None)


def _option_text(name: str) -> str:
    """Return a name as an option shows it: in ASCII if it has signs that cannot be seen."""
    text = escape_invisible(name)
    # A backslash at the end would escape the separator behind it
    return f"{text[:-1]}\\x5c" if text.endswith("\\") else text


def rename_option(column: str, value: str, label: str) -> str:
    r"""Return the option of a command that renames a value.

    Example:
        >>> print(rename_option("ratio", "1:2", "low"))
        --rename 'ratio: 1\:2=low'
    """
    parts = [
        re.sub("([,:=])", r"\\\1", _option_text(name))
        for name in (column, value, label)
    ]
    return f"--rename {shlex.quote('{}: {}={}'.format(*parts))}"
