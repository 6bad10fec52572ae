"""Where a dataset comes from, and where its files are in a local copy."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fair_tta.data.label_files import LabelTable, check_is_text
from fair_tta.data.problems import Problem, ProblemKind
from fair_tta.data.records import Dataset, DatasetError, Record, collect
from fair_tta.data.tasks import BenchmarkTask


@dataclass(frozen=True)
class Source:
    """The official source of a dataset and the layout that its reader expects.

    Attributes:
        name: the name of the dataset.
        page: the web page of its authors.
        layout: the expected files as a small tree.
    """

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
        if path.is_dir():
            return path
        if path.exists():
            raise self.error(f"{str(path)!r} is a file, not a folder (an archive? Unpack it).")
        raise self.error(f"there is no folder {str(path)!r}.")

    def find(self, root: Path, folders: Sequence[str], names: Sequence[str]) -> Path | None:
        """The first file or folder of these names in the first of these folders below `root`."""
        places = (root / folder / name for folder in folders for name in names)
        return next((place for place in places if place.exists()), None)

    def need(self, root: Path, folders: Sequence[str], names: Sequence[str]) -> Path:
        """The same, or an error."""
        found = self.find(root, folders, names)
        if found is None:
            raise self.error(f"{str(root)!r} has no {' or '.join(names)} ({_inside(root)}).")
        return found

    def table(self, path: Path, wanted: Sequence[str]) -> LabelTable:
        """A label file with these columns."""
        try:
            return LabelTable(path, wanted)
        except DatasetError as error:
            raise self.error(str(error)) from error

    def encoding(self, path: Path) -> str:
        """The encoding of a label file that is no CSV."""
        try:
            return check_is_text(path)
        except DatasetError as error:
            raise self.error(str(error)) from error

    def check_task(self, task: BenchmarkTask, attributes: Collection[str]) -> None:
        """Refuse a task that the dataset has no labels for."""
        if task.dataset != self.name:
            raise DatasetError(f"`task` should be one of {self.name} (got '{task}').")
        unknown = [name for name in (task.target, *task.sensitive) if name not in attributes]
        if unknown:
            raise DatasetError(
                f"`task` should ask for attributes of {self.name}, {sorted(attributes)} "
                f"(got {unknown})."
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
        records, problems = collect(with_images(rows) if check_images else rows)
        if not records:
            raise self.error(f"no usable record in {str(root)!r}.\n{problems}")
        return Dataset(self.name, records, problems, parameters, task)


def labelled(
    task: BenchmarkTask, values: Mapping[str, str], path: Path, key: str
) -> Record | Problem:
    """The record of an image, or a problem if the task does not know one of its values."""
    if not key:
        return Problem(ProblemKind.MISSING_VALUE, "the name of an image")
    asked = {task.target: task.targets, **task.sensitive}
    for attribute, labels in asked.items():
        if values[attribute] not in labels:
            what = f"{key} ({attribute} {values[attribute]!r})"
            kind = ProblemKind.UNKNOWN_VALUE if values[attribute] else ProblemKind.MISSING_VALUE
            return Problem(kind, what)
    sensitive = {attribute: values[attribute] for attribute in task.sensitive}
    return Record(path, values[task.target], sensitive, key)


def unknown_split(part: str, key: str) -> Problem:
    """That an image is in a split which is none."""
    kind = ProblemKind.UNKNOWN_VALUE if part else ProblemKind.MISSING_VALUE
    return Problem(kind, f"{key} (split {part!r})")


def with_images(rows: Iterable[Record | Problem]) -> Iterator[Record | Problem]:
    """The same rows, with a problem for each record whose image is not there."""
    for row in rows:
        missing = image_problem(row.path, row.key) if isinstance(row, Record) else None
        yield row if missing is None else missing


def image_problem(path: Path, name: str) -> Problem | None:
    """Whether an image is there, without opening it."""
    try:
        found = os.stat(path)
    except PermissionError:
        return Problem(ProblemKind.CLOSED_IMAGE, name)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return Problem(ProblemKind.MISSING_IMAGE, name)
    if stat.S_ISDIR(found.st_mode):
        return Problem(ProblemKind.MISSING_IMAGE, name)
    if not stat.S_ISREG(found.st_mode):
        return Problem(ProblemKind.NOT_A_FILE, name)
    return None if found.st_size else Problem(ProblemKind.EMPTY_IMAGE, name)


def _inside(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    more = ", ..." if len(names) > 5 else ""
    return f"it has {', '.join(names[:5])}{more}" if names else "it is empty"
