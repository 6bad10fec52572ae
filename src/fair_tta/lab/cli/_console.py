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

# click ends with 0 after success, 1 after an exception that is not caught, 2 after a usage error
EXIT_UNUSABLE_INPUT = 3
EXIT_LEFT_OUT = 4  # done, but some rows or images were left out
EXIT_THRESHOLD_FAILED = 5  # done, and a threshold of --fail-if was exceeded
EXIT_INTERRUPTED = 130  # as shells report SIGINT, 128 + 2
EXIT_PIPE_CLOSED = 141  # as shells report SIGPIPE, 128 + 13

_PACKAGE_FOLDER = str(Path(fair_tta.__file__).parent)
_DISK_FULL_ERRORS = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}

T = TypeVar("T")


def log(text: str) -> None:
    """Print lines on stderr."""
    from fair_tta.lab._terminal import print_text

    print_text(text, stderr=True, wrap=False)


@contextmanager
def errors_as_exit_codes(
    context: typer.Context | None = None,
    stopped: Callable[[], str] = lambda: "Stopped.",
    **names: str,
) -> Iterator[None]:
    """Turn errors of the input into a message and an exit code, and our warnings into notes.

    Args:
        context: the call of the command, whose options replace arguments in messages.
        stopped: returns the message that follows Ctrl-C.
        names: the options whose names differ from those of the arguments.
    """
    try:
        with _warnings_as_notes():
            yield
    except KeyboardInterrupt:
        log(stopped())
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except (FairTTAError, OSError, ImportError, MemoryError) as error:
        if is_closed_pipe(error):
            raise  # `Commands.main` ends quietly
        log(f"Error: {_error_text(error, _option_names(context) | names)}")
        raise typer.Exit(EXIT_UNUSABLE_INPUT) from None


class Commands(TyperGroup):
    """Group of all commands."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command, which ends quietly if the output is closed, as by `head`."""
        try:
            try:
                # A closed pipe may be noticed only when the buffer is written
                return super().main(*arguments, **options)
            finally:
                sys.stdout.flush()
        except (OSError, SystemExit) as error:
            if not is_closed_pipe(error):
                raise
            # Python flushes stdout once more when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(EXIT_PIPE_CLOSED)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands below the titles of their groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            row = (name, command.short_help or "")
            groups.setdefault(getattr(command, "rich_help_panel", ""), []).append(row)
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows)

    def make_context(
        self, info_name: str | None, args: list[str], *positional: Any, **options: Any
    ) -> Any:
        """Print the help of a command without parsing values.

        To parse them typer imports pydantic, which takes half of the time until help is shown.
        """
        is_help = args[1:] == ["--help"] and args[0] in self.commands
        is_completion = bool(options.get("resilient_parsing"))
        if is_help and not is_completion:
            parent = self.context_class(self, info_name=info_name)
            command = self.commands[args[0]]
            context = command.context_class(command, info_name=args[0], parent=parent)
            typer.echo(command.get_help(context))
            raise typer.Exit
        return super().make_context(info_name, args, *positional, **options)


def is_closed_pipe(error: BaseException) -> bool:
    """Return whether an error means that the reader of the output has gone."""
    # typer and rich turn the error into an exit
    cause = error.__context__ if isinstance(error, SystemExit) else error
    if isinstance(cause, BrokenPipeError):
        return True
    # Windows reports "invalid argument", as it does for names of files
    return (
        sys.platform == "win32"
        and isinstance(cause, OSError)
        and cause.errno == errno.EINVAL
        and cause.filename is None
    )


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print warnings of this package as notes; others are shown unchanged."""
    with warnings.catch_warnings():
        show_foreign = warnings.showwarning

        def show_note(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            *line: Any,
            **options: Any,
        ) -> None:
            # Warnings of ours may be of a built-in class, and may point at the caller
            is_our_class = category.__module__.startswith("fair_tta.")
            if is_our_class or _PACKAGE_FOLDER in filename:
                log(f"Note: {message}")
            else:
                show_foreign(message, category, filename, *line, **options)

        warnings.showwarning = show_note
        yield


def _error_text(error: Exception, names: Mapping[str, str]) -> str:
    if isinstance(error, FairTTAError):
        return error._named(names)
    if isinstance(error, MemoryError):
        return "out of memory: try a smaller --batch-size, or fewer --workers."
    if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRORS:
        return f"the disk is full ({error}): free some space and run the same command again."
    if isinstance(error, OSError) and error.filename is not None:
        # A replacement has two paths, of which users know the second
        path = error.filename2 or error.filename
        return f"cannot use {str(path)!r} ({error.strerror}): check the path."
    return str(error)


def _option_names(context: typer.Context | None) -> dict[str, str]:
    """Return the options of a command by the names of its parameters."""
    names = {}
    for parameter in [] if context is None else context.command.params:
        option = parameter.opts[0]
        if parameter.name and option.startswith("--"):
            names[parameter.name] = option
    return names


def parse_option(option: str, parse: Callable[..., T], *arguments: object) -> T:
    """Read the text of an option, or raise a usage error that names the option."""
    try:
        return parse(*arguments)
    except FairTTAError as error:
        # Names and templates are parsed together, so that each may be at fault
        names = {name: f"--{name}" for name in ("targets", "sensitive", "template")}
        text = error._named({**names, option.lstrip("-").lower(): option})
        raise typer.BadParameter(printable_lines(text), param_hint=option) from None
