"""Every method on every miniature task: a table in the terminal and a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from fair_tta.auditing import Audit, compare
from fair_tta.auditing.columns import Columns
from fair_tta.backends import resolve
from fair_tta.classifier import FairTPTClassifier
from fair_tta.metrics import Estimate
from fair_tta.miniature.world import TASKS, MiniatureTask
from fair_tta.paper.cells import COLUMNS, mark, of_run, paired, shown_figure
from fair_tta.paper.episodes import METHODS, REFERENCE_PICTURES, Episode, run_episodes
from fair_tta.report import Overview, html_many
from fair_tta.report import Picture as Shown
from fair_tta.report.numbers import times
from fair_tta.report.terminal import Fitted, columns
from fair_tta.runs.provenance import classifier_provenance

_SHOWN = "LogitBalance"  # whose changed answers the report shows
_PICTURES_SHOWN = 12  # for each task
_STYLES = {1: "green", -1: "red", 0: ""}
_SHOWN_COLUMNS = tuple(column for column in COLUMNS if column.key != "bias")  # Acc - WGA
_HEADER = ["method", *(column.title for column in _SHOWN_COLUMNS), "cost"]

DEMO_LEGEND = (
    "Percent, of the pictures of all seeds together (the mean over seeds of the worst group is "
    "lower: each seed has fewer pictures of it); 95 % intervals in brackets. + better, - worse "
    "than zero-shot: the paired interval of the difference excludes 0, at a level that allows for "
    "all methods (Holm). Acc: accuracy; WGA: accuracy of the worst group of class and attributes; "
    "EOD: equalized-odds difference; ASI: indifference to the attributes; ATC: confidence in the "
    "target; cost: times a zero-shot answer, views included. Association is AssociationCorrection. "
    f"LogitBalance was fitted on {REFERENCE_PICTURES} reference pictures without labels, drawn "
    "from the validation split: none of them is asked about here. The verdict is that of the "
    "tables of all methods; the table of one view has more pictures, and may show more."
)


@dataclass(frozen=True)
class TaskTable:
    """What was found for one task.

    Attributes:
        task: which.
        cells: ``{method: {metric: (figure, mark)}}`` of all pictures together; the mark is 1 if it
            is better than zero-shot's, -1 if worse.
        cost: ``{method: times zero-shot}``, the only figures that a second run changes.
    """

    task: MiniatureTask
    cells: dict[str, dict[str, tuple[Estimate, int]]]
    cost: dict[str, float]


def play(
    *,
    seeds: int = 5,
    pictures: int = 96,
    limit: int | None = None,
    sample: int | None = None,
    progress: Callable[[Iterable[Any], int], Iterable[Any]] = lambda work, total: work,
) -> list[Episode]:
    """Run every method on every task.

    Args:
        seeds: how many, from 0 on.
        pictures: for each seed.
        limit: the first so many of them only.
        sample: so many of them only, of each group its share.
        progress: wraps an iterable of known length in a progress bar.
    """
    work = run_episodes(
        TASKS.values(), seeds=range(seeds), pictures=pictures, limit=limit, sample=sample
    )
    return list(progress(work, len(TASKS) * seeds * len(METHODS)))


def demo_tables(episodes: Sequence[Episode], audits: Mapping[str, Audit]) -> list[TaskTable]:
    """The figures of each task, and the marks, as its audit has them."""
    made = []
    for task in TASKS.values():
        seconds: dict[str, float] = {}
        for e in (e for e in episodes if e.task is task):
            seconds[e.method] = seconds.get(e.method, 0.0) + e.seconds
        document = audits[task.name].document
        against = {c.run: c for c in document.comparisons}
        cells = {
            run.name: {
                column.key: (
                    of_run(run, column.key),
                    mark(column, paired(against[run.name], column.key)) if i else 0,
                )
                for column in COLUMNS
            }
            for i, run in enumerate(document.runs)
        }
        first = seconds[document.runs[0].name]
        cost = {name: seconds[name] / first for name in cells}
        made.append(TaskTable(task, cells, cost))
    return made


def to_rich(table: TaskTable) -> Fitted:
    """For the terminal."""
    against = " and ".join(table.task.sensitive)
    title = f"{table.task.name}: {' / '.join(table.task.targets)} against {against}"
    rows = [
        [Text(row[0][0]), *(Text(text, _STYLES[side]) for text, side in row[1:])]
        for row in to_overview(table, digits=0).rows
    ]
    return Fitted(columns(_HEADER, rows), rows, title)


def to_overview(table: TaskTable, digits: int = 1) -> Overview:
    """For the report; `digits` of intervals after the point."""
    rows = []
    for method, cells in table.cells.items():
        shown = []
        for column in _SHOWN_COLUMNS:
            figure, side = cells[column.key]
            figure = figure if column.better else replace(figure, low=None, high=None)
            shown.append((shown_figure(figure, side, digits), side))
        rows.append([(method, 0), *shown, (times(table.cost[method]), 0)])
    return Overview(f"{table.task.name}, percent, 95 % intervals in brackets", _HEADER, rows)


def to_audit(episodes: Sequence[Episode], task: MiniatureTask, model: Any = "miniature") -> Audit:
    """The pictures of all seeds of a task together, every method beside zero-shot."""
    clf = FairTPTClassifier(model, task.targets, task.sensitive, task.template)
    provenance = classifier_provenance(clf)
    audits = []
    of_task = [e for e in episodes if e.task is task]
    for method, adapter in {e.method: e.adapter for e in of_task}.items():
        mine = [e for e in of_task if e.method == method]
        columns = Columns.of(task.targets, (row for e in mine for row in e.rows))
        audits.append(columns.audit(method, adapter, values=task.sensitive, provenance=provenance))
    return compare(audits)


def to_audits(episodes: Sequence[Episode]) -> dict[str, Audit]:
    """`to_audit` of every task."""
    model = resolve("miniature")
    return {name: to_audit(episodes, task, model) for name, task in TASKS.items()}


def gallery(episodes: Sequence[Episode], task: MiniatureTask) -> list[Shown]:
    """Pictures whose answer LogitBalance changed."""
    items = []
    for e in episodes:
        if e.task is not task or e.method != _SHOWN:
            continue
        for picture, p in zip(e.pictures, e.predictions, strict=True):
            if p.flipped:
                before = max(p.zero_shot, key=p.zero_shot.__getitem__)
                items.append(
                    Shown(
                        image=picture.image,
                        caption=", ".join(picture.sensitive.values()),
                        before=before,
                        after=p.label,
                        truth=picture.target,
                        before_probability=p.zero_shot[before],
                        after_probability=p.probabilities[p.label],
                    )
                )
    return items[:_PICTURES_SHOWN]


def to_html(
    episodes: Sequence[Episode], audits: Mapping[str, Audit], further: Sequence[Overview] = ()
) -> str:
    """The report: a self-contained page, with further tables below its own."""
    parts = [(task.name, audits[task.name], gallery(episodes, task)) for task in TASKS.values()]
    overviews = [*map(to_overview, demo_tables(episodes, audits)), *further]
    title = "Every method on drawn pictures: fair-tta demo"
    return html_many(title, parts, intro=DEMO_LEGEND, overviews=overviews)
