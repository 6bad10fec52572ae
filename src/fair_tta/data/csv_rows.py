"""CSV files that others will open: names stay text, whatever signs they begin with.

Names of files, classes and methods come from anywhere, and a spreadsheet runs a cell that begins
with ``=``, ``+``, ``-`` or ``@`` as a formula. One rule for all CSV files that are written to be
looked at: numbers are numbers; a text that would be taken for a formula has an apostrophe in front;
what cannot be printed (control characters, escape sequences, names that are not UTF-8) is written
as an escape such as ``\\x1b``. Names as they are stand in the JSON files.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import IO

_FORMULA = "=+-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}"
_SIGNS = frozenset(_FORMULA + "\N{FULLWIDTH COMMERCIAL AT}\t\r\n")


class CsvRows:
    """Writes rows by the rule of this module.

    Args:
        file: where to write them, opened with ``newline=""``.
    """

    def __init__(self, file: IO[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")

    def add(self, cells: Iterable[object]) -> None:
        """One more row."""
        self._writer.writerow([text_cell(cell) for cell in cells])


def text_cell(cell: object) -> object:
    """A cell by the rule of this module; a lone sign is no formula."""
    if not isinstance(cell, str):
        return cell
    begins = cell.lstrip(" ")[:1]
    return ("'" if begins in _SIGNS and len(cell) > 1 else "") + printable(cell)


def printable(text: str) -> str:
    """Text that any terminal and any file can hold: what is not printable becomes an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
