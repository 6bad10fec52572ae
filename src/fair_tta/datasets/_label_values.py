"""The values of a label file: their counts, their new names and their records."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fair_tta._spelling import cell_meaning, equal_cells, escape_invisible
from fair_tta.datasets._folder_labels import FOLDER_LABELS
from fair_tta.datasets._image_paths import file_of, find_images, key_of
from fair_tta.datasets._label_files import LabelRow
from fair_tta.datasets._records import Problem, ProblemKind, Record, resolve_repeats
from fair_tta.errors import DatasetError

if TYPE_CHECKING:
    from fair_tta.datasets._labels import Labels


MISSING_CELLS = frozenset({"", "na", "n/a", "#n/a", "nan", "null"})
"""Cells that say nothing, in lower case."""


NO_CLUSTER = MISSING_CELLS | {
    "none",
    "<na>",
}  # which may be the name of a class, but of no person


_MOST_RENAMED = 20  # values that a message shows how to rename


_MOST_SPELLINGS = 5  # values with several spellings that a message shows


MOST_VALUES = 1000  # more different values than this in a column are a mistake


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
        groups = equal_cells(counts)
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
            f"{list_spellings(groups, counts)}. If they mean the same, rename them:\n"
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
            by_meaning = {cell_meaning(label): label for label in named[column]}
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
                rename_option(column, value, by_meaning[cell_meaning(value)])
                for value in counts
                if value not in known and cell_meaning(value) in by_meaning
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
                source = "" if cells[cluster].lower() in NO_CLUSTER else cells[cluster]
            yield Record(path, cells[target_column], attributes, key, source), problem


def _typed(name: str) -> tuple[bool, int]:
    """Return whether a name can be typed as it is shown, and how short it is if it is a number."""
    return escape_invisible(name) == name, -len(name) if isinstance(
        cell_meaning(name), Decimal
    ) else 0


def list_spellings(groups: Sequence[Sequence[str]], counts: Mapping[str, int]) -> str:
    """Return the first groups of spellings with their rows."""
    shown = [
        " and ".join(
            f"{escape_invisible(name)!r} ({counts[name]} rows)" for name in spellings
        )
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
    """Return a name as options have it: visible, and without a backslash before a separator."""
    text = escape_invisible(name)
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
