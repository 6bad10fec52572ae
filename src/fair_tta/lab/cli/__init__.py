"""The command ``fair-tta``.

A command imports its libraries when it runs, so that help and completion do not wait for PyTorch.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from fair_tta import __version__
from fair_tta.lab.cli import _audit as audit
from fair_tta.lab.cli import _compare as compare
from fair_tta.lab.cli import _examine as examine
from fair_tta.lab.cli import _mitigate as mitigate
from fair_tta.lab.cli import _other as other
from fair_tta.lab.cli import _predict as predict
from fair_tta.lab.cli._console import Commands

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# The help lists groups and commands in this order
for group, functions in {
    "Start": (predict.predict_command, other.demo_command, other.app_command),
    "Measure": (audit.audit_command, examine.examine_command, compare.compare_command),
    "Improve": (mitigate.mitigate_command, other.fit_command),
    "Look": (other.report_command,),
}.items():
    for function in functions:
        name = function.__name__.removesuffix("_command")
        # typer would cut the summary after 45 characters
        summary = (function.__doc__ or "").partition("\n\n")[0]
        summary = " ".join(summary.split())
        app.command(name, short_help=summary, rich_help_panel=group)(function)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"fair-tta {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Measure and reduce how much zero-shot predictions depend on an attribute that you name.

    Exit codes: 0 done; 1 error in fair-tta itself; 2 wrong usage; 3 unusable input; 4 done, but
    some rows or images were left out; 5 done, and a --fail-if threshold was exceeded; 130 stopped
    by Ctrl-C; 141 the reader of the output has gone.
    """
    # Files and pipes are not UTF-8 on Windows
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
