"""Tables for terminals of any width: names give way, numbers never."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_NAME = 12  # characters of a name that stay together where it is narrow


@dataclass(frozen=True)
class NarrowTable:
    """What rich prints as a table, or row by row where numbers do not fit side by side.

    Attributes:
        texts: places of columns that are words and may be broken anywhere.
        has_head: whether titles of columns are wanted.
        widths: that columns have if there is room; those of their cells if empty.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[Text | str]]
    title: str = ""
    texts: Collection[int] = (0,)
    has_head: bool = True
    widths: Sequence[int] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="italic")
        cells = [[Text(c) if isinstance(c, str) else c for c in row] for row in self.rows]
        for padding, is_folded in ((1, False), (0, False), (0, True)):
            rows = [[*map(_folded, row)] for row in cells] if is_folded else cells
            gaps = (2 * padding + 1) * (len(self.titles) - 1)
            widths = self._widths(rows, options.max_width - gaps)
            if widths is not None:
                yield self._table(rows, widths, padding)
                break
        else:
            for name, *figures in cells:
                yield Text(name.plain, style="bold")
                for title, cell in zip(self.titles[1:], figures, strict=True):
                    text = " ".join(cell.plain.split())
                    yield Text(f"  {title}  {text}".rstrip(), cell.style)
        if self.title:
            yield Text()

    def _widths(self, rows: Sequence[Sequence[Text]], room: int) -> list[int] | None:
        """Of each column; None if there is no room."""
        widths, least = [], []
        for place, title in enumerate(self.titles):
            lines = [line for row in rows for line in row[place].plain.split("\n")]
            if place not in self.texts:  # words between numbers, such as a reason, may be broken
                lines = [line for line in lines if not line[:1].isalpha()]
            found = max(map(cell_len, [*lines, *title.split()]), default=1) or 1
            widths.append(self.widths[place] if self.widths else found)
            least.append(min(_NAME, widths[-1]) if place in self.texts else widths[-1])
        while sum(widths) > room:
            widest = max(range(len(widths)), key=lambda i: widths[i] - least[i])
            if widths[widest] == least[widest]:
                return None
            widths[widest] -= 1
        return widths

    def _table(self, rows: Sequence[Sequence[Text]], widths: list[int], padding: int) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, padding), show_edge=False,
            show_header=self.has_head,
        )  # fmt: skip
        for place, (title, width) in enumerate(zip(self.titles, widths, strict=True)):
            is_text = place in self.texts
            justify = "left" if is_text else "right"
            table.add_column(Text(title), width=width, justify=justify, overflow="fold")  # type: ignore[arg-type]
        for row in rows:
            table.add_row(*(_wrapped(cell, w) for cell, w in zip(row, widths, strict=True)))
        return table


def _folded(cell: Text) -> Text:
    """A figure with its interval on a line of its own."""
    return Text(cell.plain.replace(" [", "\n["), cell.style)


def _wrapped(cell: Text, width: int) -> Text:
    """Names are broken at hyphens where they can be."""
    lines = cell.plain.split("\n")
    if max(map(cell_len, lines)) <= width:
        return cell
    return Text(
        "\n".join(part for line in lines for part in textwrap.wrap(line, width)), cell.style
    )
