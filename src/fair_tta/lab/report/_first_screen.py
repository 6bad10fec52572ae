"""The first screen of one audit or of several: cards, banners, a dot plot, a row per method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fair_tta.auditing._document import AuditDocument, Difference
from fair_tta.lab.report import _verdict as verdict
from fair_tta.lab.report._drawings import Chart, Dot, ReferenceLine, difference_dots, dot_plot
from fair_tta.lab.report._many_tasks import (
    MethodOnTasks,
    NamedAudit,
    audit_banners,
    banners_of_many,
    by_gap,
    cards_of_many,
    methods_on,
)
from fair_tta.lab.report._numbers import points, times
from fair_tta.lab.report._sentences import Card
from fair_tta.lab.report._verdict import method_rows

MOST_DOTS = 14
"""More groups are not drawn; the worst are."""

MOST_METHODS = 12
"""More methods on several tasks are not listed; the best are."""


class ScreenRow(NamedTuple):
    """A method on the first screen.

    Attributes:
        name: what it is called.
        says: the verdict.
        tone: a class of the style sheet.
        chart: the change of the gap, of one task or of several.
        gap: the same in figures, None for several tasks.
        accuracy: its change, None for several tasks.
        changed: the share of answers that changed.
        cost: as a multiple of plain zero-shot.
    """

    name: str
    says: str
    tone: str
    chart: Chart
    gap: Difference | None
    accuracy: Difference | None
    changed: float
    cost: str


def first_screen(document: AuditDocument) -> dict[str, Any]:
    """What the template needs."""
    run, rows = document.runs[0], method_rows(document)
    cells, usual = verdict.cells_of(run), verdict.commonest(run)
    most, level = _reach([row.gap for row in rows]), 100 * document.settings.level
    below = f". {len(cells) - MOST_DOTS} more groups are below" if len(cells) > MOST_DOTS else ""
    dashed = f"; dashed: always answering {usual[0]}" if usual else ""
    together = " Intervals and marks allow for all comparisons made." if document.compared else ""
    return {
        "cards": verdict.audit_cards(document),
        "banners": audit_banners(document),
        "dots": _groups(document, cells),
        "dots_heading": "Right answers by class and group",
        "dots_caption": f"{run.name}, percent, with {level:g} % intervals; the worst first. "
        f"Hollow: fewer than {document.settings.small} images. "
        f"Line: all images{dashed}{below}.",
        "methods": [
            ScreenRow(
                row.name,
                row.says,
                row.tone,
                difference_dots([(row.gap, row.gap_tone)], most, _alt(row.name, [row.gap])),
                row.gap,
                row.accuracy,
                row.changed,
                times(row.cost),
            )
            for row in rows
        ],
        "methods_caption": f"Against {run.name} on the same images, in points. Gap: accuracy "
        f"minus that of the worst group; left is better.{together} Cost: times plain zero-shot.",
    }


def screen_of_many(tasks: Sequence[NamedAudit]) -> dict[str, Any]:
    """The same over several tasks; of a single one its own."""
    if len(tasks) == 1:
        return first_screen(tasks[0][1])
    tasks = by_gap(tasks)
    if not tasks:
        card = Card("What is wrong", "Nothing can be said: no group has images.", "")
        return {"cards": [card], "banners": [], "dots": None, "methods": []}
    methods, level = methods_on(tasks), 100 * tasks[0][1].settings.level
    most = _reach([row.gap for method in methods for row in method.rows if row is not None])
    left = len(methods) - MOST_METHODS
    more = f" {left} more methods are below." if left > 0 else ""
    reference = tasks[0][1].runs[0].name
    together = ", and intervals allow for all methods" * any(d.compared for _, d in tasks)
    return {
        "cards": cards_of_many(tasks),
        "banners": banners_of_many(tasks),
        "dots": _tasks(tasks),
        "dots_heading": "Right answers on each task",
        "dots_caption": f"{reference}, percent, with {level:g} % intervals: of all images, and "
        "of the worst group of class and attribute. The largest gap first.",
        "methods": [
            ScreenRow(
                method.name,
                method.says,
                method.tone,
                _strip(method, most),
                None,
                None,
                method.changed,
                times(method.cost),
            )
            for method in methods[:MOST_METHODS]
        ],
        "methods_caption": f"Against {reference} on the same images. Gap: the change of accuracy "
        "minus that of the worst group, a line for each task with its number on the left; left of "
        f"the upright is better{together}. Harm: a wider gap, or less accuracy. Cost: times plain "
        f"zero-shot.{more}",
    }


def _groups(document: AuditDocument, cells: Sequence[verdict.CellOfGroup]) -> Chart:
    run = document.runs[0]
    dots = [
        Dot(
            f"{cell.name} (n = {cell.n})",
            cell.figure,
            "bad" if place == 0 and verdict.is_worse(run, cell) else "",
            cell.n < document.settings.small,
        )
        for place, cell in enumerate(cells[:MOST_DOTS])
    ]
    lines = []
    if run.metrics.accuracy.value is not None:
        lines.append(ReferenceLine(run.metrics.accuracy.value, "all images", "all"))
    usual = verdict.commonest(run)
    if usual is not None:
        lines.append(ReferenceLine(usual[1], f"always answering {usual[0]}", "dashed"))
    what = f"Right answers of {run.name} by class and group in percent, the worst first"
    return dot_plot(dots, what, reach=(0.0, 1.0), lines=lines)


def _tasks(tasks: Sequence[NamedAudit]) -> Chart:
    dots = []
    for place, (name, document) in enumerate(tasks[: MOST_DOTS // 2], start=1):
        run, worst = document.runs[0], verdict.cells_of(document.runs[0])[0]
        dots.append(Dot(f"{place}. {name}", run.metrics.accuracy))
        small = worst.n < document.settings.small
        lowest = run.metrics.worst_group_accuracy
        tone = "bad" if verdict.is_worse(run, worst) else ""
        dots.append(Dot(f"{worst.name} (n = {worst.n})", lowest, tone, small))
    return dot_plot(
        dots, "Right answers in percent, all and worst group of each task", reach=(0.0, 1.0)
    )


def _strip(method: MethodOnTasks, most: float) -> Chart:
    changes = [(None, "") if row is None else (row.gap, row.gap_tone) for row in method.rows]
    return difference_dots(changes, most, _alt(method.name, [gap for gap, _ in changes]))


def _reach(gaps: Sequence[Difference]) -> float:
    return max((abs(x) for gap in gaps for x in (gap.low, gap.high) if x is not None), default=1.0)


def _alt(name: str, gaps: Sequence[Difference | None]) -> str:
    figures = [points(gap, signed=True) if gap is not None else "not run" for gap in gaps]
    return f"Change of the gap by {name}: {'; '.join(figures)}"
