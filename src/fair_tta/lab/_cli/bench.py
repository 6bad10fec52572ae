"""``fair-tta bench``: the paper's tables, or one's own, on local copies of the datasets."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from fair_tta.errors import FairTTAError
from fair_tta.lab._cli import options
from fair_tta.lab._cli.console import LEFT_OUT, exits, progress_bar, say, usage
from fair_tta.lab._cli.names import harmful_option
from fair_tta.lab.bench._printed import OTHER_TABLES, paper_tables

if TYPE_CHECKING:
    from fair_tta.lab.bench._grids import Grid
    from fair_tta.lab.bench._samples import Reader
    from fair_tta.lab.bench._tables import Published
    from fair_tta.lab.data import AgeCut
    from fair_tta.methods import Adapter


def _unbroken(text: str) -> str:
    """Lines that help leaves as they are: it would break names at their hyphens."""
    return f"\b\n{textwrap.fill(text, 60, break_on_hyphens=False)}"


class SplitName(str, Enum):
    """The part of a dataset."""

    DEFAULT = "default"
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    ALL = "all"


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
        Path | None, typer.Option("--table", help="A table of your own: a TOML file.")
    ] = None,
    data: Annotated[
        str,
        typer.Option(help="Folder of the datasets, or 'miniature' for drawn pictures."),
    ] = "",
    model: options.Model = "openai/clip-vit-large-patch14",
    dataset: Annotated[
        list[str],
        typer.Option(
            "--dataset",
            metavar="NAME",
            help="Only this dataset of the table, such as celeba; may be repeated.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    adapters: Annotated[
        list[str],
        typer.Option(
            "--adapters",
            metavar="METHODS",
            help="Other methods, for field and clip-bias; zero-shot is always there.",
            show_default=False,
            autocompletion=options.complete_adapters,
        ),
    ] = [],  # noqa: B006
    harmful: Annotated[
        list[str],
        typer.Option(
            "--harmful",
            metavar="TEXT",
            help="Other sets for clip-bias: 'crime: thief,criminal'.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    reference_images: Annotated[
        int,
        typer.Option(
            min=1, help="Pictures that methods are fitted on which need a reference; no test ones."
        ),
    ] = 1000,
    images: Annotated[int, typer.Option(min=1, help="Images sampled for each seed.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from 0 on.")] = 5,
    limit: options.Limit = None,
    sample: options.Sample = None,
    engine: options.WhichEngine = options.EngineName.LOCAL,
    workers: options.Workers = None,
    cores: options.Cores = 1,
    address: options.Address = None,
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
        SplitName, typer.Option(help="Part of the datasets; `default` is what each is tested on.")
    ] = SplitName.DEFAULT,
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
        raise typer.BadParameter("give the name of a table, or --table with a file of your own.")
    idle = options.idle_without(engine=engine)
    if own is not None:
        idle |= dict.fromkeys(("adapters", "harmful"), "the file of --table says that.")
    if data in ("", "miniature"):
        where = "it is for the datasets in a folder of --data."
        idle |= dict.fromkeys(("split", "young_below", "old_from"), where)
    options.refuse_idle(context, idle)
    # Of folders in the file of --table the second and third are keys.
    names = options.option_names(context, images_dir="images", labels_csv="labels")
    with exits(
        lambda: "Stopped. What is finished is on disk: the same command goes on from there.", names
    ):
        from fair_tta._images.views import AugMix
        from fair_tta.lab.bench._grids import of_datasets
        from fair_tta.lab.bench._references import ReferencePictures
        from fair_tta.lab.bench._tables import HARM_CSV, bench
        from fair_tta.lab.data import AgeCut

        source = _source(
            table,
            own,
            data,
            out,
            images * seeds,
            split,
            AgeCut(young_below, old_from),
            reference_images,
            options.read_adapters(adapters) if adapters else None,
            usage("--harmful", harmful_option, harmful) or None,
        )
        home, grid = source.home, source.grid
        grid = usage("--dataset", of_datasets, grid, dataset) if dataset else grid
        from transformers.utils import logging

        logging.disable_progress_bar()  # of loading weights
        with progress_bar(progress, "answers") as tell:
            found = bench(
                grid,
                source.read,
                model,
                out=home,
                bank=home.parent / "bank" if bank is None else bank,
                images=images,
                seeds=seeds,
                limit=limit,
                sample=sample,
                engine=options.make_engine(engine, workers, cores, address),
                views=AugMix(views),
                batch=batch_size,
                device=device,
                dtype=dtype,
                restart=restart,
                reference=ReferencePictures(source.read, source.train, reference_images, say=say),
                say=say,
                progress=tell,
            )
        _print(found)
        files = ["rows.parquet", "table.csv", "table.md", "report.html"]
        files += [HARM_CSV] if any(task.harmful for task in grid.tasks) else []
        say(f"More in {home}: {', '.join(files)}.")
    if found.unreadable:
        some = "".join(f"\n  {path}: {why}" for path, why in [*found.unreadable.items()][:10])
        say(f"{len(found.unreadable)} pictures could not be read and were left out:{some}")
        raise typer.Exit(LEFT_OUT)


@dataclass(frozen=True)
class _Source:
    """A table, how to read its datasets and the pictures beside them, and where results go."""

    grid: Grid
    read: Reader
    home: Path
    train: Reader | None = None


def _source(
    table: str,
    own: Path | None,
    data: str,
    out: Path | None,
    pictures: int,
    split: SplitName,
    ages: AgeCut,
    reference: int,
    adapters: Mapping[str, Adapter] | None,
    harmful: Mapping[str, Mapping[str, str]] | None,
) -> _Source:
    from fair_tta.lab.bench._grids import drawn_sets, find_grid, own_settings
    from fair_tta.lab.bench._samples import miniature_reader, miniature_tasks, paper_reader
    from fair_tta.lab.bench._toml import read_table
    from fair_tta.lab.data import Split
    from fair_tta.miniature import WorldSplit

    mine = None if own is None else read_table(own)
    grid = own_settings(table, adapters, harmful) if mine is None else mine.grid
    grid = usage("TABLE", find_grid, table) if grid is None else grid
    home = Path("bench") / grid.name if out is None else out
    if data == "miniature":
        drawn = miniature_reader(home / "pictures", pictures)
        train = miniature_reader(home / "reference", reference, WorldSplit.VALIDATION)
        if mine is None:
            asked = replace(grid, tasks=miniature_tasks())
            has_sets = any(task.harmful for task in grid.tasks)
            return _Source(drawn_sets(grid, harmful) if has_sets else asked, drawn, home, train)
        if mine.needs_data:  # drawn pictures instead of pairs, beside folders
            folders = [task for task in grid.tasks if str(task) in mine.folders]
            grid = replace(grid, tasks=(*miniature_tasks(), *folders))
        return _Source(grid, mine.reader(drawn), home)
    part = None if split is SplitName.DEFAULT else Split(split.value)
    paper = paper_reader(data, part, ages) if data else None
    if mine is not None:
        return _Source(grid, mine.reader(paper), home)
    if paper is None:
        raise FairTTAError("`--data` should be the folder of the datasets, or 'miniature'.")
    apart = split not in (SplitName.TRAIN, SplitName.ALL)
    return _Source(grid, paper, home, paper_reader(data, Split.TRAIN, ages) if apart else None)


def _print(found: Published) -> None:
    from fair_tta.lab._cli.tables import harm_table, print_verdict
    from fair_tta.lab.bench._tables import legend, tables_by_task
    from fair_tta.lab.report._terminal import Fitted, columns

    console = Console()
    print_verdict(console, [(title, audit.document) for title, audit in found.tasks])
    for table in tables_by_task(found.figures):
        rows = [[*map(Text, row)] for row in table.rows]
        console.print(Fitted(columns(table.header, rows), rows, table.title))
    for title, audit in found.audits:
        for name in audit.document.data.harmful:
            console.print(Text(title))
            console.print(harm_table(audit.document, name))
    console.print(Text(legend(found.figures)))
