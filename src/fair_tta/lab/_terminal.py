"""Text, tables and progress for the terminal.

Users choose the names of files, classes and columns: `print_text` and `make_table` print any text,
and neither brackets nor escape sequences in it have a meaning.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from fair_tta._io import printable, printable_lines

if TYPE_CHECKING:
    from fair_tta.lab.runs._reference import OpenEndedProgress

# Columns: "association-" fits, and five figures with intervals beside it into 80
_NAME_WIDTH = 12

# Columns of a table of paths that goes to a file, which has no width
_FILE_WIDTH = 160

# Seconds between lines of progress in a log
_SECONDS_BETWEEN_LINES = 5.0

# Seconds over which a rate is measured: one batch may take a minute
_SECONDS_OF_RATE = 120.0


def print_text(
    text: str = "",
    style: str = "",
    *,
    stderr: bool = False,
    wrap: bool = True,
    indent: int = 0,
    bold: str = "",
) -> None:
    """Print lines in a `style`; what matches the expression `bold` is bold."""
    console = Console(stderr=stderr, soft_wrap=not wrap)
    line = Text(printable_lines(text), style)
    if bold:
        line.highlight_regex(bold, "bold")
    console.print(Padding(line, (0, 0, 0, indent)) if indent else line)


def print_rich_table(table: Table | Group) -> None:
    """Print a table; one that takes all the room is wider in a file than in a terminal."""
    console = Console()
    if isinstance(table, Table) and table.expand and not console.is_terminal:
        console.width = max(console.width, _FILE_WIDTH)
    console.print(table)


def make_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[Text | str]],
    words: Collection[int] = (0,),
    name_width: int = _NAME_WIDTH,
) -> Group:
    """Return a table in which names are broken at hyphens, and figures before their intervals.

    Args:
        title: printed above the table.
        header: a title for each column.
        rows: a cell for each column.
        words: the indices of columns that hold names; the others hold figures.
        name_width: longer names are broken.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    columns = []
    for index, column_title in enumerate(header):
        is_name = index in words
        cells = [_broken(row[index], name_width if is_name else None) for row in rows]
        lines = [column_title]
        for cell in cells:
            lines += cell.plain.split("\n")
        table.add_column(
            Text(printable(column_title)),
            justify="left" if is_name else "right",
            # Names are narrow already; where room is scarce, rich breaks figures at their spaces
            width=max(map(cell_len, lines)) if is_name else None,
            overflow="fold",
        )
        columns.append(cells)
    for row_cells in zip(*columns, strict=True):
        table.add_row(*row_cells)
    return Group(Text(printable(title), style="italic"), table, Text())


def _broken(cell: Text | str, name_width: int | None) -> Text:
    """Return a name broken at hyphens, or without a width a figure broken before its interval."""
    text = Text(cell) if isinstance(cell, str) else cell
    if name_width is not None:
        return Text(
            "\n".join(textwrap.wrap(printable(text.plain), name_width)), text.style
        )
    return Text(printable_lines(text.plain.replace(" [", "\n[")), text.style)


@contextmanager
def progress_bars(
    is_wanted: bool | None,
) -> Iterator[Callable[[str], OpenEndedProgress]]:
    """Yield a function that makes a progress bar on stderr, by what it counts.

    A bar is updated with how many are finished, and of how many. In a log it is a line now and
    then, if `is_wanted`; None shows bars on terminals only.
    """
    is_terminal = sys.stderr.isatty()
    if is_wanted is None:
        is_wanted = is_terminal
    if not is_wanted:
        yield lambda unit: lambda done, total: None
        return
    with make_progress(Console(stderr=True), is_terminal) as progress:

        def add_bar(unit: str) -> OpenEndedProgress:
            task = progress.add_task(unit, total=None, visible=False)
            log = None if is_terminal else _ProgressLog(progress.tasks[-1])

            def update(done: int, total: int | None) -> None:
                progress.update(task, completed=done, total=total, visible=True)
                if log is not None:
                    log.update()

            return update

        yield add_bar


def make_progress(console: Console, is_terminal: bool) -> Progress:
    """Return bars with rate and time left; where it is narrow the bar gives way, not numbers."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        _RateColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        console=console,
        speed_estimate_period=_SECONDS_OF_RATE,
        transient=True,
        expand=True,
        # What is printed there stays above the bars
        redirect_stdout=sys.stdout.isatty(),
        get_time=time.monotonic,
        disable=not is_terminal,
    )


class _RateColumn(ProgressColumn):
    """A column of how many are finished in a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.2f}/s")


class _ProgressLog:
    """Lines of progress for a log, a few seconds apart."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._last_line: float | None = None

    def update(self) -> None:
        """Print a line if the last one is some time ago, or if all is done."""
        task = self._task
        time_now = time.monotonic()
        is_recent = (
            self._last_line is not None
            and time_now - self._last_line < _SECONDS_BETWEEN_LINES
        )
        if is_recent and not task.finished:
            return
        self._last_line = time_now
        of_total = "" if task.total is None else f" of {task.total:.0f}"
        line = f"{task.completed:.0f}{of_total} {task.description}"
        if task.speed is not None:
            line += f", {task.speed:.2f} {task.description}/s"
        if task.time_remaining:
            line += f", {task.time_remaining:.0f} s left"
        print(line, file=sys.stderr, flush=True)
