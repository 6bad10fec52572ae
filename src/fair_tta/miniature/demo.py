"""Every method on every miniature task: a table in the terminal and a report."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.backends import resolve
from fair_tta.benchmarks.summary import COLUMNS, NOTEWORTHY, Cell, summarise
from fair_tta.classifier import FairTPTClassifier
from fair_tta.metrics import SmallGroupWarning
from fair_tta.miniature.experiment import METHODS, Episode, run
from fair_tta.miniature.world import TASKS, MiniatureTask
from fair_tta.provenance import classifier_provenance
from fair_tta.report import Overview, html_many
from fair_tta.report import Picture as Shown

REFERENCE = "ZeroShot"
_SHOWN = "FairTPT"  # whose changed answers the report shows
_PICTURES_SHOWN = 12  # for each task
_STYLES = {1: "green", -1: "red", 0: ""}

LEGEND = (
    "Percent, mean ± standard error over seeds; + better, - worse than zero-shot by more than "
    f"{NOTEWORTHY:g} points. WGA: accuracy of the worst group (target and attributes); Bias: Acc - "
    "WGA; EOD: equalized-odds difference; ASI: indifference to the attributes; ATC: confidence in "
    "the target; ms: milliseconds per image, views included."
)


@dataclass(frozen=True)
class TaskTable:
    """What was found for one task.

    Attributes:
        task: which.
        cells: ``{method: {metric: Cell}}``
        milliseconds: ``{method: per image}``, the only figures that a second run changes.
    """

    task: MiniatureTask
    cells: dict[str, dict[str, Cell]]
    milliseconds: dict[str, float]


def play(
    *,
    seeds: int = 5,
    pictures: int = 120,
    progress: Callable[[Iterable[Any], int], Iterable[Any]] = lambda work, total: work,
) -> list[Episode]:
    """Run every method on every task.

    Args:
        seeds: how many, from 0 on.
        pictures: for each seed.
        progress: wraps an iterable of known length in a progress bar.
    """
    work = run(TASKS.values(), seeds=range(seeds), pictures=pictures)
    return list(progress(work, len(TASKS) * seeds * len(METHODS)))


def tables(episodes: Sequence[Episode]) -> list[TaskTable]:
    """The figures of each task."""
    made = []
    for task in TASKS.values():
        mine = [e for e in episodes if e.task is task]
        methods = list(dict.fromkeys(e.method for e in mine))
        by_method = {m: [e for e in mine if e.method == m] for m in methods}
        found = {m: [e.metrics for e in some] for m, some in by_method.items()}
        cost = {
            m: 1000 * sum(e.seconds for e in some) / sum(len(e.pictures) for e in some)
            for m, some in by_method.items()
        }
        made.append(TaskTable(task, summarise(found, REFERENCE), cost))
    return made


def to_rich(table: TaskTable) -> Table:
    """For the terminal."""
    against = " and ".join(table.task.sensitive)
    title = f"{table.task.name}: {' / '.join(table.task.targets)} against {against}"
    shown = Table(title=title, box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    shown.add_column("method", no_wrap=True)
    for column in COLUMNS:
        shown.add_column(column.title, justify="right", no_wrap=True, min_width=9)
    shown.add_column("ms", justify="right", no_wrap=True)
    for method, cells in table.cells.items():
        marked = [_cell(cell) for cell in cells.values()]
        shown.add_row(method, *marked, f"{table.milliseconds[method]:.2g}")
    return shown


def _cell(cell: Cell) -> str:
    text = str(cell).replace(" ", "") + ("" if cell.mark else " ")  # narrow, and in line
    return f"[{_STYLES[cell.mark]}]{text}[/]" if cell.mark else text


def to_overview(table: TaskTable) -> Overview:
    """For the report."""
    rows = [
        [
            (method, 0),
            *((cell.figures, cell.mark) for cell in cells.values()),
            (f"{table.milliseconds[method]:.1f}", 0),
        ]
        for method, cells in table.cells.items()
    ]
    header = ["method", *(column.title for column in COLUMNS), "ms"]
    return Overview(f"{table.task.name}, percent, mean ± standard error over seeds", header, rows)


def to_audit(episodes: Sequence[Episode], task: MiniatureTask, model: Any = "miniature") -> Audit:
    """The pictures of all seeds of a task together, every method beside zero-shot."""
    clf = FairTPTClassifier(model, task.targets, task.sensitive, task.template)
    provenance = classifier_provenance(clf)
    audits = []
    for method, adapter in METHODS.items():
        mine = [e for e in episodes if e.task is task and e.method == method]
        predictions = [p for e in mine for p in e.predictions]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)  # the audit says it too
            made = audit(
                [y for e in mine for y in e.truth],
                [p.label for p in predictions],
                {a: [s for e in mine for s in e.sensitive[a]] for a in task.sensitive},
                name=method,
                scores=Scores.from_predictions(predictions),
                seconds=sum(e.seconds for e in mine),
                adapter=adapter,
                provenance=provenance,
            )
        audits.append(made)
    return compare(audits)


def gallery(episodes: Sequence[Episode], task: MiniatureTask) -> list[Shown]:
    """Pictures whose answer FairTPT changed."""
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


def to_html(episodes: Sequence[Episode]) -> str:
    """The report: a self-contained page."""
    model = resolve("miniature")
    parts = [
        (task.name, to_audit(episodes, task, model), gallery(episodes, task))
        for task in TASKS.values()
    ]
    overviews = [to_overview(table) for table in tables(episodes)]
    title = "fair-tta on the miniature world"
    return html_many(title, parts, intro=LEGEND, overviews=overviews)
