"""Datasets as their authors publish them: where they are, and what their files hold."""

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
    """The official source of a dataset: the page of its authors, and the files it should have as a
    small tree."""

    name: str
    page: str
    layout: str

    def error(self, reason: str) -> DatasetError:
        """An error that says what is wrong, where the dataset is to be had and how to lay it."""
        nothing = f"Nothing is downloaded for you. Its authors offer it at {self.page}"
        return DatasetError(
            f"{self.name}: {reason}\n{nothing}; expected is\n{self.layout}",
            f"{' '.join(reason.splitlines()[:1])} {nothing}.",
        )

    def check_root(self, root: str | os.PathLike[str]) -> Path:
        """The folder as a path, if it is one."""
        path = Path(root)
        if path.is_file():
            raise self.error(
                f"{str(path)!r} is a file, not a folder (an archive? Unpack it)."
            )
        if not path.is_dir():
            raise self.error(f"there is no folder {str(path)!r}.")
        return path

    def find(
        self, root: Path, folders: Sequence[str], names: Sequence[str]
    ) -> Path | None:
        """The first file or folder of these names in the first of these folders below `root`."""
        places = (root / folder / name for folder in folders for name in names)
        return next((place for place in places if place.exists()), None)

    def table(
        self,
        root: Path,
        folders: Sequence[str],
        names: Sequence[str],
        wanted: Sequence[str],
        to_csv: Callable[[str], str] = str,
    ) -> LabelTable:
        """The label file that `find` finds, see `LabelTable`; `to_csv` is for names in .txt."""
        path = self.find(root, folders, names)
        if path is None:
            inside = sorted(entry.name for entry in root.iterdir())
            more = ", ..." if len(inside) > 5 else ""
            has = f"it has {', '.join(inside[:5])}{more}" if inside else "it is empty"
            raise self.error(f"{str(root)!r} has no {' or '.join(names)} ({has}).")
        try:
            return LabelTable(path, wanted, to_csv if path.suffix == ".txt" else str)
        except DatasetError as error:
            raise self.error(str(error)) from error

    def check_task(self, task: BenchmarkTask, attributes: Collection[str]) -> None:
        """Refuse a task that the dataset has no labels for."""
        if task.dataset != self.name:
            raise DatasetError(
                f"`task` should be one of {self.name} (got '{task}').", argument="task"
            )
        unknown = [
            name for name in (task.target, *task.sensitive) if name not in attributes
        ]
        if unknown:
            raise DatasetError(
                f"`task` should ask for attributes of {self.name}, {sorted(attributes)} "
                f"(got {unknown}).",
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
        """Gather what a reader found; an error if no record can be used."""
        if check_images:
            rows = map(_with_image, rows)
        records, problems = collect_records(rows)
        if not records:
            raise self.error(f"no usable record in {str(root)!r}.\n{problems}")
        return Dataset(self.name, records, problems, parameters, task)


def labelled(
    task: BenchmarkTask, values: Mapping[str, str], path: Path, key: str
) -> Record | Problem:
    """The record of an image, or a problem if the task does not know one of its values."""
    if not key:
        return Problem(ProblemKind.MISSING_VALUE, "the name of an image")
    for attribute, labels in {task.target: task.targets, **task.sensitive}.items():
        if values[attribute] not in labels:
            return unexpected(key, attribute, values[attribute])
    sensitive = {attribute: values[attribute] for attribute in task.sensitive}
    return Record(path, values[task.target], sensitive, key)


def unexpected(key: str, attribute: str, value: str) -> Problem:
    """That an image has a value which is none, or none at all."""
    kind = ProblemKind.UNKNOWN_VALUE if value else ProblemKind.MISSING_VALUE
    return Problem(kind, f"{key} ({attribute} {value!r})")


def _with_image(row: Record | Problem) -> Record | Problem:
    missing = image_problem(row.path, row.key) if isinstance(row, Record) else None
    return missing or row
