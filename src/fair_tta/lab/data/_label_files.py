"""Label files as they are found: CSV of any separator and encoding, and whole data sets."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path

from fair_tta._io import open_file
from fair_tta.errors import DatasetError
from fair_tta.lab.data._records import Dataset, Problem, ProblemKind, Record, collect
from fair_tta.lab.data._tasks import BenchmarkTask

_SEPARATORS = ",;\t|"
_START = 4096  # bytes that tell what a file is


@dataclass(frozen=True)
class Row:
    """The wanted cells of one row, stripped, and the line of the file where it ends."""

    line: int
    cells: dict[str, str]


class LabelTable:
    """A CSV file with a header, in memory.

    The separator is the one that finds the wanted columns. A row that has not as many cells as
    the header is a problem, for its cells may stand under the wrong names; empty cells at its
    end do not count. `to_csv` makes CSV of its text, line by line, if it has another format.
    """

    def __init__(
        self, path: Path, wanted: Sequence[str], to_csv: Callable[[str], str] = str
    ) -> None:
        self.path = path
        text, self._encoding, self.sha256 = _read_text(path)
        self._text = re.sub(r'\A"?sep=[^\r\n]*', "", to_csv(text), flags=re.I)  # Excel's separator
        self.header, self._separator = self._find_header(wanted)
        missing = [name for name in wanted if name not in self.header]
        if missing:
            raise DatasetError(
                f"{str(path)!r} should have the columns {list(wanted)}, but lacks {missing} "
                f"(it has {self.header})."
            )
        twice = sorted({name for name in wanted if self.header.count(name) > 1})
        if twice:
            raise DatasetError(f"{str(path)!r} has more than one column called {twice}.")

    def rows(self, columns: Sequence[str], official: int | None = None) -> Iterator[Row | Problem]:
        """Row by row the cells of some columns, or what is wrong with the row; at the end whether
        there are as many as there should be, if that is known."""
        if self._encoding == "cp1252":
            yield Problem(ProblemKind.ENCODING, self.path.name)
        count = 0
        places = [(name, self.header.index(name)) for name in columns]
        width = len(self.header)
        for line, cells in islice(self._raw(self._separator), 1, None):
            if not any(cell.strip() for cell in cells):
                continue  # spreadsheets leave such rows at the end
            while len(cells) > width and not cells[-1].strip():
                cells.pop()
            count += 1
            if len(cells) == width:
                yield Row(line, {name: cells[place].strip() for name, place in places})
            else:
                yield Problem(ProblemKind.MALFORMED_ROW, f"{self.path.name} line {line}")
        if official is not None and count != official:
            yield Problem(ProblemKind.PARTIAL, f"{self.path.name}: {count} instead of {official}")

    def _raw(self, separator: str) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not blank, with their lines."""
        lines = io.StringIO(self._text, newline="")
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
        try:
            yield from ((reader.line_num, cells) for cells in reader if cells)
        except csv.Error as error:
            raise DatasetError(
                f"{str(self.path)!r} cannot be read from line {reader.line_num} on: {error} "
                "(a quotation mark that is not closed?)."
            ) from error

    def _find_header(self, wanted: Sequence[str]) -> tuple[list[str], str]:
        """The column names and the separator."""
        found = []
        for separator in _SEPARATORS:
            with suppress(DatasetError):  # names in quotes, with another separator between them
                _, cells = next(self._raw(separator), (0, []))
                names = [name.strip() for name in cells]
                while names and not names[-1]:
                    names.pop()
                found.append((names, separator))
        if not found:
            next(self._raw(_SEPARATORS[0]))  # raises
        return max(found, key=lambda one: (set(wanted) <= set(one[0]), len(one[0])))


def _read_text(path: Path) -> tuple[str, str, str]:
    """A label file as text, its encoding, and the SHA-256 of its bytes."""
    try:
        with open_file(path) as file:
            data = file.read()
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror or error}.") from error
    encoding = "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        text = data.decode(encoding, "replace" if encoding == "utf-16" else "strict")
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = data.decode(encoding, "replace")
    start = text[:_START].strip()
    if re.match(r"(<!--.*?-->\s*)?<(!doctype\s+html|html|head|body)\b", start, re.I | re.S):
        title = re.search(r"<title[^>]*>\s*(.*?)\s*</title>", start, re.I | re.S)
        called = f", titled {title.group(1)!r}" if title else ""
        raise DatasetError(
            f"{str(path)!r} is a web page (HTML) saved under that name{called}, not a label file: "
            "its download has failed (such pages come when a quota is exceeded). Get it again."
        )
    if not start:
        raise DatasetError(f"{str(path)!r} is empty. Get it again.")
    if start.startswith("version https://git-lfs"):
        raise DatasetError(f"{str(path)!r} is a Git LFS pointer: run `git lfs pull`.")
    if b"\0" in data[:_START] and encoding != "utf-16":
        raise DatasetError(f"{str(path)!r} is not text (an archive or a spreadsheet?).")
    return text, encoding, sha256(data).hexdigest()


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
            raise self.error(f"{str(path)!r} is a file, not a folder (an archive? Unpack it).")
        if not path.is_dir():
            raise self.error(f"there is no folder {str(path)!r}.")
        return path

    def find(self, root: Path, folders: Sequence[str], names: Sequence[str]) -> Path | None:
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
        if check_images:
            rows = map(_with_image, rows)
        records, problems = collect(rows)
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
