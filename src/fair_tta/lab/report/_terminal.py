"""Tables and numbers for terminals of any width: names give way, numbers never.

A column of numbers is at least as wide as its longest number. What does not fit is wrapped
between numbers; what still does not fit goes into a second table below the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

NO_BREAK = "\N{NO-BREAK SPACE}"
_NAME = 12  # of names, what stays of them where it is narrow
_NUMBER = 30  # of numbers, what the longest have
_GAPS = (3, 1)  # between columns, the second where it is narrow
_PIECE = re.compile(r"[^-:,/_]*[-:,/_]+|[^-:,/_]+")  # of a name: it is broken after a mark
_WORD = re.compile(rf"\[[^\]]*\](?: [+-])?|\S+(?:{NO_BREAK}\S+)*")  # intervals are kept whole


@dataclass(frozen=True)
class TableColumn:
    """How much room a column needs.

    Attributes:
        title: its head.
        least: characters that it must have.
        most: characters that it can use.
        is_text: whether it may be broken anywhere, and gives way first.
        is_left: whether its cells begin on the left.
    """

    title: str
    least: int
    most: int
    is_text: bool = False
    is_left: bool = False


def column(title: str, cells: Sequence[Text], *, is_text: bool = False) -> TableColumn:
    """A column for these cells."""
    lines = [line for cell in [Text(title), *cells] for line in cell.plain.split("\n")]
    most = max(map(cell_len, lines))
    words = [_least(word) for cell in cells for word in _WORD.findall(cell.plain)]
    head = [min(_NAME, cell_len(word)) for word in title.split()]
    least = min(_NAME, most) if is_text else max([1, *words, *head])
    return TableColumn(title, least, most, is_text, is_left=is_text)


def columns(
    titles: Sequence[str], rows: Sequence[Sequence[Text]], texts: Collection[int] = (0,)
) -> list[TableColumn]:
    """Columns for these rows; those at the places of `texts` are text."""
    cells = zip(*rows, strict=True) if rows else ([] for _ in titles)
    return [
        column(title, list(some), is_text=place in texts)
        for place, (title, some) in enumerate(zip(titles, cells, strict=True))
    ]


@dataclass(frozen=True)
class Fitted:
    """What rich prints as one table, or as several with the first column in each if it is narrow.

    Attributes:
        columns: the first holds the names of rows.
        rows: a cell for each column.
        title: above the first table.
        has_head: whether titles of columns are wanted; several tables always have them.
    """

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Text]]
    title: str = ""
    has_head: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = _parts(self.columns, options.max_width)
        for number, places in enumerate(parts):
            some = [self.columns[i] for i in places]
            gap = next((g for g in _GAPS if _whole(some, g) <= options.max_width), _GAPS[-1])
            table = Table(
                title=Text(self.title) if self.title and number == 0 else None,
                title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap // 2),
                show_edge=False, show_header=self.has_head or len(parts) > 1,
            )  # fmt: skip
            room = options.max_width - gap * (len(some) - 1)
            widths = _widths(some, room)
            for one, wide in zip(some, widths, strict=True):
                justify: JustifyMethod = "left" if one.is_left else "right"
                table.add_column(Text(one.title), width=wide, justify=justify, overflow="fold")
            for row in self.rows:
                table.add_row(
                    *(
                        (_broken if self.columns[i].is_text else _folded)(row[i], wide)
                        for i, wide in zip(places, widths, strict=True)
                    )
                )
            yield table
            if self.title or len(parts) > 1:
                yield Text()


def plain_number(value: float, digits: int = 3, sign: str = "") -> str:
    """A number rounded to so many digits, or to a whole number, and never with an exponent.

    Example:
        >>> [plain_number(x) for x in (0.00123456, 0.5, 1.23456, 123.456, 1234567.8)]
        ['0.00123', '0.5', '1.23', '123', '1234568']
    """
    if not math.isfinite(value):
        return "n/a"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    text = f"{value:{sign}.{max(0, digits - 1 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _folded(cell: Text, wide: int) -> Text:
    """A figure that is too wide has its interval on a line of its own."""
    if " [" not in cell.plain or max(map(cell_len, cell.plain.split("\n"))) <= wide:
        return cell
    return Text(cell.plain.replace(" [", "\n["), cell.style)


def _broken(cell: Text, wide: int) -> Text:
    """A word that is too long is broken after marks in it; where there are none, anywhere."""
    if cell_len(cell.plain) <= wide:
        return cell
    words = []
    for word in cell.plain.split(" "):
        lines = [""]
        for piece in _PIECE.findall(word):
            if lines[-1] and cell_len(lines[-1] + piece) > wide:
                lines.append("")
            lines[-1] += piece
        words.append("\n".join(lines))
    return Text(" ".join(words), cell.style)


def _least(word: str) -> int:
    """A word that is no number may be broken, and so may a name that is no number but has one."""
    is_number = any(character.isdigit() for character in word)
    return min(_NUMBER if is_number else _NAME, cell_len(word))


def _parts(columns: Sequence[TableColumn], width: int) -> list[list[int]]:
    """Places of the columns of each table."""
    parts = [[0]]
    for place in range(1, len(columns)):
        wider = [*parts[-1], place]
        need = sum(columns[i].least for i in wider) + _GAPS[-1] * (len(wider) - 1)
        if len(parts[-1]) > 1 and need > width:
            parts.append([0, place])
        else:
            parts[-1] = wider
    return parts


def _whole(columns: Sequence[TableColumn], gap: int) -> int:
    """The width at which no cell of numbers is wrapped."""
    return sum(c.least if c.is_text else c.most for c in columns) + gap * (len(columns) - 1)


def _widths(columns: Sequence[TableColumn], room: int) -> list[int]:
    """What is left over goes to numbers first, and to whoever has the smallest part of its need."""
    widths = [one.least for one in columns]
    for is_text in (False, True):
        while sum(widths) < room:
            hungry = [
                i
                for i, one in enumerate(columns)
                if one.is_text is is_text and widths[i] < one.most
            ]
            if not hungry:
                break
            widths[min(hungry, key=lambda i: widths[i] / columns[i].most)] += 1
    return widths
