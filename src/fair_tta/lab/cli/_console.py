"""Exit codes and errors of all commands."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup

import fair_tta
from fair_tta._io import printable_lines
from fair_tta.errors import FairTTAError

EXIT_UNUSABLE_INPUT = 3  # the input
EXIT_LEFT_OUT = 4  # some rows or images, the rest is done
EXIT_THRESHOLD_FAILED = 5  # a threshold, the audit is done
EXIT_INTERRUPTED = 130  # by Ctrl-C
EXIT_PIPE_CLOSED = 141  # as the shell reports a program that SIGPIPE ended
_PACKAGE = str(Path(fair_tta.__file__).parent)  # whose warnings are notes
_DISK_FULL_ERRORS = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}

T = TypeVar("T")


def log(text: str) -> None:
    """Lines on stderr."""
    from fair_tta.lab._terminal import print_text

    print_text(text, stderr=True, wrap=False)


@contextmanager
def errors_as_exit_codes(
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
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except (FairTTAError, OSError, ImportError, MemoryError) as error:
        if is_closed_pipe(error):
            raise  # to `Commands`
        log(f"Error: {_error_text(error, _option_names(context) | names)}")
        raise typer.Exit(EXIT_UNUSABLE_INPUT) from None


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
            sys.exit(EXIT_PIPE_CLOSED)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands below the groups that they were registered in."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            row = (name, command.short_help or "")
            groups.setdefault(getattr(command, "rich_help_panel", ""), []).append(row)
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows)

    def make_context(
        self, info_name: str | None, args: list[str], *more: Any, **extra: Any
    ) -> Any:
        """Help of a command reads no values: typer would import pydantic, half of the start."""
        is_help = args[1:] == ["--help"] and args[0] in self.commands
        if is_help and not extra.get("resilient_parsing"):  # which completion asks for
            above = self.context_class(self, info_name=info_name)
            command = self.commands[args[0]]
            context = command.context_class(command, info_name=args[0], parent=above)
            typer.echo(command.get_help(context))
            raise typer.Exit
        return super().make_context(info_name, args, *more, **extra)


def is_closed_pipe(error: BaseException) -> bool:
    """Whether the reader of the output went away; typer and rich make an exit of it."""
    first = error.__context__ if isinstance(error, SystemExit) else error
    if (
        isinstance(first, OSError)
        and first.filename is None
        and sys.platform == "win32"
    ):
        return first.errno in (errno.EPIPE, errno.EINVAL)
    return isinstance(first, BrokenPipeError)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    with warnings.catch_warnings():
        show_foreign = warnings.showwarning

        def show_note(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            *place: Any,
            **more: Any,
        ) -> None:
            is_ours = (
                category.__module__.startswith("fair_tta.") or _PACKAGE in filename
            )
            if is_ours:
                log(f"Note: {message}")
            else:
                show_foreign(message, category, filename, *place, **more)

        warnings.showwarning = show_note
        yield


def _error_text(error: Exception, names: Mapping[str, str]) -> str:
    if isinstance(error, FairTTAError):
        return error._named(names)
    if isinstance(error, MemoryError):
        return "there is not enough memory: try a smaller --batch-size, or fewer --workers."
    if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRORS:
        return f"no room to write ({error}): make room and run the same command again."
    if isinstance(error, OSError) and error.filename is not None:
        name = (
            error.filename2 or error.filename
        )  # the second is the one that is replaced
        return f"cannot use {str(name)!r} ({error.strerror}): check the path."
    return str(error)


def _option_names(context: typer.Context | None) -> dict[str, str]:
    """The options of a command, by the names of its parameters."""
    parameters = [] if context is None else context.command.params
    return {
        p.name: p.opts[0] for p in parameters if p.name and p.opts[0].startswith("--")
    }


def parse_option(option: str, read: Callable[..., T], *arguments: object) -> T:
    """Read an option; what cannot be read is a usage error that names the option."""
    try:
        return read(*arguments)
    except FairTTAError as error:
        names = {name: f"--{name}" for name in ("targets", "sensitive", "template")}
        text = error._named({**names, option.lstrip("-").lower(): option})
        raise typer.BadParameter(printable_lines(text), param_hint=option) from None
