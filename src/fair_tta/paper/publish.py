"""The files of a finished run: rows.parquet, table.csv, table.md and report.html."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fair_tta.auditing import Audit
from fair_tta.auditing.columns import Columns
from fair_tta.data.csv_rows import CsvRows
from fair_tta.files.whole_files import write_whole
from fair_tta.paper.cells import COLUMNS
from fair_tta.paper.figures import (
    SECONDS,
    BySetting,
    Figure,
    audit_task,
    averages,
    measure_task,
    tabulate,
)
from fair_tta.paper.parquet import write_parquet
from fair_tta.paper.table_run import TableRun, read_columns
from fair_tta.report import html_many
from fair_tta.report.templating import for_markdown
from fair_tta.report.terminal import plain_number
from fair_tta.runs.provenance import classifier_provenance
from fair_tta.runs.settings import Grid, Setting
from fair_tta.runs.store import Store

LEGEND = (
    "Percent, mean ± standard error over seeds; + better, - worse than zero-shot: the paired "
    "interval of the difference excludes 0 (none for averages). Paired intervals and audits take "
    "every image once, with its first seed. In brackets the paper's figure and ours minus the "
    "paper's; a question mark after the paper's figure: it contradicts its own row and is most "
    "likely a slip. "
    "WGA: accuracy of the worst (target, attribute) group; Bias: Acc - WGA; EOD: equalized-odds "
    "difference; ASI: indifference to the attribute; ATC: confidence in the target; s: seconds per "
    "image, views included (settings of a sweep share work, so that a later one looks cheaper than "
    "it is alone; the table `runtime` does not share)."
)
HARM_CSV = "harm.csv"
_HARM_HEADER = "extra_class,by,set,group,setting,n,rate,low,high,change,change_low,change_high"
_HEADER = (
    "table,section,row,setting,adapter,dataset,target,sensitive,metric,images,seeds,mean,"
    "standard_error,mark,difference,low,high,paper,minus_paper,suspect"
).split(",")


@dataclass(frozen=True)
class Published:
    """What was written.

    Attributes:
        figures: all cells.
        unreadable: ``{path: reason}`` of images that were left out.
        audits: of each task with its title, in parts if there are many settings.
    """

    figures: list[Figure]
    unreadable: dict[str, str]
    audits: list[tuple[str, Audit]]


def publish(run: TableRun, store: Store) -> Published:
    """Write the files of a finished run into its folder. One task is in memory at a time."""
    write_parquet(run, store, run.out / "rows.parquet")
    figures: list[Figure] = []
    sections: list[tuple[str, Audit, list[Any]]] = []
    values: list[BySetting] = []
    for i, part in enumerate(run.parts):
        found, pooled = read_columns(run, store, i)
        origin = _provenance(run, i, pooled)
        audits = audit_task(run.grid, part.task, run.adapters(i), pooled, origin)
        values.append(measure_task(found))
        figures += tabulate(run.grid, part.task, found, values[-1], audits)
        sections += [(title, audit, []) for title, audit in audits]
    if len(run.parts) == len(run.grid.tasks) > 1:
        images = sum(len(s) for part in run.parts for s in part.samples.values())
        figures += averages(run.grid, values, images)
    if any(part.task.harmful for part in run.parts):
        write_whole(run.out / HARM_CSV, harm_csv([audit for _, audit, _ in sections]).encode())
    write_whole(run.out / "table.csv", to_csv(run.grid, figures).encode())
    write_whole(run.out / "table.md", to_markdown(run.grid, figures).encode())
    title = f"fair-tta bench {run.grid.name}"
    write_whole(run.out / "report.html", html_many(title, sections, intro=LEGEND).encode())
    return Published(figures, dict(run.unreadable), [s[:2] for s in sections])


def to_csv(grid: Grid, figures: Sequence[Figure]) -> str:
    """A row for each cell, numbers in full."""
    text = io.StringIO(newline="")
    rows = CsvRows(text)
    rows.add(_HEADER)
    for f in figures:
        task = ("Average", "", "")
        if f.task is not None:
            task = f.task.dataset, f.task.target, " x ".join(f.task.sensitive)
        printed: tuple[object, ...] = ("", "", "")
        if f.printed is not None:
            printed = (f"{f.printed.value:g}", f.minus_paper, str(f.printed.suspect).lower())
        error = "" if math.isnan(f.cell.error) else f.cell.error
        spread = ["" if x is None else x for x in (f.difference, f.low, f.high)]
        s = f.setting
        where = grid.name, s.section, s.row, s.name, repr(s.adapter), *task, f.metric
        what = f.images, f.cell.seeds, f.cell.mean, error, f.cell.mark
        rows.add([*where, *what, *spread, *printed])
    return text.getvalue()


def harm_csv(audits: Sequence[Audit]) -> str:
    """A row for each set of harmful classes, group and setting, numbers in full.

    Tables with many settings are audited in parts, each with zero-shot in it, which comes once.
    """
    text = io.StringIO(newline="")
    table = CsvRows(text)
    table.add(_HARM_HEADER.split(","))
    rows: dict[tuple[str, ...], list[Any]] = {}
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
                key = run.name, h.classes, *h.sensitive.values()
                change = changes.get(key)
                figures = [h.rate.n, h.rate.value, h.rate.low, h.rate.high]
                figures += [] if change is None else [change.value, change.low, change.high]
                where = [extra, by, h.classes, " / ".join(h.sensitive.values()) or "everybody"]
                rows.setdefault((extra, by, *key), [*where, run.name, *figures])
    for row in rows.values():
        table.add(row)
    return text.getvalue()


def to_markdown(grid: Grid, figures: Sequence[Figure]) -> str:
    """A table for each task and one for the average."""
    parts = [f"# {for_markdown(grid.name)}", "", LEGEND, ""]
    if grid.model:
        parts += [f"The paper's model is {for_markdown(grid.model)}.", ""]
    for title, rows in tables_by_task(figures):
        parts += [f"## {for_markdown(title)}", ""]
        parts.append("| setting | " + " | ".join([*(c.title for c in COLUMNS), "s"]) + " |")
        parts.append("|---" * (len(COLUMNS) + 2) + "|")
        for setting, cells in rows:
            parts.append(f"| {for_markdown(setting.name)} | " + " | ".join(cells) + " |")
        parts.append("")
    return "\n".join(parts)


def tables_by_task(
    figures: Sequence[Figure],
) -> Iterator[tuple[str, list[tuple[Setting, list[str]]]]]:
    """For each task its title and its rows, cells as text."""
    for task in dict.fromkeys(str(f.task or "Average") for f in figures):
        rows: dict[str, tuple[Setting, dict[str, str]]] = {}
        for f in (f for f in figures if str(f.task or "Average") == task):
            rows.setdefault(f.setting.name, (f.setting, {}))[1][f.metric] = shown_cell(f)
        keys = [*(c.key for c in COLUMNS), SECONDS]
        yield task, [(s, [cells.get(key, "") for key in keys]) for s, cells in rows.values()]


def shown_cell(figure: Figure) -> str:
    """A cell as text."""
    if figure.metric == SECONDS:
        text, minus = (
            plain_number(figure.cell.mean),
            f", {plain_number(figure.minus_paper or 0.0, sign='+')}",
        )
    else:
        text, minus = str(figure.cell), f", {figure.minus_paper or 0.0:+.1f}"
    if figure.printed is not None:
        doubt = "?" if figure.printed.suspect else ""
        minus = "" if math.isnan(figure.cell.mean) else minus
        text += f" [{figure.printed.value:g}{doubt}{minus}]"
    return text


def _provenance(run: TableRun, task: int, pooled: Sequence[Columns]) -> dict[str, Any]:
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
