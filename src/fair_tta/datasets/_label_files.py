"""Formats of label files: CSV, JSON lines, Excel and parquet, read row by row."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias
from zipfile import ZipFile

from fair_tta._io import open_file, printable
from fair_tta.datasets._records import Problem, ProblemKind
from fair_tta.errors import DatasetError, require, suggest_name

_SEPARATORS = ",;\t|"

# Characters at the beginning of a file by which other content is recognised
_PREVIEW_LENGTH = 4096

# Limits that keep a small hostile file from filling memory. A cell takes about 100 bytes as an
# object, so that the cells that are read take at most 2 GB.
_MAX_CELLS = 20_000_000

# Those of Excel
_MAX_COLUMNS = 2**14
_MAX_SHEET_ROWS = 2**20

_MAX_UNPACKED_BYTES = 2**30

# Files that unpack to this size take seconds at most, however well they are packed
_HARMLESS_BYTES = 2**24

# Sheets that people write unpack to 15 to 50 times their size
_MAX_TABLE_RATIO = 100

# Cells of parquet that are converted together
_BATCH_CELLS = 2**16


class LabelRow(NamedTuple):  # a tuple, as there may be millions
    """The requested cells of one row, stripped, and the line of the file where it ends."""

    line: int
    cells: dict[str, str]


RawRow: TypeAlias = Mapping[str, Any]
"""The cells of a row by column, as the format holds them."""

ReadLines: TypeAlias = Callable[[Sequence[str]], Iterator[tuple[int, RawRow | None]]]
"""Yields line numbers and rows with at least these columns; None for a malformed row."""


class LabelTable:
    """A file with a header: CSV, JSON lines, the first sheet of an Excel file, or parquet.

    The content decides the format. The separator of CSV is the one that finds the required
    columns. A row of CSV whose number of cells differs from the header is a problem, because its
    cells may stand under the wrong names; empty cells at its end do not count.

    Args:
        path: the file.
        required: columns that it should have.
        to_csv: converts its text to CSV, line by line, if it has another format.
    """

    def __init__(
        self, path: Path, required: Sequence[str], to_csv: Callable[[str], str] = str
    ) -> None:
        self.path = path
        self._encoding = "utf-8"
        try:
            with open_file(path, pipes=True) as file:
                data = file.read()
        except OSError as error:
            raise DatasetError(
                f"cannot read {str(path)!r}: {error.strerror or error}."
            ) from error

        self.header: list[str]
        self._read_lines: ReadLines
        if data.startswith(b"PK\3\4"):
            self.header, self._read_lines = _excel_table(path, data)
        elif data.startswith(b"PAR1"):
            self.header, self._read_lines = _parquet_table(path, data)
        else:
            text, self._encoding = _decode(data)
            _check_is_table(path, text, self._encoding)
            if text.lstrip().startswith("{"):
                self.header, self._read_lines = _json_lines_table(path, text)
            else:
                self.header, self._read_lines = _csv_table(path, to_csv(text), required)

        if len(self.header) > _MAX_COLUMNS:
            raise DatasetError(
                f"{str(path)!r} has {len(self.header):,} columns, more than {_MAX_COLUMNS:,}: "
                "keep those that you need."
            )
        missing = [name for name in required if name not in self.header]
        if missing:
            raise DatasetError(
                f"{str(path)!r} should have the columns {list(required)}, but lacks {missing} "
                f"(it has {self.header}).{suggest_name(missing[0], self.header)}"
            )
        self.check_unique(required)

    def check_unique(self, columns: Sequence[str]) -> None:
        """Raise if the header has one of these names twice."""
        repeated = {name for name in columns if self.header.count(name) > 1}
        if repeated:
            raise DatasetError(
                f"{str(self.path)!r} has more than one column called {sorted(repeated)}."
            )

    def rows(
        self, columns: Sequence[str], official: int | None = None
    ) -> Iterator[LabelRow | Problem]:
        """Yield some cells of each row, or what is wrong with the row or the file.

        Args:
            columns: the columns to read.
            official: the number of rows that the file should have, if that is known.
        """
        name = self.path.name
        if self._encoding == "cp1252":
            yield Problem(ProblemKind.ENCODING, name)
        n_rows = 0
        for line, raw in self._read_lines(columns):
            n_rows += 1
            if raw is None:
                yield Problem(ProblemKind.MALFORMED_ROW, f"{name} line {line}")
                continue
            cells = {column: _cell_text(raw.get(column)) for column in columns}
            yield LabelRow(line, cells)
        if official is not None and n_rows != official:
            yield Problem(
                ProblemKind.PARTIAL, f"{name}: {n_rows} instead of {official}"
            )


def _decode(data: bytes) -> tuple[str, str]:
    """Return the text of a file and its encoding."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace"), "utf-16"
    try:
        return data.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace"), "cp1252"


def _check_is_table(path: Path, text: str, encoding: str) -> None:
    """Raise if a text is known to be something else, such as a failed download."""
    start = text[:_PREVIEW_LENGTH].strip()
    flags = re.IGNORECASE | re.DOTALL
    if re.match(r"(<!--.*?-->\s*)?<(!doctype\s+html|html|head|body)\b", start, flags):
        title = re.search(r"<title[^>]*>\s*(.*?)\s*</title>", start, flags)
        titled = f", titled {title[1]!r}" if title else ""
        raise DatasetError(
            f"{str(path)!r} is a web page (HTML){titled}, not a label file: the download failed, "
            "perhaps because a quota was exceeded. Download it again."
        )
    if not start:
        raise DatasetError(f"{str(path)!r} is empty: download or write it again.")
    if start.startswith("version https://git-lfs"):
        raise DatasetError(f"{str(path)!r} is a Git LFS pointer: run `git lfs pull`.")
    # Of UTF-16, which a mark declares, only the cell with the null character is lost
    if "\0" in start and encoding != "utf-16":
        raise DatasetError(
            f"{str(path)!r} is not text: unpack it if it is an archive, and save it as .xlsx or "
            ".csv if it is an old spreadsheet."
        )


def _csv_table(
    path: Path, text: str, required: Sequence[str]
) -> tuple[list[str], ReadLines]:
    # Excel may name its separator in a line before the header
    text = re.sub(r'\A"?sep=[^\r\n]*', "", text, flags=re.IGNORECASE)

    def split(separator: str) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that are not blank, with their lines."""
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=separator,
            skipinitialspace=True,
            strict=True,
        )
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            raise DatasetError(
                f"{str(path)!r} cannot be read from line {reader.line_num} on: {error}. "
                "Check for a quotation mark that is not closed."
            ) from error

    headers: dict[str, list[str]] = {}
    for separator in _SEPARATORS:
        # Quoted names are malformed where another separator stands between them
        with suppress(DatasetError):
            _, names = next(split(separator), (0, []))
            headers[separator] = _strip_header(names)
    if not headers:
        next(split(_SEPARATORS[0]))  # raises

    def fit(separator: str) -> tuple[bool, int]:
        """Return whether the header has the required columns, and how many columns."""
        names = headers[separator]
        return set(required) <= set(names), len(names)

    best = max(headers, key=fit)
    header = headers[best]

    def read_lines(columns: Sequence[str]) -> Iterator[tuple[int, RawRow | None]]:
        rows = split(best)
        next(rows, None)  # the header
        for line, cells in rows:
            if _is_blank(cells):  # spreadsheets leave rows of separators at the end
                continue
            is_whole = len(cells) >= len(header) and _is_blank(cells[len(header) :])
            yield line, dict(zip(header, cells, strict=False)) if is_whole else None

    return header, read_lines


def _is_blank(cells: Iterable[str]) -> bool:
    return not any(map(str.strip, cells))


def _excel_table(path: Path, data: bytes) -> tuple[list[str], ReadLines]:
    openpyxl = require("openpyxl", "tables")
    with _unreadable_as_error(path, "an Excel file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles that openpyxl does not support
        file = io.BytesIO(data)
        check_unpacked(zip_content_bytes(file), len(data), _MAX_TABLE_RATIO)
        workbook = openpyxl.load_workbook(file, read_only=True, data_only=True)
        sheet = workbook.worksheets[0]
        sheet.reset_dimensions()  # some programs write wrong ones
        first_line, names = next(_sheet_rows(sheet, 1, None), (0, ()))
        header = _strip_header(_cell_text(name) for name in names)
        # One cell at the right edge makes a row 16,384 cells wide: read named columns only
        rows = list(_sheet_rows(sheet, first_line + 1, len(header))) if header else []

    def read_lines(columns: Sequence[str]) -> Iterator[tuple[int, RawRow]]:
        for line, cells in rows:
            yield line, dict(zip(header, cells, strict=False))

    return header, read_lines


def _sheet_rows(
    sheet: Any, first_line: int, n_columns: int | None
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield the rows of a sheet that are not blank, with their line numbers.

    Raises:
        ValueError: there are more rows or cells than a table of labels has.
    """
    n_cells = 0
    rows = sheet.iter_rows(min_row=first_line, max_col=n_columns, values_only=True)
    for line, cells in enumerate(rows, start=first_line):
        # The file states the numbers of its rows, and openpyxl fills all gaps
        if line > _MAX_SHEET_ROWS:
            raise ValueError(f"it has more than {_MAX_SHEET_ROWS:,} rows")
        n_cells += len(cells)
        if n_cells > _MAX_CELLS:
            raise ValueError(
                f"it has more than {_MAX_CELLS:,} cells: keep what you need"
            )
        if any(cell not in (None, "") for cell in cells):
            yield line, cells


def _parquet_table(path: Path, data: bytes) -> tuple[list[str], ReadLines]:
    arrow = require("pyarrow", "tables")
    parquet = require("pyarrow.parquet", "tables")
    types = arrow.types
    text_columns = []
    name_in_file: dict[str, str] = {}
    with _unreadable_as_error(path, "parquet"):
        names = []
        for field in parquet.read_schema(arrow.BufferReader(data)):
            if types.is_nested(field.type):
                continue
            names.append(field.name)
            name_in_file.setdefault(field.name.strip(), field.name)
            if types.is_string(field.type) or types.is_large_string(field.type):
                text_columns.append(field.name)
        header = _strip_header(names)
        # As a dictionary, a text that many rows share stays one object
        file = parquet.ParquetFile(
            arrow.BufferReader(data), read_dictionary=text_columns
        )

    def read_lines(columns: Sequence[str]) -> Iterator[tuple[int, RawRow]]:
        unique = list(dict.fromkeys(columns))
        chosen = [name_in_file[name] for name in unique]
        with _unreadable_as_error(path, "parquet"):
            metadata = file.metadata
            if metadata.num_rows * len(unique) > _MAX_CELLS:
                raise ValueError(
                    f"it has {metadata.num_rows:,} rows x {len(unique)} columns that are read, "
                    f"and at most {_MAX_CELLS:,} cells are: keep the rows that you need"
                )
            chunks = column_chunks(metadata, chosen)
            n_bytes = sum(chunk.total_uncompressed_size for chunk in chunks)
            check_unpacked(n_bytes, len(data), _MAX_TABLE_RATIO)

            line = 0
            batch_rows = max(1, _BATCH_CELLS // max(1, len(unique)))
            for batch in file.iter_batches(batch_rows, columns=chosen):
                texts = [_column_texts(arrow, batch.column(name)) for name in chosen]
                for cells in zip(*texts, strict=True):
                    line += 1
                    yield line, dict(zip(unique, cells, strict=True))

    return header, read_lines


def column_chunks(metadata: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the metadata of each chunk of some columns of a parquet file."""
    # The path of a list continues below its column, as in "vectors.list.element"
    paths = tuple(f"{column}." for column in columns)
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            if f"{chunk.path_in_schema}.".startswith(paths):
                yield chunk


def _column_texts(arrow: Any, column: Any) -> list[str]:
    """Return the cells of a column as text; equal cells share one object."""
    if not arrow.types.is_dictionary(column.type):
        try:
            column = column.dictionary_encode()
        except arrow.ArrowNotImplementedError:  # not possible for all types
            return [_cell_text(value) for value in column.to_pylist()]
    indices = column.indices.to_pylist()
    # The dictionary of a batch also holds the texts of all batches before it
    used = sorted(set(indices) - {None})
    values = column.dictionary.take(arrow.array(used, arrow.int64())).to_pylist()
    texts = {None: ""}
    for index, value in zip(used, values, strict=True):
        texts[index] = _cell_text(value)
    return [texts[index] for index in indices]


def zip_content_bytes(file: IO[bytes] | Path) -> int:
    """Return the total size that a zip file states for its parts, in bytes."""
    with ZipFile(file) as archive:
        return sum(part.file_size for part in archive.infolist())


def check_unpacked(unpacked: int, packed: int, max_ratio: int) -> None:
    """Raise ValueError if a file would unpack to too many bytes.

    Args:
        unpacked: the size after unpacking, in bytes.
        packed: the size of the file, in bytes.
        max_ratio: the largest ratio of both in files that are no attack.
    """
    limit = min(_MAX_UNPACKED_BYTES, max(_HARMLESS_BYTES, max_ratio * packed))
    if unpacked > limit:
        raise ValueError(
            f"it would be {unpacked:,} bytes when it is unpacked, {unpacked // max(1, packed):,} "
            "times what it is: save it again in another format"
        )


def _json_lines_table(path: Path, text: str) -> tuple[list[str], ReadLines]:
    def parse() -> Iterator[tuple[int, dict[str, Any]]]:
        for line, json_text in enumerate(io.StringIO(text, newline=None), start=1):
            if not json_text.strip():
                continue
            with _unreadable_as_error(path, f"JSON lines, in line {line}"):
                row = json.loads(json_text)
                if not isinstance(row, dict):
                    raise ValueError("not an object")
            yield line, row

    header: dict[str, None] = {}  # an ordered set
    for _, row in parse():
        header.update(dict.fromkeys(row))
    return list(header), lambda columns: parse()


@contextmanager
def _unreadable_as_error(path: Path, file_format: str) -> Iterator[None]:
    """Turn any error of a library that reads a file into one that names the file."""
    try:
        yield
    except (DatasetError, ImportError):
        raise
    except Exception as error:  # each library has its own for damaged files
        reason = printable(" ".join(str(error).split())[:200])
        raise DatasetError(
            f"{str(path)!r} cannot be read as {file_format}: {reason}."
        ) from error


def _strip_header(names: Iterable[str]) -> list[str]:
    """Return the names of columns without the empty ones at the end."""
    header = [name.strip() for name in names]
    while header and not header[-1]:
        header.pop()
    return header


def _cell_text(value: Any) -> str:
    """Return a cell as CSV would hold it: 3 for 3.0, true for True, empty for None."""
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
