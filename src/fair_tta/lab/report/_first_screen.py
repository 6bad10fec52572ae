"""The first screen of one audit or of several, which page and terminal lay out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._judge import label_cautions
from fair_tta.lab.report._banners import audit_banners, balanced_accuracy_text
from fair_tta.lab.report._changed_groups import (
    ChangedGroup,
    before_after,
    cells_of,
    changed_groups,
    group_sentences,
)
from fair_tta.lab.report._drawings import BeforeAfter, Dot
from fair_tta.lab.report._method_rows import (
    MethodOnTasks,
    MethodRow,
    NamedAudit,
    featured_method,
    method_rows,
    methods_on_tasks,
)
from fair_tta.lab.report._numbers import MINUS, count, shown_value
from fair_tta.lab.report._verdict import NOTHING_MEASURED, Card, audit_cards, by_gap

# Rows of the chart; more groups or tasks are not drawn, the worst are
_MAX_ROWS = 14

MAX_METHODS = 12
"""More methods on several tasks are not listed; the best are."""


class Chart(NamedTuple):
    """Groups or tasks before and after a method, or dots where nothing was compared.

    Attributes:
        heading: above the chart.
        caption: below it.
        rows: of a chart of before and after.
        dots: of a dot plot.
        sentences: on some of the rows.
        reach: values that the axis covers besides the rows.
    """

    heading: str
    caption: str
    rows: list[BeforeAfter]
    dots: list[Dot]
    sentences: list[str]
    reach: tuple[float, ...] = ()


class FirstScreen(NamedTuple):
    """The part of a page that a reader sees first.

    Attributes:
        cautions: what labels cannot show, to be read before any figure.
        cards: what is wrong, what helps, what to do.
        banners: what must not be overlooked.
        chart: None if no group has images.
        methods: a row for each, on one task or on several.
        legend: of the methods.
    """

    cautions: list[str]
    cards: list[Card]
    banners: list[str]
    chart: Chart | None
    methods: Sequence[MethodRow | MethodOnTasks]
    legend: str


def first_screen(tasks: Sequence[NamedAudit]) -> FirstScreen:
    """Return the first screen of one audit or of several."""
    tasks = by_gap(tasks)
    if not tasks:
        return FirstScreen([], [NOTHING_MEASURED], [], None, [], "")
    document = tasks[0][1]
    cautions: list[str] = []
    methods: Sequence[MethodRow | MethodOnTasks]
    # Means over tasks have no interval
    if len(tasks) > 1:
        methods = methods_on_tasks(tasks)
        legend = "In points, means over tasks."
    else:
        methods = method_rows(document)
        cautions = label_cautions(document)
        legend = "In points; below the typical gap its change with an interval"
        if document.compared:
            legend += " that allows for all comparisons"
        legend += "."
    legend += " Cost: times plain zero-shot."
    n_left = len(methods) - MAX_METHODS
    if n_left > 0:
        legend += f" {n_left} more methods are below."
    return FirstScreen(
        cautions,
        audit_cards(tasks),
        audit_banners(tasks),
        _before_after_chart(tasks) or _dot_chart(tasks),
        methods[:MAX_METHODS],
        legend,
    )


def _before_after_chart(tasks: Sequence[NamedAudit]) -> Chart | None:
    """Return each group, or each of several tasks, before and after the method of the cards.

    None if nothing was compared, or if no figure is shown.
    """
    document = tasks[0][1]
    if shown_value(document.runs[0].metrics.accuracy) is None:
        return None
    if len(tasks) == 1:
        row = featured_method(document)
        return None if row is None else _groups_chart(document, row)
    methods = methods_on_tasks(tasks)
    return _tasks_chart(tasks, methods[0]) if methods else None


def _groups_chart(document: AuditDocument, row: MethodRow) -> Chart:
    # The worst groups come first, so the first rows are the ones to look at
    groups = changed_groups(document, row.comparison)
    caption = (
        f"Right answers in percent; + became right, {MINUS} became wrong. "
        "Coloured: its interval, which allows for all groups, excludes 0."
    )
    if len(groups) > _MAX_ROWS:
        caption += f" The worst {_MAX_ROWS} of {len(groups)}."
    return Chart(
        f"Each group {_before_after_legend(row.name)}",
        caption,
        [_row_of_group(group) for group in groups[:_MAX_ROWS]],
        [],
        group_sentences(groups),
    )


def _row_of_group(group: ChangedGroup) -> BeforeAfter:
    changes = group.changes
    tone = ""
    if group.direction:
        tone = "good" if group.direction > 0 else "bad"
    return BeforeAfter(
        group.name,
        changes.n,
        group.before,
        group.after,
        before_after(group),
        f"+{count(changes.wrong_to_right)} / {MINUS}{count(changes.right_to_wrong)}",
        tone,
    )


def _tasks_chart(tasks: Sequence[NamedAudit], method: MethodOnTasks) -> Chart | None:
    rows = []
    for (name, _), row in zip(tasks, method.rows, strict=True):
        if row is None:
            continue
        # A gap that is withheld in a table is not drawn either
        before = shown_value(row.before.typical_gap)
        after = shown_value(row.after.typical_gap)
        if before is None or after is None:
            continue
        balanced = f"at {row.balanced_values}"
        n = row.comparison.changes.n
        rows.append(
            BeforeAfter(name, n, before, after, row.gap_values, balanced, row.tone)
        )
    if not rows:
        return None
    return Chart(
        f"Typical gap of each task {_before_after_legend(method.name)}",
        "In points, at balanced accuracy before and after. "
        "Coloured: the verdict of the report.",
        rows[:_MAX_ROWS],
        [],
        [],
        reach=(0.0,),
    )


def _before_after_legend(method: str) -> str:
    return f"before (\N{WHITE CIRCLE}) and after (\N{BLACK CIRCLE}) {method}"


def _dot_chart(tasks: Sequence[NamedAudit]) -> Chart:
    """Return right answers in each group, or the typical gap of each of several tasks."""
    document = tasks[0][1]
    dots = []
    if len(tasks) > 1:
        heading = "Typical gap of each task in points, at balanced accuracy"
        reach: tuple[float, ...] = (0.0,)
        for name, task in tasks:
            gap = task.runs[0].metrics.typical_gap
            if not gap.is_withheld:
                dots.append(Dot(f"{name}, at {balanced_accuracy_text(task)}", gap))
    else:
        heading = "Right answers in percent, the worst first"
        reach = (0.0, 1.0)
        for name, cell in cells_of(document.runs[0])[:_MAX_ROWS]:
            is_small = cell.images < document.settings.small
            if not cell.true_positive_rate.is_withheld:
                dots.append(
                    Dot(name, cell.true_positive_rate, n=cell.n, hollow=is_small)
                )
    caption = f"Intervals: {100 * document.settings.level:g} %, of each alone."
    return Chart(heading, caption, [], dots[:_MAX_ROWS], [], reach)
