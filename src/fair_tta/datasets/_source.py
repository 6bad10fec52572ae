"""Datasets as their authors publish them: their pages, folders and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fair_tta.datasets._image_paths import image_problem
from fair_tta.datasets._label_files import LabelTable
from fair_tta.datasets._records import (
    Dataset,
    Problem,
    ProblemKind,
    Record,
    collect_records,
)
from fair_tta.datasets._tasks import BenchmarkTask
from fair_tta.errors import DatasetError


@dataclass(frozen=True)
class Source:
    """The official source of a dataset.

    Attributes:
        name: the name of the dataset.
        page: the page of its authors.
        layout: the expected files, as a small tree for messages.
    """

    name: str
    page: str
    layout: str

    def error(self, reason: str) -> DatasetError:
        """Return an error with a reason, the page of the dataset and the expected layout."""
        offer = f"Nothing is downloaded for you: get the dataset from {self.page}."
        return DatasetError(
            f"{self.name}: {reason}\n{offer} The expected layout is\n{self.layout}",
            f"{reason.splitlines()[0]} {offer}",
        )

    def check_root(self, root: str | os.PathLike[str]) -> Path:
        """Return the folder as a path; raise if it is none."""
        path = Path(root)
        if path.is_file():
            raise self.error(
                f"{str(path)!r} is a file, not a folder. If it is an archive, unpack it."
            )
        if not path.is_dir():
            raise self.error(f"there is no folder {str(path)!r}.")
        return path

    def find(
        self, root: Path, folders: Sequence[str], names: Sequence[str]
    ) -> Path | None:
        """Return the first of these names in the first of these folders, None if there is none."""
        for folder in folders:
            for name in names:
                path = root / folder / name
                if path.exists():
                    return path
        return None

    def table(
        self,
        root: Path,
        folders: Sequence[str],
        names: Sequence[str],
        columns: Sequence[str],
        to_csv: Callable[[str], str] = str,
    ) -> LabelTable:
        """Open the label file that `find` returns; `to_csv` converts a .txt file."""
        path = self.find(root, folders, names)
        if path is None:
            # Show a few files, by which users see that they chose the wrong folder
            content = "it is empty"
            entries = sorted(entry.name for entry in root.iterdir())
            if entries:
                ellipsis = ", ..." if len(entries) > 5 else ""
                content = f"it has {', '.join(entries[:5])}{ellipsis}"
            raise self.error(f"{str(root)!r} has no {' or '.join(names)} ({content}).")
        try:
            return LabelTable(path, columns, to_csv if path.suffix == ".txt" else str)
        except DatasetError as error:
            raise self.error(str(error)) from error

    def check_task(self, task: BenchmarkTask, attributes: Collection[str]) -> None:
        """Raise if the dataset has no labels for a task."""
        if task.dataset != self.name:
            raise DatasetError(
                f"`task` should belong to {self.name} (got '{task}').", argument="task"
            )
        unknown = {task.target, *task.sensitive} - set(attributes)
        if unknown:
            raise DatasetError(
                f"`task` should be about attributes of {self.name}, {sorted(attributes)} "
                f"(got {sorted(unknown)}).",
                argument="task",
            )

    def dataset(
        self,
        task: BenchmarkTask,
        root: Path,
        rows: Iterable[Record | Problem],
        parameters: Mapping[str, str | int],
        check_images: bool,
    ) -> Dataset:
        """Gather the rows of a reader; raise if no record can be used."""
        if check_images:
            rows = map(_with_image, rows)
        records, problems = collect_records(rows)
        if not records:
            details = f"\n{problems}" if problems else ""
            raise self.error(f"no usable record in {str(root)!r}.{details}")
        return Dataset(self.name, records, problems, parameters, task)


def record_of_task(
    task: BenchmarkTask, values: Mapping[str, str], path: Path, key: str
) -> Record | Problem:
    """Return the record of an image, or a problem if the task does not have one of its values."""
    if not key:
        return Problem(ProblemKind.MISSING_VALUE, "the name of an image")
    # Values that the task does not name include those that the file should not have
    if values[task.target] not in task.targets:
        return value_problem(key, task.target, values[task.target])
    sensitive = {}
    for attribute, labels in task.sensitive.items():
        sensitive[attribute] = values[attribute]
        if values[attribute] not in labels:
            return value_problem(key, attribute, values[attribute])
    return Record(path, values[task.target], sensitive, key)


def value_problem(key: str, attribute: str, value: str) -> Problem:
    """Return the problem of an image with an unknown or an empty value."""
    detail = f"{key} ({attribute} {value!r})"
    if value:
        return Problem(ProblemKind.UNKNOWN_VALUE, detail)
    return Problem(ProblemKind.MISSING_VALUE, detail)


def _with_image(row: Record | Problem) -> Record | Problem:
    """Return the problem of a record's image if it has one, otherwise the row."""
    if isinstance(row, Record):
        return image_problem(row.path, row.key) or row
    return row
