"""Label files as they are found: CSV, JSON lines, Excel, parquet."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from fair_tta._io import open_file, printable
from fair_tta.errors import DatasetError, near, require
from fair_tta.lab.data._records import Problem, ProblemKind

_SEPARATORS = ",;\t|"
_START = 4096  # bytes that tell what a file is
_MOST_UNPACKED = 2**30  # bytes of an Excel file

Lines = Callable[[Sequence[str]], Iterator[tuple[int, Mapping[str, Any] | None]]]
"""The lines of a table, each with its cells by column, at least those asked for; None if it has not
as many cells as the header."""


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
        self._lines: Lines
        if data.startswith(b"PK\3\4"):
            self.header, self._lines = _excel(path, data)
        elif data.startswith(b"PAR1"):
            self.header, self._lines = _parquet(path, data)
        else:
            text, self._encoding = _read_text(path, data)
            if text.lstrip().startswith("{"):
                self.header, self._lines = _json_lines(path, text)
            else:
                self.header, self._lines = _csv(path, to_csv(text), wanted)
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
        for line, cells in self._lines(columns):
            count += 1
            if cells is None:
                yield Problem(ProblemKind.MALFORMED_ROW, f"{self.path.name} line {line}")
            else:
                yield Row(line, {name: _text(cells.get(name)).strip() for name in columns})
        if official is not None and count != official:
            yield Problem(ProblemKind.PARTIAL, f"{self.path.name}: {count} instead of {official}")


def _csv(path: Path, text: str, wanted: Sequence[str]) -> tuple[list[str], Lines]:
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

    def lines(_: Sequence[str]) -> Iterator[tuple[int, dict[str, str] | None]]:
        for line, row in islice(raw(separator), 1, None):
            if any(map(str.strip, row)):  # spreadsheets leave others at the end
                is_whole = len(row) >= len(header) and not any(map(str.strip, row[len(header) :]))
                yield line, dict(zip(header, row, strict=False)) if is_whole else None

    return header, lines


def _excel(path: Path, data: bytes) -> tuple[list[str], Lines]:
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
    cells = [(line, dict(zip(header, row, strict=False))) for line, row in rows[1:]]
    return header, lambda _: iter(cells)


def _parquet(path: Path, data: bytes) -> tuple[list[str], Lines]:
    arrow, parquet = require("pyarrow", "tables"), require("pyarrow.parquet", "tables")
    with _reading(path, "parquet"):
        file = parquet.ParquetFile(arrow.BufferReader(data))
        header = [f.name for f in file.schema_arrow if not arrow.types.is_nested(f.type)]

    def lines(columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        with _reading(path, "parquet"):
            batches = file.iter_batches(columns=list(dict.fromkeys(columns)), batch_size=1024)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)

    return header, lines


def _json_lines(path: Path, text: str) -> tuple[list[str], Lines]:
    def lines(_: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        for line, written in enumerate(io.StringIO(text, newline=None), start=1):
            if written.strip():
                with _reading(path, f"JSON lines, in line {line}"):
                    row = json.loads(written)
                    if not isinstance(row, dict):
                        raise ValueError("not an object")
                yield line, row

    return [*dict.fromkeys(name for _, row in lines(()) for name in row)], lines


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
