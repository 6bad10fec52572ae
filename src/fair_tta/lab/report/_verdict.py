"""The verdict on audits: titles, and the cards what is wrong, what helps, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fair_tta.auditing._document import AuditDocument
from fair_tta.lab.report._changed_groups import cells_of, changed_groups
from fair_tta.lab.report._method_rows import (
    MethodOnTasks,
    MethodRow,
    NamedAudit,
    featured_method,
    methods_on_tasks,
)
from fair_tta.lab.report._method_sentences import ci_label, gap_sentences, side_effects
from fair_tta.lab.report._numbers import (
    NO_BREAK_SPACE,
    figure_in_words,
    image_count,
    interval,
    of_hundred,
    percent,
    rounded_percent,
    shown_value,
    task_name,
)
from fair_tta.metrics._estimates import list_names

CONFIRM = "Confirm it on images that took no part."

# A card of several tasks has room for the figures of three
_MAX_TASKS_OF_CARD = 3


class Card(NamedTuple):
    """A question, its answer, and details in smaller letters; the tone is good, bad or empty."""

    heading: str
    text: str
    details: str = ""
    tone: str = ""


NOTHING_MEASURED = Card("What is wrong", "Nothing was measured: no group has images.")


def by_gap(tasks: Sequence[NamedAudit]) -> list[NamedAudit]:
    """Return the tasks that have groups, the largest typical gap of the reference first."""
    measured = [task for task in tasks if cells_of(task[1].runs[0])]

    def gap(task: NamedAudit) -> float:
        return task[1].runs[0].metrics.typical_gap.value or 0.0

    return sorted(measured, key=gap, reverse=True)


def audit_title(document: AuditDocument, task: str | None = None) -> str:
    """Return the task, by its name or its classes and attributes, and the verdict."""
    task = task or task_name(document.data.targets, document.data.sensitive)
    return f"{task}: {short_verdict(document)}"


def short_verdict(document: AuditDocument) -> str:
    """Return the verdict in a few words."""
    row = featured_method(document)
    if row is None:
        metrics = document.runs[0].metrics
        gap = metrics.typical_gap
        if gap.low is None:
            return "no verdict on the gap"
        if not gap.low:
            return "a gap between groups is not shown"
        balanced = percent(shown_value(metrics.balanced_accuracy))
        return (
            f"a typical gap of {percent(gap.value)} points between groups, "
            f"at balanced accuracy {balanced}"
        )
    if row.narrows or row.helps or row.harms:
        return f"{row.name} {row.verdicts[0]}"
    if row.gap_change.low is None:
        return "no verdict on the gap"
    n_images = image_count(document.data.n)
    return f"these {n_images} cannot tell whether the gap narrows"


def title_of_tasks(tasks: Sequence[NamedAudit], title: str) -> str:
    """Return a title and the verdict over all tasks."""
    methods = methods_on_tasks(tasks)
    if not methods:
        n_shown = 0
        for _, document in tasks:
            n_shown += bool(document.runs[0].metrics.typical_gap.low)
        return (
            f"{title}: a gap between groups is shown on {n_shown} of {len(tasks)} tasks"
        )
    best = methods[0]
    if best.tone == "good":
        return f"{title}: {best.name} {_narrows_on(best)}"
    if best.n_shown:
        return f"{title}: {best.name} {_narrows_on(best)}, {best.n_harmed} harmed"
    return f"{title}: no method is shown to narrow the gap without harm"


def audit_cards(tasks: Sequence[NamedAudit]) -> list[Card]:
    """Return what is wrong (of several tasks the largest gap), what helps and what to do."""
    tasks = by_gap(tasks)
    if not tasks:
        return [NOTHING_MEASURED]
    if len(tasks) > 1:
        return _cards_of_tasks(tasks)
    document = tasks[0][1]
    wrong = wrong_card(document)
    row = featured_method(document)
    if row is None:
        advice = "Compare methods on the same images (option --adapters)."
        return [wrong, Card("What to do", advice)]
    text, certainty = gap_sentences(row)
    heading = "What helps" if row.judgement.is_shown or row.helps else "What was tried"
    details = f"{certainty} {side_effects(row)}".strip()
    return [wrong, Card(heading, text, details, row.tone), _advice_card(document, row)]


def wrong_card(document: AuditDocument, task: str = "") -> Card:
    """Return right answers of all images and of the worst group.

    It is called wrong, and is red, only if there is a difference to be read and that is shown.

    Args:
        document: the audit.
        task: its name if there are several tasks.
    """
    run = document.runs[0]
    accuracy = run.metrics.accuracy
    gap = run.metrics.typical_gap
    if shown_value(accuracy) is None:
        on_task = f" on {task}" if task else ""
        return Card("What is seen", f"No figure is shown{on_task}: {accuracy.reason}.")

    details = f"Typical gap {figure_in_words(gap, '')}."
    if shown_value(gap) is not None:
        unit = f"{NO_BREAK_SPACE}points"
        points = figure_in_words(gap, unit, label=f"{ci_label(document)} ")
        balanced = percent(shown_value(run.metrics.balanced_accuracy))
        details = (
            f"Two groups of a class typically differ by {points}, "
            f"at balanced accuracy {balanced}."
        )
        if not gap.low:
            details += " A gap between groups is not shown."

    worst_name, worst = cells_of(run)[0]
    worst_rate = worst.correct / worst.n
    right = of_hundred(accuracy.value)
    worst_right = of_hundred(worst_rate)
    is_worse = worst_rate < (accuracy.value or 0.0)
    # Rounded figures that are equal show no difference
    if right == worst_right or not is_worse:
        start = f"{task}: right" if task else "Right"
        less = "hardly less" if is_worse else "no less"
        text = f"{start} on {right} images, {less} often in any group."
        return Card("What is seen", text, details)
    start = f"Largest typical gap on {task}: right" if task else "Right"
    text = f"{start} on {right} images, but on {worst_right} of {worst_name}."
    if gap.low:
        return Card("What is wrong", text, details, "bad")
    return Card("What is seen", text, details)


def _advice_card(document: AuditDocument, row: MethodRow) -> Card:
    """Return what to do with the featured method, and the groups to check."""
    # The order matters: harm is named before a gain, and chance before the worst group
    judgement = row.judgement
    losers = _losers_sentence(document, row)
    if row.narrows and row.harms:
        text = f"Look for another method before using {row.name}."
    elif judgement.is_shown:
        # The page has the lines that load a method which `mitigate` saved
        mitigation = document.provenance.get("mitigation")
        is_saved = isinstance(mitigation, dict) and mitigation.get("chosen") == row.name
        load = ": load its file with the lines below" if is_saved else ""
        text = f"Use {row.name}{load}. {CONFIRM}"
    elif row.harms:
        text = f"Do not use {row.name}: try other methods."
    elif judgement.looks_smaller:
        text = f"Add {judgement.more_images}, and compare again."
    elif row.narrows:
        text = f"Do not use {row.name}: it is not shown to answer better than chance."
    elif row.helps:
        text = f"Consider {row.name} for the worst group. {CONFIRM}"
    else:
        return Card("What to do", "Try other methods, or more images.")
    return Card("What to do", text, losers)


def _losers_sentence(document: AuditDocument, row: MethodRow) -> str:
    """Return the groups that are shown to lose, empty if none is."""
    groups = changed_groups(document, row.comparison)
    losers = [group for group in groups if group.direction < 0]
    if not losers:
        return ""
    # The group that loses most comes first
    losers.sort(key=lambda group: group.after - group.before)
    most = rounded_percent(losers[0].before - losers[0].after)
    least = rounded_percent(losers[-1].before - losers[-1].after)
    points = most if least == most else f"{least} to {most}"
    accuracy_change = row.comparison.adjusted.accuracy.value or 0.0
    average = (row.before.accuracy.value or 0.0) + accuracy_change
    is_above_average = all(group.after > average for group in losers)
    stay = " and stay above average" if is_above_average else ""
    they = "they lose" if len(losers) > 1 else "it loses"
    names = list_names([group.name for group in losers])
    return f"Check {names}: {they} {points} points{stay}."


def _cards_of_tasks(tasks: Sequence[NamedAudit]) -> list[Card]:
    """Return the cards of several tasks; those on methods are about the best one."""
    name, document = tasks[0]
    wrong = wrong_card(document, name)
    methods = methods_on_tasks(tasks)
    if not methods:
        return [wrong, Card("What to do", "Try methods on the same images.")]
    best = methods[0]
    measured: list[tuple[str, MethodRow]] = []
    for (task, _), row in zip(tasks, best.rows, strict=True):
        if row is not None:
            measured.append((task, row))
    # No gap without balanced accuracy
    figures = []
    for task, row in measured[:_MAX_TASKS_OF_CARD]:
        gap = f"{row.gap_values} {interval(row.gap_change, signed=True)}".rstrip()
        figures.append(f"{task} {gap} at {row.balanced_values}")
    details = (
        f"Typical gap with {best.name}, the interval of its change in points, and balanced "
        f"accuracy: {'; '.join(figures)}."
    )
    if best.tone == "good":
        text = f"{best.name} {_narrows_on(best)}{_not_run_on(best)}."
        todo = f"Use {best.name}. {CONFIRM}"
        helps = Card("What helps", text, details, "good")
        return [wrong, helps, Card("What to do", todo)]
    if best.n_shown:
        helped = [task for task, row in measured if row.judgement.is_shown]
        text = f"{best.name} narrows the gap on {list_names(helped)}; {_harms_on(measured)}"
        todo = f"Use {best.name} for {list_names(helped)} only. {CONFIRM}"
        tried = Card("What was tried", f"{text}{_not_run_on(best)}.", details)
        return [wrong, tried, Card("What to do", todo)]
    text = "No method is shown to narrow the gap without harm."
    if best.n_narrowed:
        text += f" {best.name} {best.verdict} tasks{_not_run_on(best)}."
    todo = "Label more images of the worst groups, or try other methods."
    tried = Card("What was tried", text, details)
    return [wrong, tried, Card("What to do", todo)]


def _harms_on(measured: Sequence[tuple[str, MethodRow]]) -> str:
    """Return what a method costs on each task that it harms; tasks with a wider gap come last."""
    costs = []
    widened = []
    for task, row in measured:
        if row.judgement.costs:
            costs.append(f"on {task} it costs {list_names(row.judgement.costs)}")
        elif row.harms:
            widened.append(f"on {task} it widens the gap")
    return "; ".join(costs + widened)


def _narrows_on(method: MethodOnTasks) -> str:
    n_tasks = len(method.measured)
    plural = "" if n_tasks == 1 else "s"
    text = f"narrows the gap on {method.n_shown} of {n_tasks} task{plural}"
    if method.n_shown == n_tasks or method.n_harmed:
        return text
    return f"{text}, no harm is shown on the others"


def _not_run_on(method: MethodOnTasks) -> str:
    return f"; not run on {list_names(method.not_run)}" if method.not_run else ""
