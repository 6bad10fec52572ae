"""``fair-tta demo``: every method on the miniature world."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from fair_tta.cli import options
from fair_tta.cli.console import exits
from fair_tta.errors import FairTTAError


def demo_command(
    out: Annotated[Path, typer.Option(help="HTML file for the report.")] = Path("demo.html"),
    seeds: Annotated[int, typer.Option(min=1, help="How many, from 0 on.")] = 5,
    pictures: Annotated[int, typer.Option(min=1, help="For each seed and task.")] = 96,
    one_view: Annotated[
        int, typer.Option(min=1, help="For each seed and task, for methods with one view: quick.")
    ] = 400,
    limit: options.Limit = None,
    sample: options.Sample = None,
) -> None:
    """Run every method on the miniature world, offline, and write a report.

    The same numbers come out each time, but for the cost.
    """
    with exits():
        if not out.parent.is_dir():
            raise FairTTAError(f"`--out` should be in a folder that exists (got {out}).")
        if out.is_dir():
            raise FairTTAError(f"`--out` should be a file, not a folder (got {out}).")
        _demo(out, seeds, (pictures, one_view), limit, sample)


def _demo(
    out: Path, seeds: int, pictures: tuple[int, int], limit: int | None, sample: int | None
) -> None:
    from rich.progress import track
    from transformers.utils import logging

    from fair_tta.cli.audit_tables import print_verdict
    from fair_tta.files.whole_files import write_whole
    from fair_tta.paper.demo import DEMO_LEGEND, demo_tables, play, to_audits, to_html, to_rich
    from fair_tta.paper.one_view import effect_overview, effect_table, play_one_view

    console, errors = Console(), Console(stderr=True)

    def progress(work: Iterable[Any], total: int) -> Iterable[Any]:
        return track(work, "running every method", total=total, console=errors)

    logging.disable_progress_bar()  # one bar is enough
    episodes = play(
        seeds=seeds, pictures=pictures[0], limit=limit, sample=sample, progress=progress
    )
    more = play_one_view(
        seeds=seeds, pictures=pictures[1], limit=limit, sample=sample, progress=progress
    )
    audits, effects = to_audits(episodes), to_audits(more)
    print_verdict(console, [(name, audit.document) for name, audit in audits.items()])
    for table in demo_tables(episodes, audits):
        console.print(to_rich(table))
    console.print(effect_table(effects))
    console.print(DEMO_LEGEND)
    write_whole(out, to_html(episodes, audits, [effect_overview(effects)]).encode())
    console.print(Text(f"The report is in {out}: open it in a browser."))
