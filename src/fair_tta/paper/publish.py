"""The files of a finished run: rows.parquet, table.csv, table.md and report.html."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fair_tta.auditing import Audit
from fair_tta.auditing.columns import Columns
from fair_tta.data.csv_rows import CsvRows
from fair_tta.files.whole_files import write_whole
from fair_tta.metrics import Estimate
from fair_tta.paper.figures import (
    BySetting,
    Figure,
    audit_task,
    averages,
    measure_task,
    parts_of,
    tabulate,
)
from fair_tta.paper.parquet import write_parquet
from fair_tta.paper.table_run import TableRun, read_columns
from fair_tta.paper.table_text import legend, tables_by_task, to_markdown
from fair_tta.report import Overview, html_many
from fair_tta.runs.provenance import classifier_provenance
from fair_tta.runs.settings import Grid
from fair_tta.runs.store import Store

HARM_CSV = "harm.csv"
_HARM_HEADER = "extra_class,by,set,group,setting,n,rate,low,high,change,change_low,change_high"
_HEADER = (
    "table,section,row,setting,adapter,dataset,target,sensitive,metric,images,seeds,mean,"
    "standard_error,pooled,pooled_low,pooled_high,mark,difference,low,high,paper,minus_paper,"
    "suspect"
).split(",")


@dataclass(frozen=True)
class Published:
    """What was written.

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


def publish(run: TableRun, store: Store) -> Published:
    """Write the files of a finished run into its folder. One task is in memory at a time."""
    write_parquet(run, store, run.out / "rows.parquet")
    figures: list[Figure] = []
    sections: list[tuple[str, Audit, list[Any]]] = []
    values: list[BySetting] = []
    whole: list[tuple[str, Audit]] = []
    for i, part in enumerate(run.parts):
        found, pooled = read_columns(run, store, i)
        origin = _provenance(run, i, pooled)
        audit = audit_task(run.grid, part.task, run.adapters(i), pooled, origin)
        whole.append((str(part.task), audit))
        values.append(measure_task(found))
        figures += tabulate(run.grid, part.task, found, values[-1], audit)
        sections += [(title, one, []) for title, one in parts_of(run.grid, part.task, audit)]
    if len(run.parts) == len(run.grid.tasks) > 1:
        images = sum(len(s) for part in run.parts for s in part.samples.values())
        figures += averages(run.grid, values, images, [audit for _, audit in whole])
    if any(part.task.harmful for part in run.parts):
        write_whole(run.out / HARM_CSV, harm_csv([audit for _, audit, _ in sections]).encode())
    write_whole(run.out / "table.csv", to_csv(run.grid, figures).encode())
    write_whole(run.out / "table.md", to_markdown(run.grid, figures).encode())
    page = html_many(
        f"fair-tta bench {run.grid.name}",
        sections,
        intro=legend(figures),
        overviews=[
            Overview(table.title, table.header, [[(text, 0) for text in row] for row in table.rows])
            for table in tables_by_task(figures)
        ],
        tasks=whole,
    )
    write_whole(run.out / "report.html", page.encode())
    return Published(figures, dict(run.unreadable), [s[:2] for s in sections], whole)


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
        what = f.images, f.cell.seeds, f.cell.mean, error
        pooled = ["" if x is None else 100 * x for x in _ends(f.pooled)]
        rows.add([*where, *what, *pooled, f.cell.mark, *spread, *printed])
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


def _ends(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    if estimate is None or math.isnan(estimate.value):
        return None, None, None
    return estimate.value, estimate.low, estimate.high


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
