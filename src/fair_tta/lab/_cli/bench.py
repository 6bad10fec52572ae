"""``fair-tta bench``: the paper's tables, or one's own, on local copies of the datasets."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fair_tta.lab._cli import options
from fair_tta.lab._cli.console import LEFT_OUT, exits, log, usage
from fair_tta.lab._cli.names import harmful_option
from fair_tta.lab.bench._printed import OTHER_TABLES, paper_tables

if TYPE_CHECKING:
    from fair_tta.lab.bench import TableResult


def _unbroken(text: str) -> str:
    """Lines that help leaves as they are: it would break names at their hyphens."""
    return f"\b\n{textwrap.fill(text, 60, break_on_hyphens=False)}"


def bench_command(
    context: typer.Context,
    table: Annotated[
        str,
        typer.Argument(
            help=_unbroken(
                f"A table of the paper: {', '.join(paper_tables())}; or every method of the "
                f"library ({OTHER_TABLES[0]}), or the CLIP paper's bias experiment "
                f"({OTHER_TABLES[1]})."
            ),
            metavar="TABLE",
        ),
    ] = "",
    own: Annotated[
        Path | None, typer.Option("--table", help="A user-defined table: a TOML file.")
    ] = None,
    data: Annotated[
        str, typer.Option(help="Folder of the datasets, or 'miniature' for drawn images.")
    ] = "",
    model: options.Model = "openai/clip-vit-large-patch14",
    dataset: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="Only this dataset of the table, such as celeba; may be repeated."
        ),
    ] = [],  # noqa: B006
    adapters: Annotated[
        list[str],
        typer.Option(
            metavar="METHODS",
            help="Other methods, for field and clip-bias; zero-shot is always there.",
            autocompletion=options.complete_adapters,
        ),
    ] = [],  # noqa: B006
    harmful: Annotated[
        list[str],
        typer.Option(metavar="TEXT", help="Other sets for clip-bias: 'crime: thief,criminal'."),
    ] = [],  # noqa: B006
    reference_images: Annotated[
        int,
        typer.Option(
            min=1, help="Images on which methods that need one are fitted; none of the test images."
        ),
    ] = 1000,
    images: Annotated[int, typer.Option(min=1, help="Images sampled for each seed.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from 0 on.")] = 5,
    limit: options.Limit = None,
    sample: options.Sample = None,
    workers: options.Workers = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results.", show_default="bench/TABLE")
    ] = None,
    bank: Annotated[
        Path | None,
        typer.Option(
            help="Folder of features; tables may share it.", show_default="'bank' beside --out"
        ),
    ] = None,
    split: Annotated[
        Literal["default", "train", "validation", "test", "all"],
        typer.Option(help="Part of the datasets; `default` is what each is tested on."),
    ] = "default",
    young_below: Annotated[int, typer.Option(help="The young are younger than this.")] = 40,
    old_from: Annotated[
        int | None, typer.Option(help="The old are at least so old.", show_default="the same")
    ] = None,
    views: options.ViewCount = 64,
    batch_size: options.BatchSize = 16,
    device: options.Device = None,
    dtype: options.Precision = None,
    restart: options.Restart = False,
    progress: options.ShowProgress = None,
) -> None:
    """Run a table: our figures beside the paper's, cell by cell, with intervals.

    Images are encoded once and kept on disk; all settings are computed from that. After a kill the
    same command goes on. Nothing is downloaded: datasets that are not in --data are left out.
    """
    if (own is None) == (not table):
        raise typer.BadParameter("give the name of a table, or a TOML file with --table.")
    idle: dict[str, str] = {}
    if own is not None:
        idle |= dict.fromkeys(("adapters", "harmful"), "it is in the file of --table.")
    if data in ("", "miniature"):
        where = "it is for the datasets in a folder of --data."
        idle |= dict.fromkeys(("split", "young_below", "old_from"), where)
    options.refuse_idle(context, **idle)
    # Folders in the file of --table have the keys `images` and `labels`.
    with exits(
        context,
        lambda: "Stopped. What is finished is on disk: the same command goes on from there.",
        images_dir="images",
        labels_csv="labels",
    ):
        from fair_tta.lab._runs.local import Local
        from fair_tta.lab._terminal import progress_bars
        from fair_tta.lab.bench._grids import check_name, of_datasets
        from fair_tta.lab.bench._sources import open_table
        from fair_tta.lab.bench._tables import HARM_CSV, run_table
        from fair_tta.lab.data import AgeCut, Split
        from fair_tta.methods._registry import parse_adapters

        name = own or table
        if own is None:
            usage("TABLE", check_name, table)
        home = Path("bench") / Path(name).stem if out is None else out
        source = open_table(
            name,
            data,
            out=home,
            images=images * seeds,
            reference_images=reference_images,
            adapters=usage("--adapters", parse_adapters, adapters) if adapters else None,
            harmful=usage("--harmful", harmful_option, harmful) or None,
            split=None if split == "default" else Split(split),
            ages=AgeCut(young_below, old_from),
        )
        if dataset:
            grid = usage("--dataset", of_datasets, source.grid, dataset)
            source = replace(source, grid=grid)
        from transformers.utils import logging

        logging.disable_progress_bar()  # of loading weights
        with progress_bars(progress) as bars:
            found = run_table(
                source,
                model=model,
                out=home,
                bank=home.parent / "bank" if bank is None else bank,
                images=images,
                seeds=seeds,
                limit=limit,
                sample=sample,
                reference_images=reference_images,
                engine=Local(workers),
                views=views,
                batch_size=batch_size,
                device=device,
                dtype=dtype,
                restart=restart,
                say=log,
                progress=bars("answers"),
            )
        _print(found)
        files = ["rows.parquet", "table.csv", "table.md", "table.tex", "report.html"]
        files += [HARM_CSV] if any(task.harmful for task in source.grid.tasks) else []
        log(f"More in {home}: {', '.join(files)}.")
    if found.unreadable:
        some = "".join(f"\n  {path}: {why}" for path, why in [*found.unreadable.items()][:10])
        log(f"{len(found.unreadable)} images could not be read and were left out:{some}")
        raise typer.Exit(LEFT_OUT)


def _print(found: TableResult) -> None:
    from fair_tta.lab._cli.tables import harm_table, print_verdict
    from fair_tta.lab._terminal import show
    from fair_tta.lab.bench._tables import legend, tables_by_task, to_rich

    print_verdict([(title, audit.document) for title, audit in found.tasks])
    for table in tables_by_task(found.figures):
        show(to_rich(table))
    for title, audit in found.audits:
        for name in audit.document.data.harmful:
            show(title)
            show(harm_table(audit.document, name))
    show(legend(found.figures))
