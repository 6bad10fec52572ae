"""Label files as they are found: CSV of any separator and encoding, web pages in disguise."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fair_tta.data.problems import Problem, ProblemKind
from fair_tta.data.records import DatasetError
from fair_tta.vision.files import open_file

_SEPARATORS = ",;\t|"
_START = 4096  # bytes that tell what a file is


@dataclass(frozen=True)
class Row:
    """The wanted cells of one row, stripped, and the line of the file where it ends."""

    line: int
    cells: dict[str, str]


def check_is_text(path: Path) -> str:
    """Refuse what cannot be a label file; returns the encoding."""
    try:
        with open_file(path) as file:
            start = file.read(_START)
            if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                encoding = "utf-16"
            else:
                encoding = "utf-8-sig" if _is_utf8(path) else "cp1252"
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror or error}.") from error
    text = start.decode(encoding, "ignore").strip()
    if re.match(r"(<!--.*?-->\s*)?<(!doctype\s+html|html|head|body)\b", text, re.I | re.S):
        title = re.search(r"<title[^>]*>\s*(.*?)\s*</title>", text, re.I | re.S)
        called = f", titled {title.group(1)!r}" if title else ""
        raise DatasetError(
            f"{str(path)!r} is a web page (HTML) saved under that name{called}, not a label file: "
            "its download has failed (such pages come when a quota is exceeded). Get it again."
        )
    if not text:
        raise DatasetError(f"{str(path)!r} is empty. Get it again.")
    if text.startswith("version https://git-lfs"):
        raise DatasetError(f"{str(path)!r} is a Git LFS pointer: run `git lfs pull`.")
    if b"\0" in start and encoding != "utf-16":
        raise DatasetError(f"{str(path)!r} is not text (an archive or a spreadsheet?).")
    return encoding


class LabelTable:
    """A CSV file with a header, read row by row.

    The separator is the one that finds the wanted columns. A row that has not as many cells as
    the header is a problem, for its cells may stand under the wrong names; empty cells at its
    end do not count.
    """

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self.path = path
        self.encoding = check_is_text(path)
        self.header, self._separator, self._skip = self._find_header(wanted)
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
        """Row by row the cells of some columns, or what is wrong with the row.

        Args:
            columns: the names of the columns.
            official: how many rows there should be, if that is known.
        """
        if self.encoding == "cp1252":
            yield Problem(ProblemKind.ENCODING, self.path.name)
        count = 0
        places = [(name, self.header.index(name)) for name in columns]
        width = len(self.header)
        for line, cells in self._raw(self._separator, self._skip + 1):
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

    def _raw(self, separator: str, skip: int) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not blank, from row `skip` on, with their lines."""
        with self.path.open(encoding=self.encoding, errors="replace", newline="") as file:
            reader = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
            try:
                for number, cells in enumerate(row for row in reader if row):
                    if number >= skip:
                        yield reader.line_num, cells
            except csv.Error as error:
                raise DatasetError(
                    f"{str(self.path)!r} cannot be read from line {reader.line_num} on: {error} "
                    "(a quotation mark that is not closed?)."
                ) from error

    def _find_header(self, wanted: Sequence[str]) -> tuple[list[str], str, int]:
        """The column names, the separator, and how many rows come before."""
        best: tuple[list[str], str, int] = ([], ",", 0)
        failure: DatasetError | None = None
        for separator in _SEPARATORS:
            try:
                names, skip = self._first_row(separator)
            except DatasetError as error:  # names in quotes, with another separator between them
                failure = error
                continue
            if wanted and set(wanted) <= set(names):
                return names, separator, skip
            if len(names) > len(best[0]):
                best = names, separator, skip
        if failure is not None and not best[0]:
            raise failure
        return best

    def _first_row(self, separator: str) -> tuple[list[str], int]:
        rows = self._raw(separator, 0)
        _, cells = next(rows)
        skip = 0
        if cells[0].lower().startswith("sep="):  # by which Excel tells the separator
            skip = 1
            _, cells = next(rows, (0, []))
        names = [name.strip() for name in cells]
        while names and not names[-1]:
            names.pop()
        return names, skip


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        try:
            while chunk := file.read(1 << 16):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True
