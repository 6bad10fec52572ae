"""The command ``fair-tta``: one small file per command, over the functions of the package.

A command imports what it works with when it runs, so that help and completion do not wait for
PyTorch.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fair_tta import __version__
from fair_tta.cli.adapters import adapters
from fair_tta.cli.audit import audit
from fair_tta.cli.bench import bench
from fair_tta.cli.cite import cite
from fair_tta.cli.demo import demo
from fair_tta.cli.predict import predict
from fair_tta.cli.report import report

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")
for command in (demo, predict, audit, report, bench, adapters, cite):
    app.command()(command)


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
    be used; 4 done, but some rows or pictures were left out; 130 stopped by Ctrl-C; 141 the reader
    of the output went away.
    """
