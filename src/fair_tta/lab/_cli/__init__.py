"""The command ``fair-tta``: one small file per command; nothing that a Python user would miss.

A command imports what it works with when it runs, so that help and completion do not wait for
PyTorch.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from fair_tta import __version__
from fair_tta.lab._cli import audit as audit_command
from fair_tta.lab._cli import bench as bench_command
from fair_tta.lab._cli import examine as examine_command
from fair_tta.lab._cli import fit as fit_command
from fair_tta.lab._cli import other as adapters_command
from fair_tta.lab._cli import other as app_command
from fair_tta.lab._cli import other as cite_command
from fair_tta.lab._cli import other as demo_command
from fair_tta.lab._cli import other as report_command
from fair_tta.lab._cli import predict as predict_command
from fair_tta.lab._cli.console import Commands

app = typer.Typer(
    cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
for function in (
    demo_command.demo_command,
    app_command.app_command,
    predict_command.predict_command,
    examine_command.examine_command,
    audit_command.audit_command,
    fit_command.fit_command,
    report_command.report_command,
    bench_command.bench_command,
    adapters_command.adapters_command,
    cite_command.cite_command,
):
    first = " ".join((function.__doc__ or "").partition("\n\n")[0].split())  # whole, not cut
    app.command(function.__name__.removesuffix("_command"), short_help=first)(function)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fair-tta {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Zero-shot answers that lean less on an attribute you name, and what is left of the gap.

    Exit codes: 0 done; 1 an error in fair-tta itself; 2 the command is wrong; 3 the input cannot
    be used; 4 done, but some rows or images were left out; 130 stopped by Ctrl-C; 141 the reader
    of the output went away.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # of files and pipes, not UTF-8 on Windows
        sys.stdout.reconfigure(errors="backslashreplace")
