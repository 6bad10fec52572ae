"""Label files as they are found: their formats, and the images that they mean."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, NamedTuple
from zipfile import ZipFile

from fair_tta._io import open_file, printable
from fair_tta.datasets._records import Problem, ProblemKind
from fair_tta.errors import DatasetError, require, suggest_name

_SEPARATORS = ",;\t|"

_START = 4096  # bytes that tell what a file is

_MOST_CELLS = (
    20_000_000  # of columns that are read: each takes some 100 bytes as an object
)

_MOST_COLUMNS = 2**14  # as many as Excel has

_MOST_SHEET_ROWS = 2**20  # likewise

_FREELY = (
    2**24
)  # bytes that a file may always be when it is unpacked: seconds of a processor

_MOST_UNPACKED = 2**30  # bytes of a table

_TABLE_TIMES = 100  # by which tables are packed: sheets that people have some 15 to 50

_AT_ONCE = 2**16  # cells of parquet


class LabelRow(NamedTuple):  # of which there may be millions
    """The wanted cells of one row, stripped, and the line of the file where it ends."""

    line: int
    cells: dict[str, str]


Lines = Callable[[Sequence[str]], Iterator[tuple[int, dict[str, str] | None]]]
"""The lines of a table, each with the cells that are asked for, by column and stripped; None if it
has not as many cells as the header."""


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
            with open_file(path, pipes=True) as file:
                data = file.read()
        except OSError as error:
            raise DatasetError(
                f"cannot read {str(path)!r}: {error.strerror or error}."
            ) from error
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
        if len(self.header) > _MOST_COLUMNS:
            raise DatasetError(
                f"{str(path)!r} has {len(self.header):,} columns, more than {_MOST_COLUMNS:,}: "
                "keep those that you need."
            )
        missing = [name for name in wanted if name not in self.header]
        if missing:
            raise DatasetError(
                f"{str(path)!r} should have the columns {list(wanted)}, but lacks {missing} "
                f"(it has {self.header}).{suggest_name(missing[0], self.header)}"
            )
        self.check_once(wanted)

    def check_once(self, columns: Sequence[str]) -> None:
        """Raise if several columns have one of these names: formats differ in which they read."""
        twice = sorted({name for name in columns if self.header.count(name) > 1})
        if twice:
            raise DatasetError(
                f"{str(self.path)!r} has more than one column called {twice}."
            )

    def rows(
        self, columns: Sequence[str], official: int | None = None
    ) -> Iterator[LabelRow | Problem]:
        """Row by row the cells of some columns, or what is wrong with the row; at the end whether
        there are as many as there should be, if that is known."""
        if self._encoding == "cp1252":
            yield Problem(ProblemKind.ENCODING, self.path.name)
        count = 0
        for line, cells in self._lines(columns):
            count += 1
            if cells is None:
                yield Problem(
                    ProblemKind.MALFORMED_ROW, f"{self.path.name} line {line}"
                )
            else:
                yield LabelRow(line, cells)
        if official is not None and count != official:
            yield Problem(
                ProblemKind.PARTIAL, f"{self.path.name}: {count} instead of {official}"
            )


def _csv(path: Path, text: str, wanted: Sequence[str]) -> tuple[list[str], Lines]:
    text = re.sub(r'\A"?sep=[^\r\n]*', "", text, flags=re.I)  # Excel's separator

    def raw(separator: str) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not blank, with their lines."""
        lines = io.StringIO(text, newline="")
        reader = csv.reader(
            lines, delimiter=separator, skipinitialspace=True, strict=True
        )
        try:
            yield from ((reader.line_num, cells) for cells in reader if cells)
        except csv.Error as error:
            raise DatasetError(
                f"{str(path)!r} cannot be read from line {reader.line_num} on: {error} "
                "(a quotation mark that is not closed?)."
            ) from error

    found = []
    for sign in _SEPARATORS:
        with suppress(
            DatasetError
        ):  # names in quotes, with another separator between them
            _, names = next(raw(sign), (0, []))
            found.append((_trimmed(names), sign))
    if not found:
        next(raw(_SEPARATORS[0]))  # raises
    header, separator = max(
        found, key=lambda one: (set(wanted) <= set(one[0]), len(one[0]))
    )

    def lines(columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str] | None]]:
        for line, row in islice(raw(separator), 1, None):
            if any(map(str.strip, row)):  # spreadsheets leave others at the end
                is_whole = len(row) >= len(header) and not any(
                    map(str.strip, row[len(header) :])
                )
                cells = dict(zip(header, row, strict=False))
                yield line, _cells(cells, columns) if is_whole else None

    return header, lines


def _excel(path: Path, data: bytes) -> tuple[list[str], Lines]:
    openpyxl = require("openpyxl", "tables")

    with _reading(path, "an Excel file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles that it does not know
        check_unpacked(unpacked_size(io.BytesIO(data)), len(data), _TABLE_TIMES)
        sheet = openpyxl.load_workbook(
            io.BytesIO(data), True, data_only=True
        ).worksheets[0]
        sheet.reset_dimensions()  # some programs write wrong ones
        top, names = next(_sheet_rows(sheet, 1, None), (0, ()))
        header = _trimmed(map(_text, names))
        # cells without a name are not looked at: one at the right edge makes 16,384 of a row
        rows = list(_sheet_rows(sheet, top + 1, len(header))) if header else []

    def lines(columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
        places = {name: header.index(name) for name in columns}
        for line, row in rows:
            cells = {
                name: row[place] for name, place in places.items() if place < len(row)
            }
            yield line, _cells(cells, columns)

    return header, lines


def _sheet_rows(
    sheet: Any, first: int, columns: int | None
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield the rows of a sheet that are not blank, with their numbers, from the first on.

    Raises:
        ValueError: there are more rows or cells than a table of labels has.
    """
    cells = 0
    rows = sheet.iter_rows(min_row=first, max_col=columns, values_only=True)
    for line, row in enumerate(rows, start=first):
        if line > _MOST_SHEET_ROWS:  # a number in the file, which may be any
            raise ValueError(f"it has more than {_MOST_SHEET_ROWS:,} rows")
        cells += len(row)  # of blank rows too, which take their time
        if cells > _MOST_CELLS:
            raise ValueError(
                f"it has more than {_MOST_CELLS:,} cells: keep what you need"
            )
        if any(value is not None and value != "" for value in row):
            yield line, row


def _parquet(path: Path, data: bytes) -> tuple[list[str], Lines]:
    arrow, parquet = require("pyarrow", "tables"), require("pyarrow.parquet", "tables")
    types = arrow.types
    with _reading(path, "parquet"):
        schema = parquet.read_schema(arrow.BufferReader(data))
        fields = [field for field in schema if not types.is_nested(field.type)]
        # a text that many rows share stays one text
        texts = [
            f.name
            for f in fields
            if types.is_string(f.type) or types.is_large_string(f.type)
        ]
        file = parquet.ParquetFile(arrow.BufferReader(data), read_dictionary=texts)
        header = _trimmed(field.name for field in fields)
    written = {field.name.strip(): field.name for field in reversed(fields)}

    def lines(columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
        names = list(dict.fromkeys(columns))
        chosen = [written[name] for name in names]
        total = file.metadata.num_rows
        with _reading(path, "parquet"):
            if total * len(names) > _MOST_CELLS:
                raise ValueError(
                    f"it has {total:,} rows x {len(names)} columns that are read, and at most "
                    f"{_MOST_CELLS:,} cells are: keep the rows that you need"
                )
            check_unpacked(
                _column_bytes(file.metadata, chosen), len(data), _TABLE_TIMES
            )
            size = max(1, _AT_ONCE // max(1, len(names)))
            yield from ((line, {}) for line in range(1, total + 1) if not names)
            numbers = count(1)
            for batch in file.iter_batches(size, columns=chosen) if names else ():
                cells = [_column_texts(arrow, batch.column(name)) for name in chosen]
                for *row, line in zip(*cells, numbers, strict=False):
                    yield line, dict(zip(names, row, strict=True))

    return header, lines


def _column_bytes(metadata: Any, names: Collection[str]) -> int:
    """Return how many bytes some columns of a parquet file are when they are unpacked."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    columns = (group.column(j) for group in groups for j in range(metadata.num_columns))
    return sum(c.total_uncompressed_size for c in columns if c.path_in_schema in names)


def _column_texts(arrow: Any, column: Any) -> list[str]:
    """Return the cells of a column as text; equal ones are made once."""
    try:
        coded = (
            column
            if arrow.types.is_dictionary(column.type)
            else column.dictionary_encode()
        )
    except arrow.ArrowNotImplementedError:  # not of all types
        return [_text(value).strip() for value in column.to_pylist()]
    places = coded.indices.fill_null(len(coded.dictionary)).to_pylist()
    # the dictionary of a batch has the texts of all batches before it
    used = sorted({*places} - {len(coded.dictionary)})
    values = coded.dictionary.take(arrow.array(used, arrow.int64())).to_pylist()
    texts = {
        place: _text(value).strip() for place, value in zip(used, values, strict=True)
    }
    texts[len(coded.dictionary)] = ""
    return [*map(texts.__getitem__, places)]


def unpacked_size(file: IO[bytes] | Path) -> int:
    """Return how many bytes the parts of a zip file say that they are."""
    with ZipFile(file) as archive:
        return sum(part.file_size for part in archive.infolist())


def check_unpacked(unpacked: int, packed: int, times: int) -> None:
    """Raise ValueError if a file would become too large, or is packed as no honest one is."""
    if unpacked > _MOST_UNPACKED or unpacked > max(_FREELY, times * packed):
        raise ValueError(
            f"it would be {unpacked:,} bytes when it is unpacked, {unpacked // max(1, packed):,} "
            "times what it is: save it again in another format"
        )


def _json_lines(path: Path, text: str) -> tuple[list[str], Lines]:
    def raw() -> Iterator[tuple[int, dict[str, Any]]]:
        for line, written in enumerate(io.StringIO(text, newline=None), start=1):
            if written.strip():
                with _reading(path, f"JSON lines, in line {line}"):
                    row = json.loads(written)
                    if not isinstance(row, dict):
                        raise ValueError("not an object")
                yield line, row

    def lines(columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
        return ((line, _cells(row, columns)) for line, row in raw())

    return [*dict.fromkeys(name for _, row in raw() for name in row)], lines


def _cells(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, str]:
    """Return the cells of some columns as text; one that is not there is empty."""
    return {name: _text(row.get(name)).strip() for name in columns}


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (DatasetError, ImportError):
        raise
    except Exception as error:  # each library has its own for damaged files
        reason = printable(" ".join(str(error).split())[:200])
        raise DatasetError(
            f"{str(path)!r} cannot be read as {what}: {reason}."
        ) from error


def _trimmed(names: Iterable[str]) -> list[str]:
    """Names of columns without those at the end that are empty."""
    header = [name.strip() for name in names]
    while header and not header[-1]:
        header.pop()
    return header


def _text(value: Any) -> str:
    """A cell as CSV would have it: a whole number has no point, what is true or false is so."""
    if isinstance(value, str):
        return value
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
    if re.match(
        r"(<!--.*?-->\s*)?<(!doctype\s+html|html|head|body)\b", start, re.I | re.S
    ):
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
