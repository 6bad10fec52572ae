"""Every method on every miniature task: a table in the terminal and a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from fair_tta.auditing import Audit, compare
from fair_tta.auditing.columns import Columns
from fair_tta.backends import resolve
from fair_tta.classifier import FairTPTClassifier
from fair_tta.miniature.world import TASKS, MiniatureTask
from fair_tta.paper.cells import COLUMNS, Cell, summarise_seeds
from fair_tta.paper.episodes import METHODS, REFERENCE_PICTURES, Episode, run_episodes
from fair_tta.report import Overview, html_many
from fair_tta.report import Picture as Shown
from fair_tta.report.terminal import NO_BREAK, Fitted, columns, plain_number
from fair_tta.runs.provenance import classifier_provenance

_SHOWN = "LogitBalance"  # whose changed answers the report shows
_PICTURES_SHOWN = 12  # for each task
_STYLES = {1: "green", -1: "red", 0: ""}

DEMO_LEGEND = (
    "Percent, mean ± standard error over seeds; + better, - worse than zero-shot: the paired "
    "interval of the difference, of all seeds together, excludes 0. WGA: accuracy of the worst "
    "group (target and attributes); Bias: Acc - WGA; EOD: equalized-odds difference; ASI: "
    "indifference to the attributes; ATC: confidence in the target; cost: how many times the time "
    "of a zero-shot answer, views included. Association is AssociationCorrection. LogitBalance was "
    f"fitted on {REFERENCE_PICTURES} reference pictures without labels, drawn from the validation "
    "split: none of them is asked about here."
)


@dataclass(frozen=True)
class TaskTable:
    """What was found for one task.

    Attributes:
        task: which.
        cells: ``{method: {metric: Cell}}``
        cost: ``{method: times zero-shot}``, the only figures that a second run changes.
    """

    task: MiniatureTask
    cells: dict[str, dict[str, Cell]]
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
    """The figures of each task, marked as its audit finds them."""
    made = []
    for task in TASKS.values():
        mine = [e for e in episodes if e.task is task]
        methods = list(dict.fromkeys(e.method for e in mine))
        by_method = {m: [e for e in mine if e.method == m] for m in methods}
        found = {m: [e.metrics for e in some] for m, some in by_method.items()}
        seconds = {m: sum(e.seconds for e in some) for m, some in by_method.items()}
        cost = {m: one / seconds[methods[0]] for m, one in seconds.items()}
        comparisons = audits[task.name].document.comparisons
        made.append(TaskTable(task, summarise_seeds(found, comparisons), cost))
    return made


def to_rich(table: TaskTable) -> Fitted:
    """For the terminal."""
    against = " and ".join(table.task.sensitive)
    title = f"{table.task.name}: {' / '.join(table.task.targets)} against {against}"
    rows = [
        [
            Text(method),
            *map(_cell, cells.values()),
            Text(times(table.cost[method])),
        ]
        for method, cells in table.cells.items()
    ]
    titles = ["method", *(c.title for c in COLUMNS), "cost"]
    return Fitted(columns(titles, rows), rows, title)


def times(cost: float) -> str:
    """``1.1x``, ``48x``."""
    return f"{plain_number(cost, 2)}x"


def _cell(cell: Cell) -> Text:
    text = str(cell).replace(" ", "") + ("" if cell.mark else NO_BREAK)  # narrow, and in line
    return Text(text, _STYLES[cell.mark])


def to_overview(table: TaskTable) -> Overview:
    """For the report."""
    rows = [
        [
            (method, 0),
            *((cell.figures, cell.mark) for cell in cells.values()),
            (times(table.cost[method]), 0),
        ]
        for method, cells in table.cells.items()
    ]
    header = ["method", *(column.title for column in COLUMNS), "cost"]
    return Overview(f"{table.task.name}, percent, mean ± standard error over seeds", header, rows)


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
    title = "fair-tta on the miniature world"
    return html_many(title, parts, intro=DEMO_LEGEND, overviews=overviews)
