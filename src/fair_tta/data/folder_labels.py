"""The label file of a run: which columns, which values, which rows come twice."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fair_tta.data.folder import file_of, iter_folder
from fair_tta.data.problems import Problem, ProblemKind
from fair_tta.data.records import DatasetError, Record

MOST_VALUES = 1000
"""More different values than this in a column are a mistake."""


@dataclass(frozen=True)
class Labels:
    """Where pictures and labels are, and what the columns mean.

    Args:
        images: the folder of the pictures.
        file: the CSV file; `fair_tta.data.iter_folder` says what it may look like.
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
