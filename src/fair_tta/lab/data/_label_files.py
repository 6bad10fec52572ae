"""Label files as they are found: CSV, JSON lines, Excel, parquet, and whole data sets."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import stat
import sys
import unicodedata
import warnings
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import Any
from zipfile import ZipFile

from fair_tta._io import images_below, open_file, printable
from fair_tta.errors import DatasetError, near, require
from fair_tta.lab.data._records import Dataset, Problem, ProblemKind, Record, collect
from fair_tta.lab.data._tasks import BenchmarkTask

_SEPARATORS = ",;\t|"
_START = 4096  # bytes that tell what a file is
_MOST_UNPACKED = 2**30  # bytes of an Excel file

Cells = Callable[[Sequence[str]], Iterator[tuple[int, list[str] | None]]]
"""The lines of a table, each with its cells in some columns; None if it has not as many cells as
the header."""


@dataclass(frozen=True)
class Row:
    """The wanted cells of one row, stripped, and the line of the file where it ends."""

    line: int
    cells: dict[str, str]


class LabelTable:
    """A file with a header: CSV, JSON lines, the first sheet of an Excel file, or parquet.

    Its content decides which. The separator of CSV is the one that finds the wanted columns. A row
    of CSV that has not as many cells as the header is a problem, for its cells may stand under the
    wrong names; empty cells at its end do not count. `to_csv` makes CSV of its text, line by line,
    if it has another format.
    """

    def __init__(
        self, path: Path, wanted: Sequence[str], to_csv: Callable[[str], str] = str
    ) -> None:
        self.path, self._encoding = path, "utf-8"
        try:
            with open_file(path) as file:
                data = file.read()
        except OSError as error:
            raise DatasetError(f"cannot read {str(path)!r}: {error.strerror or error}.") from error
        self.sha256 = sha256(data).hexdigest()
        self.header: list[str]
        self._cells: Cells
        if data.startswith(b"PK\3\4"):
            self.header, self._cells = _excel(path, data)
        elif data.startswith(b"PAR1"):
            self.header, self._cells = _parquet(path, data)
        else:
            text, self._encoding = _read_text(path, data)
            if text.lstrip().startswith("{"):
                self.header, self._cells = _json_lines(path, text)
            else:
                self.header, self._cells = _csv(path, to_csv(text), wanted)
        missing = [name for name in wanted if name not in self.header]
        if missing:
            raise DatasetError(
                f"{str(path)!r} should have the columns {list(wanted)}, but lacks {missing} "
                f"(it has {self.header}).{near(missing[0], self.header)}"
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
        for line, cells in self._cells(columns):
            count += 1
            if cells is None:
                yield Problem(ProblemKind.MALFORMED_ROW, f"{self.path.name} line {line}")
            else:
                yield Row(line, dict(zip(columns, map(str.strip, cells), strict=True)))
        if official is not None and count != official:
            yield Problem(ProblemKind.PARTIAL, f"{self.path.name}: {count} instead of {official}")


def _csv(path: Path, text: str, wanted: Sequence[str]) -> tuple[list[str], Cells]:
    text = re.sub(r'\A"?sep=[^\r\n]*', "", text, flags=re.I)  # Excel's separator

    def raw(separator: str) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not blank, with their lines."""
        lines = io.StringIO(text, newline="")
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
        try:
            yield from ((reader.line_num, cells) for cells in reader if cells)
        except csv.Error as error:
            raise DatasetError(
                f"{str(path)!r} cannot be read from line {reader.line_num} on: {error} "
                "(a quotation mark that is not closed?)."
            ) from error

    found = []
    for sign in _SEPARATORS:
        with suppress(DatasetError):  # names in quotes, with another separator between them
            _, names = next(raw(sign), (0, []))
            found.append((_trimmed(names), sign))
    if not found:
        next(raw(_SEPARATORS[0]))  # raises
    header, separator = max(found, key=lambda one: (set(wanted) <= set(one[0]), len(one[0])))

    def cells(columns: Sequence[str]) -> Iterator[tuple[int, list[str] | None]]:
        places = [header.index(name) for name in columns]
        for line, row in islice(raw(separator), 1, None):
            if not any(cell.strip() for cell in row):
                continue  # spreadsheets leave such rows at the end
            while len(row) > len(header) and not row[-1].strip():
                row.pop()
            yield line, [row[place] for place in places] if len(row) == len(header) else None

    return header, cells


def _excel(path: Path, data: bytes) -> tuple[list[str], Cells]:
    openpyxl = require("openpyxl", "tables")

    with _reading(path, "an Excel file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles that it does not know
        size = sum(part.file_size for part in ZipFile(io.BytesIO(data)).infolist())
        if size > _MOST_UNPACKED:
            raise ValueError(f"it has more than {_MOST_UNPACKED} bytes when it is unpacked")
        sheet = openpyxl.load_workbook(io.BytesIO(data), True, data_only=True).worksheets[0]
        sheet.reset_dimensions()  # some programs write wrong ones
        lines = enumerate(sheet.iter_rows(values_only=True), start=1)
        rows = [(line, [*map(_text, row)]) for line, row in lines if any(map(_text, row))]
    header = _trimmed(rows[0][1] if rows else [])

    def cells(columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        places = [header.index(name) for name in columns]
        for line, row in rows[1:]:
            yield line, [row[place] if place < len(row) else "" for place in places]

    return header, cells


def _parquet(path: Path, data: bytes) -> tuple[list[str], Cells]:
    arrow, parquet = require("pyarrow", "tables"), require("pyarrow.parquet", "tables")
    with _reading(path, "parquet"):
        file = parquet.ParquetFile(arrow.BufferReader(data))
        header = [f.name for f in file.schema_arrow if not arrow.types.is_nested(f.type)]

    def cells(columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        with _reading(path, "parquet"):
            batches = file.iter_batches(columns=list(dict.fromkeys(columns)), batch_size=1024)
            rows = (row for batch in batches for row in batch.to_pylist())
            for line, row in enumerate(rows, start=1):
                yield line, [_text(row[name]) for name in columns]

    return header, cells


def _json_lines(path: Path, text: str) -> tuple[list[str], Cells]:
    def raw() -> Iterator[tuple[int, dict[str, Any]]]:
        for line, written in enumerate(io.StringIO(text, newline=None), start=1):
            if written.strip():
                with _reading(path, f"JSON lines, in line {line}"):
                    row = json.loads(written)
                    if not isinstance(row, dict):
                        raise ValueError("not an object")
                yield line, row

    def cells(columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        for line, row in raw():
            yield line, [_text(row.get(name)) for name in columns]

    return [*dict.fromkeys(name for _, row in raw() for name in row)], cells


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (DatasetError, ImportError):
        raise
    except Exception as error:  # each library has its own for damaged files
        reason = printable(" ".join(str(error).split())[:200])
        raise DatasetError(f"{str(path)!r} cannot be read as {what}: {reason}.") from error


def _trimmed(names: Iterable[str]) -> list[str]:
    """Names of columns without those at the end that are empty."""
    header = [name.strip() for name in names]
    while header and not header[-1]:
        header.pop()
    return header


def _text(value: Any) -> str:
    """A cell as CSV would have it: a whole number has no point, what is true or false is so."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _read_text(path: Path, data: bytes) -> tuple[str, str]:
    """A label file as text, and its encoding."""
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
        raise DatasetError(
            f"{str(path)!r} is not text (an archive? Unpack it. An old spreadsheet? Save it as "
            ".xlsx or .csv)."
        )
    return text, encoding


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


def find_images(
    names: Iterable[str], images: Path, labels: Path
) -> tuple[dict[str, tuple[Path, Problem | None]], list[Problem]]:
    """The files that cells mean, or why there is none; and notes about the folder as a whole.

    Paths are as written, or with the slashes and accents of this machine, in the folder of the
    images or beside the label file. Those of another machine are known by their ends.
    """
    found = {name: find_image(name, (images, labels.parent)) for name in dict.fromkeys(names)}
    there = [path for path in images_below(images) if isinstance(path, str)]
    missing = [name for name, (_, why) in found.items() if _is_missing(why)]
    ends = {
        name: file
        for name, file in _match_ends(missing, there).items()
        if os.path.relpath(file, images) != name  # such as a link that leads nowhere
    }
    found |= {name: (Path(file), image_problem(Path(file), name)) for name, file in ends.items()}
    notes = []
    if ends:
        name, file = next(iter(ends.items()))
        what = f"{len(ends)} in {labels.name}, such as {name} for {os.path.relpath(file, images)}"
        notes.append(Problem(ProblemKind.OTHER_MACHINE, what))
    named = {file_of(path) for path, _ in found.values()}
    other = [os.path.relpath(path, images) for path in there if file_of(Path(path)) not in named]
    if other:
        lost = sum(_is_missing(why) for _, why in found.values())
        what = f"images without a row: {first_three(other)}; rows without an image: {lost}"
        notes.append(Problem(ProblemKind.UNPAIRED, what))
    return found, notes


def file_of(path: Path) -> str:
    """One text for one file, however its path is spelt; links to folders are followed."""
    place = os.path.join(real_folder(os.path.join(os.getcwd(), path.parent)), path.name)
    if sys.platform == "darwin":  # whose disks do not tell these apart
        place = unicodedata.normalize("NFC", place)
    return os.path.normcase(place)


@lru_cache(maxsize=2**16)  # a dataset may have a folder for each person
def real_folder(folder: str) -> str:
    """Without links."""
    try:
        return os.path.realpath(folder)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return folder


def _is_missing(problem: Problem | None) -> bool:
    return problem is not None and problem.kind is ProblemKind.MISSING_IMAGE


def find_image(name: str, folders: Sequence[Path]) -> tuple[Path, Problem | None]:
    """The file that a cell means: as written, or with the slashes and accents of this machine."""
    places = list(dict.fromkeys(folder / form for folder in folders for form in spellings(name)))
    problems = []
    for path in places:
        problem = image_problem(path, name)
        if problem is None:
            return path, None
        problems.append(problem)
    return places[0], min(problems, key=_is_missing)


def _match_ends(names: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """``{name: file}`` of paths of another machine: the file with the longest common end.

    There should be one such file. Of a relative path the whole should be its end. Once a path is
    found, others that begin with what differs in it lie below the same folder, or nowhere: if
    ``D:/faces/test/1.jpg`` is ``test/1.jpg``, then ``D:/faces/train/1.jpg`` is not.
    """

    def backwards(path: str) -> list[str]:
        return [*map(_composed, reversed(PureWindowsPath(path).parts))]

    ends = sorted((backwards(os.path.abspath(file)), file) for file in files)
    pairs = []
    for name in names:
        parts = backwards(name)
        place = bisect_left(ends, (parts, ""))
        close = ends[max(0, place - 2) : place + 2]
        shared = [len(os.path.commonprefix([parts, end])) for end, _ in close]  # noqa: RUF071
        most = max(shared, default=0)
        least = 1 if PureWindowsPath(name).anchor else len(parts)
        if 0 < least <= most and shared.count(most) == 1:
            begins = tuple(reversed(parts[most:]))
            pairs.append((begins, name, close[shared.index(most)][1]))
    known: set[tuple[str, ...]] = set()
    found = {}
    for begins, name, file in sorted(pairs, key=lambda pair: len(pair[0])):
        if not any(begins[:n] in known for n in range(1, len(begins))):
            known.add(begins)
            found[name] = file
    return found


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def spellings(name: str) -> tuple[str, ...]:
    """A name as written, and with the slashes and accents of other machines."""
    plain = name.replace("\\", "/")
    return name, plain, *(unicodedata.normalize(form, plain) for form in ("NFC", "NFD"))


def first_three(names: Sequence[str]) -> str:
    """How many there are, and the first of them."""
    more = ", ..." if len(names) > 3 else ""
    return f"{len(names)} ({', '.join(map(repr, names[:3]))}{more})"
