"""A finished table: as text, CSV, Markdown, LaTeX and HTML."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from fair_tta._identity import classifier_provenance
from fair_tta._images.views import AugMix
from fair_tta._io import write_row, write_whole
from fair_tta.auditing import Audit
from fair_tta.auditing._audit import latex_table
from fair_tta.errors import check_count, require
from fair_tta.lab._runs.columns import RunColumns
from fair_tta.lab._runs.runner import Engine, Progress
from fair_tta.lab._runs.store import Store
from fair_tta.lab._terminal import NarrowTable
from fair_tta.lab.bench._figures import (
    COLUMNS,
    SECONDS,
    BySetting,
    Figure,
    audit_task,
    averages,
    measure,
    parts_of,
    percents,
    shown_figure,
    tabulate,
)
from fair_tta.lab.bench._grids import Grid, of_datasets
from fair_tta.lab.bench._printed import AVERAGE
from fair_tta.lab.bench._run import TableReference, TableRun, parquet_file, prepare, read_columns
from fair_tta.lab.bench._sources import Table, gather, open_table
from fair_tta.lab.data import AgeCut
from fair_tta.lab.data._tasks import DEFAULT_AGES
from fair_tta.lab.report import Overview, html_many
from fair_tta.lab.report._numbers import plain_number, times
from fair_tta.lab.report._page import for_markdown

LEGEND = (
    "Percent, of the images of all seeds together, each once with its first seed; 95 % intervals "
    "in brackets. + better, - worse than zero-shot: the paired interval of the difference excludes "
    "0, at a level that allows for all settings of the table (Holm); averages have none. Acc: "
    "accuracy; WGA: accuracy of the worst group of class and attribute; Bias: Acc - WGA, the gap; "
    "EOD: equalized-odds difference; ASI: indifference to the attribute; ATC: confidence in the "
    "target; cost: times the time of a zero-shot answer, views included (settings of a sweep share "
    "work, so that a later one looks cheaper than it is alone; the table `runtime` does not "
    "share); s: the same in seconds per image."
)
PAPER_LEGEND = (
    "paper: the paper's figure, a mean over seeds; ours as means over seeds, with standard errors "
    "and minus the paper's, are in table.md and table.csv. A question mark: it contradicts its own "
    "row in the paper and is most likely a slip."
)
_STYLES = {1: "green", -1: "red", 0: ""}
TITLES = {**COLUMNS, SECONDS: "s"}
"""Metrics and what their columns are called."""


def tables_by_task(figures: Sequence[Figure]) -> Iterator[Overview]:
    """A table for each task; where the paper has figures of a metric, they have a column."""
    for task in dict.fromkeys(str(f.task or AVERAGE) for f in figures):
        mine = [f for f in figures if str(f.task or AVERAGE) == task]
        header, columns = ["setting"], [list(dict.fromkeys(f.setting.name for f in mine))]
        for key, title in TITLES.items():
            found = [f for f in mine if f.metric == key]
            if not found:
                continue  # averages have no cost
            if key == SECONDS:
                header.append("cost")
                columns.append([_cost(f, found[0]) for f in found])
            header.append(title)
            columns.append([shown_cell(f) for f in found])
            if any(f.printed is not None for f in found):
                header.append(f"{title}, paper")
                columns.append([_paper(f) for f in found])
        rows = [[(text, 0) for text in row] for row in zip(*columns, strict=True)]
        yield Overview(task, header, rows)


def to_rich(table: Overview) -> NarrowTable:
    """For the terminal."""
    rows = [[Text(text, _STYLES[side]) for text, side in row] for row in table.rows]
    return NarrowTable(table.header, rows, table.title, (0, 1) if "task" in table.header else (0,))


def to_markdown(grid: Grid, figures: Sequence[Figure]) -> str:
    """A table for each task and one for the average, and means over seeds beside the paper's."""
    parts = [f"# {for_markdown(grid.name)}", "", legend(figures), ""]
    if grid.model:
        parts += [f"The paper's model is {for_markdown(grid.model)}.", ""]
    for table in tables_by_task(figures):
        rows = [[text for text, _ in row] for row in table.rows]
        parts += [f"## {for_markdown(table.title)}", "", *_markdown_table(table.header, rows), ""]
    over_seeds = []
    for f in figures:
        if f.minus_paper is not None and f.metric != SECONDS:
            minus = "" if math.isnan(f.minus_paper) else f"{f.minus_paper:+.1f}"
            where = str(f.task or AVERAGE), f.setting.name, TITLES[f.metric]
            over_seeds.append([*where, str(f.cell), _paper(f), minus])
    if over_seeds:
        header = ["task", "setting", "metric", "mean over seeds", "paper", "ours minus paper"]
        parts += ["## Means over seeds, beside the paper's", "", "With their standard errors.", ""]
        parts += [*_markdown_table(header, over_seeds), ""]
    return "\n".join(parts)


def to_latex(figures: Sequence[Figure]) -> str:
    """A table for each task and one for the average (package booktabs), with titles as comments."""
    parts = []
    for table in tables_by_task(figures):
        rows = [[text for text, _ in row] for row in table.rows]
        parts += [f"% {' '.join(table.title.split())}", latex_table(table.header, rows)]
    return "\n".join(parts)


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for cells in rows:
        yield f"| {' | '.join(map(for_markdown, cells))} |"


def legend(figures: Sequence[Figure]) -> str:
    """What tables of these figures show."""
    return f"{LEGEND} {PAPER_LEGEND}" if any(f.printed for f in figures) else LEGEND


def shown_cell(figure: Figure) -> str:
    """Ours as text."""
    if figure.pooled is None:
        return plain_number(figure.cell.mean)
    return shown_figure(figure.pooled, figure.cell.mark)


def _paper(figure: Figure) -> str:
    if figure.printed is None:
        return ""
    return f"{figure.printed.value:g}{'?' * figure.printed.suspect}"


def _cost(figure: Figure, zero_shot: Figure) -> str:
    seconds = zero_shot.cell.mean
    return times(figure.cell.mean / seconds if seconds > 0 else None)


HARM_CSV = "harm.csv"
_HARM_HEADER = (
    "extra_class,by,set,group,setting,n,rate,low,high,change,change_low,change_high".split(",")
)
_HEADER = (
    "table,section,row,setting,adapter,dataset,target,sensitive,metric,images,seeds,mean,"
    "standard_error,pooled,pooled_low,pooled_high,mark,difference,low,high,paper,minus_paper,"
    "suspect"
).split(",")


@dataclass(frozen=True)
class TableResult:
    """A finished table. As text: a table for each task, and the legend.

    Attributes:
        figures: all cells.
        unreadable: ``{path: reason}`` of images that were left out.
        audits: of each task with its title, in parts if there are many settings.
        tasks: the same in one part each.
    """

    figures: list[Figure]
    unreadable: dict[str, str]
    audits: list[tuple[str, Audit]]
    tasks: list[tuple[str, Audit]]

    def __str__(self) -> str:
        lines = []
        for table in tables_by_task(self.figures):
            rows = ([text for text, _ in row] for row in table.rows)
            lines += ["", table.title, *map(" | ".join, (table.header, *rows))]
        return "\n".join([*lines, "", legend(self.figures)])


def publish(run: TableRun, store: Store) -> TableResult:
    """Write the files of a finished run into its folder. One task is in memory at a time."""
    figures: list[Figure] = []
    sections: list[tuple[str, Audit, list[Any]]] = []
    values: list[BySetting] = []
    whole: list[tuple[str, Audit]] = []
    with parquet_file(run, run.out / "rows.parquet") as write:
        for i, part in enumerate(run.parts):
            found, pooled = read_columns(run, store, i, write)
            origin = _provenance(run, i, pooled)
            audit = audit_task(run.grid, part.task, run.adapters(i), pooled, origin)
            whole.append((str(part.task), audit))
            values.append([[*map(measure, seeds.values())] for seeds in found])
            figures += tabulate(run.grid, part.task, found, values[-1], audit)
            sections += [(title, one, []) for title, one in parts_of(run.grid, part.task, audit)]
    if len(run.parts) == len(run.grid.tasks) > 1:
        images = sum(len(s) for part in run.parts for s in part.samples.values())
        figures += averages(run.grid, values, images, [audit for _, audit in whole])
    if any(part.task.harmful for part in run.parts):
        write_whole(run.out / HARM_CSV, harm_csv([audit for _, audit in whole]).encode())
    write_whole(run.out / "table.csv", to_csv(run.grid, figures).encode())
    write_whole(run.out / "table.md", to_markdown(run.grid, figures).encode())
    write_whole(run.out / "table.tex", to_latex(figures).encode())
    page = html_many(
        f"fair-tta bench {run.grid.name}",
        sections,
        intro=legend(figures),
        overviews=list(tables_by_task(figures)),
        tasks=whole,
    )
    write_whole(run.out / "report.html", page.encode())
    return TableResult(figures, dict(run.unreadable), [s[:2] for s in sections], whole)


def to_csv(grid: Grid, figures: Sequence[Figure]) -> str:
    """A row for each cell, numbers in full."""
    rows = []
    for f in figures:
        s, task = f.setting, (AVERAGE, "", "")
        printed: tuple[object, ...] = ("", "", "")
        if f.task is not None:
            task = f.task.dataset, f.task.target, " x ".join(f.task.sensitive)
        if f.printed is not None:
            printed = f"{f.printed.value:g}", f.minus_paper, str(f.printed.suspect).lower()
        error = None if math.isnan(f.cell.error) else f.cell.error
        where = grid.name, s.section, s.row, s.name, repr(s.adapter), *task, f.metric
        what = f.images, f.cell.seeds, f.cell.mean, error, *percents(f.pooled), f.cell.mark
        rows.append([*where, *what, f.difference, f.low, f.high, *printed])
    return _csv(_HEADER, rows)


def harm_csv(audits: Sequence[Audit]) -> str:
    """A row for each set of harmful classes, group and setting, numbers in full."""
    rows = []
    for document in (audit.document for audit in audits):
        by = " x ".join(document.data.sensitive)
        extra = "child" if "child" in document.data.targets else ""
        changes = {
            (c.run, h.classes, *h.sensitive.values()): h.difference
            for c in document.comparisons
            for h in c.harm
        }
        for run in document.runs:
            for h in run.harm:
                change = changes.get((run.name, h.classes, *h.sensitive.values()))
                figures = [h.rate.n, h.rate.value, h.rate.low, h.rate.high]
                figures += [] if change is None else [change.value, change.low, change.high]
                where = [extra, by, h.classes, " / ".join(h.sensitive.values()) or "everybody"]
                rows.append([*where, run.name, *figures])
    return _csv(_HARM_HEADER, rows)


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO(newline="")
    for row in (header, *rows):
        write_row(text, row)
    return text.getvalue()


def _provenance(run: TableRun, task: int, pooled: Sequence[RunColumns]) -> dict[str, Any]:
    part = run.parts[task]
    images = {str(seed): len(records) for seed, records in part.samples.items()}
    return {
        **classifier_provenance(run.job.classifier(task)),
        "seed": None,
        "dataset": dict(part.parameters),
        "images of each seed": images,
        "reference": run.references.get(str(part.task)),
        "engines": list(dict.fromkeys(by for columns in pooled for by in columns.by)),
    }


def run_table(
    table: str | os.PathLike[str] | Table,
    data: str | os.PathLike[str] = "",
    model: Any = "openai/clip-vit-large-patch14",
    *,
    datasets: Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
    bank: str | os.PathLike[str] | None = None,
    images: int = 1000,
    seeds: int = 5,
    limit: int | None = None,
    sample: int | None = None,
    reference_images: int = 1000,
    ages: AgeCut = DEFAULT_AGES,
    engine: Engine | None = None,
    views: AugMix | int = 64,
    batch_size: int = 16,
    device: str | None = None,
    dtype: str | None = None,
    restart: bool = False,
    say: Callable[[str], None] = lambda _: None,
    progress: Progress = lambda *_: None,
) -> TableResult:
    """Run a table, or resume it, and write its results: ``fair-tta bench`` in Python.

    Args:
        table: a table of the paper by its name, such as "main-L14"; the path of a TOML file; or a
            user-defined `Table`.
        data: folder of the datasets, or "miniature" for drawn images; not for a `Table`.
        model: what `FairTPTClassifier` takes.
        datasets: only these datasets of the table, or these targets; all if empty.
        out: folder of the results; ``bench/NAME`` if None.
        bank: folder of features, which tables may share; ``out/bank`` if None. Tables that measure
            costs (`Grid.alone`) always keep their own there.
        images: how many are sampled for each seed.
        seeds: how many, from 0 on; they choose the images and their views.
        limit: use only the first images of each sample.
        sample: how many images of each sample to use, of each group its share, at least one.
        reference_images: how many images methods are fitted on that need a reference.
        ages: who is young and who is old; not for a `Table`.
        engine: `Local()` or `Local(workers=2)`.
        views: how views are made, or how many.
        batch_size: how many images are processed at once.
        device: where to move the model, None to leave it where it is.
        dtype: in which precision, None for its own.
        restart: discard the finished rows.
        say: receives remarks: what was left out, how much disk is needed.
        progress: receives how many answers are finished, and of how many.
    """
    for name, value in (("images", images), ("seeds", seeds), ("batch_size", batch_size)):
        check_count(name, value)
    require("pyarrow", "bench")  # before any work is done
    if not isinstance(table, Table):
        out = Path("bench") / Path(table).stem if out is None else out
        table = open_table(
            table, data, out=out, ages=ages,
            images=images * seeds, reference_images=reference_images,
        )  # fmt: skip
    grid = of_datasets(table.grid, datasets) if datasets else table.grid
    home = Path("bench") / grid.name if out is None else Path(out)
    parts, remarks = gather(
        grid.tasks, table.read, images=images, seeds=range(seeds), limit=limit, sample=sample
    )
    for remark in remarks:
        say(remark)
    run = prepare(
        grid,
        parts,
        model,
        out=home,
        bank=bank,
        views=AugMix(views) if isinstance(views, int) else views,
        batch_size=batch_size,
        device=device,
        dtype=dtype,
        engine=engine,
        reference=TableReference(table.read, table.train, reference_images, say=say),
    )
    with run.open(restart) as store:
        left = run.left(store)
        needed = left.feature_bytes + left.row_bytes
        say(
            f"{grid.name}: {len(grid.settings)} settings, {len(parts)} tasks, {seeds} seeds; "
            f"{left.images} images to go. Features go to {run.job.bank}, up to "
            f"{needed / 1e6:,.0f} MB on disk in all; results to {home}."
        )
        run.check_disk(left)
        run.go(store, progress)
        return publish(run, store)
