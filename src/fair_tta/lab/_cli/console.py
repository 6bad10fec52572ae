"""What all commands share of the terminal: exit codes, errors, progress."""

from __future__ import annotations

import errno
import os
import sys
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.table import Column
from rich.text import Text
from typer.core import TyperGroup

from fair_tta.errors import FairTTAError

if TYPE_CHECKING:
    from fair_tta.lab._runs.reference import Counting


STORED = "no image was looked at, and cost is that of the methods without encoding"
NOTE = "no --model: the embedded miniature model, which knows drawn images only"


def embedded_notes(context: typer.Context) -> list[str]:
    """Notes of a command that was given no ``--model``, or features in place of images."""
    source, given = context.get_parameter_source("model"), context.params
    is_given = (source is not None and source.name != "DEFAULT") or given.get("text_features")
    file = given.get("features")
    return [NOTE] * (not is_given) + ([f"stored features, {file.name}: {STORED}"] if file else [])


CANNOT_USE = 3  # the input
LEFT_OUT = 4  # some rows or images, the rest is done
FAILED = 5  # a threshold, the audit is done
INTERRUPTED = 130  # by Ctrl-C
PIPE_CLOSED = 141  # as the shell reports a program that SIGPIPE ended
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_SECONDS = 5.0  # between lines of progress in a log
_CLOSE = 1.0  # seconds within which counts of a pace are one

T = TypeVar("T")


def log(text: str) -> None:
    """Lines on stderr as they are: brackets in them are no markup, names no escape sequences."""
    from fair_tta._io import printable

    lines = "\n".join(map(printable, text.split("\n")))
    Console(stderr=True, soft_wrap=True).print(Text(lines))


@contextmanager
def exits(
    context: typer.Context | None = None,
    stopped: Callable[[], str] = lambda: "Stopped.",
    **names: str,
) -> Iterator[None]:
    """Errors of the input become a message and an exit code, without a traceback; our warnings
    become messages. Ctrl-C is answered with `stopped`.

    Options of the command have the names of arguments; `names` are those that differ.
    """
    try:
        with _warnings_as_notes():
            yield
    except KeyboardInterrupt:
        log(stopped())
        raise typer.Exit(INTERRUPTED) from None
    except (FairTTAError, OSError, ImportError) as error:
        if is_closed_pipe(error):
            raise  # to `Commands`
        log(f"Error: {_message(error, _options(context) | names)}")
        raise typer.Exit(CANNOT_USE) from None


class Commands(TyperGroup):
    """All commands; they end quietly where the reader of the output has enough, as `head` does."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """See typer, which ends with 1 then."""
        try:
            try:
                return super().main(*arguments, **options)
            finally:
                sys.stdout.flush()
        except (OSError, SystemExit) as error:
            if not is_closed_pipe(error):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python still holds
            sys.exit(PIPE_CLOSED)


def is_closed_pipe(error: BaseException) -> bool:
    """Whether the reader of the output went away; typer and rich make an exit of it."""
    first = error.__context__ if isinstance(error, SystemExit) else error
    if isinstance(first, OSError) and first.filename is None and sys.platform == "win32":
        return first.errno in (errno.EPIPE, errno.EINVAL)
    return isinstance(first, BrokenPipeError)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_note(
            message: Warning | str, category: type[Warning], *where: Any, **more: Any
        ) -> None:
            if category.__module__.startswith("fair_tta."):
                log(f"Note: {message}")
            else:
                show(message, category, *where, **more)

        warnings.showwarning = show_note
        yield


def _message(error: Exception, names: Mapping[str, str]) -> str:
    if isinstance(error, FairTTAError):
        return error.named(names)
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"no room to write ({error}): make room and run the same command again."
    if isinstance(error, OSError) and error.filename is not None:
        name = error.filename2 or error.filename  # the second is the one that is replaced
        return f"cannot use {str(name)!r} ({error.strerror}): check the path."
    return str(error)


def _options(context: typer.Context | None) -> dict[str, str]:
    """The options of a command, by the names of its parameters."""
    parameters = [] if context is None else context.command.params
    return {p.name: p.opts[0] for p in parameters if p.name and p.opts[0].startswith("--")}


def usage(option: str, read: Callable[..., T], *arguments: object) -> T:
    """Read an option; what cannot be read is a usage error that names the option."""
    try:
        return read(*arguments)
    except FairTTAError as error:
        text = error.named({option.lstrip("-").lower(): option})
        raise typer.BadParameter(text, param_hint=option) from None


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
                tasks: list[TaskID] = []
                pace = _Pace()

                def update(done: int, total: int | None) -> None:
                    pace.add(done)
                    if not tasks:
                        for other in bar.task_ids:
                            bar.update(other, visible=False)
                        tasks.append(bar.add_task(unit, total=total, pace=pace))
                    bar.update(tasks[0], completed=done, total=total)

                return update

            yield counting


@contextmanager
def progress_bar(wanted: bool | None, unit: str) -> Iterator[Counting]:
    """A single one of `progress_bars`."""
    with progress_bars(wanted) as bars:
        yield bars(unit)


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
