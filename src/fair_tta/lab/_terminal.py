"""What is printed: text, tables of any width, progress.

Names of files, classes and columns are anybody's: `show` prints every text, and neither brackets
nor escape sequences in it mean anything.
"""

from __future__ import annotations

import sys
import textwrap
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.table import Column, Table
from rich.text import Text

from fair_tta._io import printable, printable_lines

if TYPE_CHECKING:
    from fair_tta.lab.runs._reference import Counting

_NAME = 12  # characters of a name that stay together where it is narrow
_FILE = 160  # characters of a line of a file, where a table has room
_SECONDS = 5.0  # between lines of progress in a log
_CLOSE = 1.0  # seconds within which counts of a pace are one


def show(
    what: str | NarrowTable = "",
    style: str = "",
    *,
    stderr: bool = False,
    wrap: bool = True,
    indent: int = 0,
    bold: str = "",
) -> None:
    """Print lines, in a `style` and what matches `bold` in bold, or a table."""
    console = Console(stderr=stderr, soft_wrap=not wrap)
    if isinstance(what, NarrowTable):
        if what.widths and not console.is_terminal:
            console.width = max(console.width, _FILE)
        console.print(what)
        return
    text = Text(printable_lines(what), style)
    if bold:
        text.highlight_regex(bold, "bold")
    console.print(Padding(text, (0, 0, 0, indent)) if indent else text)


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
            yield Text(printable(self.title), style="italic")
        cells = [[*map(self._cell, range(len(row)), row)] for row in self.rows]
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
                    yield Text(f"  {printable(title)}  {text}".rstrip(), cell.style)
        if self.title:
            yield Text()

    def _cell(self, place: int, cell: Text | str) -> Text:
        """What can be printed of a cell; those that are not words may have several lines."""
        text = Text(cell) if isinstance(cell, str) else cell
        plain = printable if place in self.texts else printable_lines
        return Text(plain(text.plain), text.style)

    def _widths(self, rows: Sequence[Sequence[Text]], room: int) -> list[int] | None:
        """Of each column; None if there is no room."""
        widths, least = [], []
        for place, title in enumerate(self.titles):
            lines = [line for row in rows for line in row[place].plain.split("\n")]
            if place not in self.texts:  # words between numbers, such as a reason, may be broken
                lines = [line for line in lines if not line[:1].isalpha()]
            found = max(map(cell_len, [*lines, *printable(title).split()]), default=1) or 1
            widths.append(min(self.widths[place], room) if self.widths else found)
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
            table.add_column(Text(printable(title)), width=width, justify=justify, overflow="fold")  # type: ignore[arg-type]
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


@contextmanager
def progress_bars(wanted: bool | None) -> Iterator[Callable[[str], Counting]]:
    """Report how many are finished, and of how many: a bar with rate and time left on stderr.

    Bars are made by what they count. A terminal has room for one: the last that moved. In a log it
    is a line now and then, if `wanted`; None is for terminals only.
    """
    terminal = sys.stderr.isatty()
    if not (terminal if wanted is None else wanted):
        yield lambda unit: lambda done, total: None
    elif not terminal:
        yield _lines
    else:
        with _bar(Console(stderr=True)) as bar:

            def counting(unit: str) -> Counting:
                pace = _Pace()
                task = bar.add_task(unit, total=None, visible=False, pace=pace)

                def update(done: int, total: int | None) -> None:
                    pace.add(done)
                    for each in bar.task_ids:
                        bar.update(each, visible=each == task)
                    bar.update(task, completed=done, total=total)

                return update

            yield counting


class _Pace:
    """How many are finished in a second: over the last two thirds of the time since the first
    count, so that neither rows of an earlier run nor a slow start counts for long.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []  # when, and how many were finished

    def add(self, done: int) -> None:
        """One more count."""
        now = time.monotonic()
        if len(self._seen) > 1 and now - self._seen[-2][0] < _CLOSE:
            self._seen.pop()
        self._seen.append((now, done))

    def shown(self, total: int | None) -> tuple[float, float | None] | None:
        """The rate and the seconds left, or None if nothing was finished of late."""
        now, first = time.monotonic(), self._seen[0][0]
        third = first + (now - first) / 3
        start, before = self._seen[bisect_right(self._seen, (third, sys.maxsize)) - 1]
        end, done = self._seen[-1]
        if done == before:
            return None
        rate = (done - before) / (end - start)
        return rate, None if total is None else max(0.0, (total - done) / rate - (now - end))


def _bar(console: Console) -> Progress:
    """Where it is narrow the bar gives way, not the numbers."""
    whole = Column(no_wrap=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(table_column=whole),
        _Rate(table_column=whole),
        console=console,
        transient=True,
        expand=True,
        redirect_stdout=sys.stdout.isatty(),  # what is printed there stays above the bar
    )


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        found = task.fields["pace"].shown(task.total)
        if found is None:
            return Text("-:--:-- left")
        rate, left = found
        time_left = "-:--:--" if left is None else timedelta(seconds=round(left))
        return Text(f"{rate:.2f}/s {time_left} left")


def _lines(unit: str) -> Counting:
    """Progress as lines, for logs."""
    pace, last = _Pace(), 0.0

    def update(done: int, total: int | None) -> None:
        nonlocal last
        pace.add(done)
        now = time.monotonic()
        if now - last < _SECONDS and done != total:
            return
        last = now
        line = f"{done}{'' if total is None else f' of {total}'} {unit}"
        found = pace.shown(total)
        if found is not None:
            line += f", {found[0]:.2f} {unit}/s"
            if found[1]:
                line += f", {found[1]:.0f} s left"
        print(line, file=sys.stderr, flush=True)

    return update
