"""``fair-tta report``: an audit as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fair_tta.cli.console import exits
from fair_tta.errors import FairTTAError


def report_command(
    audit: Annotated[Path, typer.Argument(metavar="AUDIT.JSON", help="What an audit has written.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Where to: .html for a page, .md for a block of a model card.",
            show_default="beside the audit, .html",
        ),
    ] = None,
) -> None:
    """Write the report of an audit."""
    with exits(names={"path": "--out"}):
        from fair_tta.auditing import Audit
        from fair_tta.report import write_report

        try:
            found = Audit.load(audit)
        except FairTTAError as error:
            raise FairTTAError(
                f"{str(audit)!r} is not what an audit has written: {error}"
            ) from None
        path = audit.with_suffix(".html") if out is None else out
        if path.resolve() == audit.resolve():
            raise FairTTAError(
                f"`--out` should be another file than the audit (got {str(path)!r})."
            )
        write_report(found, path)
        typer.echo(f"Written to {path}")
