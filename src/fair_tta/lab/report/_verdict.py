"""The verdict on audits: what is wrong, what helps, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fair_tta.auditing import _document as doc
from fair_tta.lab.report._method_rows import (
    MethodOnTasks,
    MethodRow,
    NamedAudit,
    beside_gap,
    featured,
    gap_sentences,
    methods_on,
    p_text,
    typical_gap,
)
from fair_tta.lab.report._numbers import (
    ARROW,
    SPACE,
    count,
    group_name,
    images,
    in_words,
    interval,
    of_hundred,
    p_value,
    percent,
    shown,
    task_name,
    whole,
)
from fair_tta.lab.report._sentences import Card
from fair_tta.metrics._estimates import Estimate, direction, list_names

CONFIRM = "Confirm it on images that took no part."
NOTHING_MEASURED = Card(
    "What is wrong", "Nothing was measured: no group has images.", ""
)

_LISTED = 3  # tasks of a card
_NAMED = 2  # groups that gained most, and as many that lost most


def by_gap(tasks: Sequence[NamedAudit]) -> list[NamedAudit]:
    """The tasks that have groups, the largest typical gap of the first run first."""
    known = [task for task in tasks if cells_of(task[1].runs[0])]
    return sorted(known, key=lambda task: -(typical_gap(task[1].runs[0]).value or 0.0))


def cells_of(run: doc.RunFigures) -> list[tuple[str, doc.ClassInGroup]]:
    """Each class in each group that has images, the worst first; of equal ones the larger."""
    found = [
        (group_name(group.sensitive, cell.target), cell)
        for group in run.groups
        for cell in group.classes
        if cell.n
    ]
    return sorted(found, key=lambda named: (named[1].correct / named[1].n, -named[1].n))


class ChangedGroup(NamedTuple):
    """A class in a group before and after a method; p allows for all groups (Holm)."""

    name: str
    before: float
    after: float
    difference: Estimate
    changes: doc.AnswerChanges
    p: float

    @property
    def direction(self) -> int:
        """What its interval shows, which allows for all groups."""
        return direction(self.difference.low, self.difference.high)


def changed_groups(
    document: doc.AuditDocument, comparison: doc.Comparison
) -> list[ChangedGroup]:
    """Each class in each group that has images, the worst before first."""
    right: dict[tuple[str | None, ...], int] = {
        (cell.target, *group.sensitive.values()): cell.correct
        for group in document.runs[0].groups
        for cell in group.classes
    }
    every = {(g.target, *g.sensitive.values()): g for g in comparison.groups}
    groups = [(cell, g) for cell, g in every.items() if cell in right and g.changes.n]
    groups.sort(key=lambda named: named[1].changes.mcnemar_p or 0.0)
    found, corrected = [], 0.0
    for place, (cell, g) in enumerate(groups):
        name, changes, was = group_name(g.sensitive, g.target), g.changes, right[cell]
        now = was + changes.wrong_to_right - changes.right_to_wrong
        corrected = max(corrected, (len(groups) - place) * (changes.mcnemar_p or 0.0))
        rates = was / changes.n, now / changes.n
        found.append(ChangedGroup(name, *rates, g.judged, changes, min(1.0, corrected)))
    return sorted(found, key=lambda group: (group.before, -group.changes.n))


def group_sentences(groups: Sequence[ChangedGroup]) -> list[str]:
    """The groups that gained and that lost most, with counts."""
    order = sorted(groups, key=lambda group: group.before - group.after)
    gained = [group for group in order[:_NAMED] if group.after > group.before]
    lost = [group for group in order[::-1][:_NAMED] if group.after < group.before]
    found = []
    for name, before, after, _, n, p in (*gained, *lost):
        text = (
            f"{count(n.wrong_to_right)} became right, {count(n.right_to_wrong)} wrong"
        )
        if n.mcnemar_p is not None:
            text += f"; {p_text(n.mcnemar_p)}, {p_value(p)} after correction"
            text += f" for {len(groups)} groups"
        found.append(f"{name}: {whole(before)} {ARROW} {whole(after)} of 100 ({text})")
    return found


def commonest(run: doc.RunFigures) -> tuple[str, float] | None:
    """The most frequent class and its share: what always answering it would get right."""
    counts: Counter[str] = Counter()
    for group in run.groups:
        counts.update({cell.target: cell.n for cell in group.classes})
    if not counts.total():
        return None
    name, n = counts.most_common(1)[0]
    return name, n / counts.total()


def audit_title(document: doc.AuditDocument, task: str | None = None) -> str:
    """The task, as it is called or by its classes and attributes, and the verdict."""
    task = task or task_name(document.data.targets, document.data.sensitive)
    return f"{task}: {in_short(document)}"


def in_short(document: doc.AuditDocument) -> str:
    """The verdict in a few words."""
    row = featured(document)
    if row is None:
        gap = typical_gap(document.runs[0])
        if gap.low is None:
            return "no verdict on the gap"
        at = f", at balanced accuracy {percent(shown(document.runs[0].metrics.balanced_accuracy))}"
        found = f"a typical gap of {percent(gap.value)} points between groups"
        return found + at if gap.low else "a gap between groups is not shown"
    if row.narrows or row.helps or row.harms:
        return f"{row.name} {next(filter(None, row.verdicts))}"
    if row.gap.low is None:
        return "no verdict on the gap"
    return f"these {images(document.data.n)} cannot tell whether the gap narrows"


def title_of_many(tasks: Sequence[NamedAudit], title: str) -> str:
    """A title and the verdict over all tasks."""
    best = next(iter(methods_on(tasks)), None)
    if best is None:
        tasks_with_gap = sum(
            bool(typical_gap(document.runs[0]).low) for _, document in tasks
        )
        return f"{title}: a gap between groups is shown on {tasks_with_gap} of {len(tasks)} tasks"
    if best.tone == "good":
        return f"{title}: {best.name} {_narrows_on(best)}"
    if best.shown:
        return f"{title}: {best.name} {_narrows_on(best)}, {best.harms} harmed"
    return f"{title}: no method is shown to narrow the gap without harm"


def cards(tasks: Sequence[NamedAudit]) -> list[Card]:
    """What is wrong, what helps, what to do; of several tasks the largest gap is wrong."""
    tasks = by_gap(tasks)
    if not tasks:
        return [NOTHING_MEASURED]
    if len(tasks) > 1:
        return _cards_of_many(tasks)
    document = tasks[0][1]
    row, wrong = featured(document), wrong_card(document)
    if row is None:
        text = "Compare methods on the same images (option --adapters)."
        return [wrong, Card("What to do", text, "")]
    text, sure = gap_sentences(row)
    heading = "What helps" if row.judgement.is_shown or row.helps else "What was tried"
    helps = Card(heading, text, f"{sure} {beside_gap(row)}".strip(), row.tone)
    return [wrong, helps, _advice(document, row)]


def wrong_card(document: doc.AuditDocument, task: str = "") -> Card:
    """Right answers of all and of the worst group, on a task that is named if there are several.

    It is called wrong, and is red, only if there is a difference to be read and that is shown.
    """
    run, level = document.runs[0], f"{100 * document.settings.level:g}{SPACE}% CI "
    (name, worst), gap = cells_of(run)[0], typical_gap(run)
    if shown(run.metrics.accuracy) is None:
        where = f" on {task}" * bool(task)
        return Card(
            "What is seen",
            f"No figure is shown{where}: {run.metrics.accuracy.reason}.",
            "",
        )
    rate = worst.correct / worst.n
    more = f"Typical gap {in_words(gap, '')}."
    if shown(gap) is not None:
        differ = in_words(gap, f"{SPACE}points", label=level)
        balanced = percent(shown(run.metrics.balanced_accuracy))
        more = f"Two groups of a class typically differ by {differ}, "
        more += f"at balanced accuracy {balanced}."
        more += "" if gap.low else " A gap between groups is not shown."
    all_of, worst_of = of_hundred(run.metrics.accuracy.value), of_hundred(rate)
    is_worse = rate < (run.metrics.accuracy.value or 0.0)
    if all_of == worst_of or not is_worse:
        less = "hardly less" if is_worse else "no less"
        start = f"{task}: right" if task else "Right"
        return Card(
            "What is seen",
            f"{start} on {all_of} images, {less} often in any group.",
            more,
        )
    start = f"Largest typical gap on {task}: right" if task else "Right"
    text = f"{start} on {all_of} images, but on {worst_of} of {name}."
    heading, tone = ("What is wrong", "bad") if gap.low else ("What is seen", "")
    return Card(heading, text, more, tone)


def _advice(document: doc.AuditDocument, row: MethodRow) -> Card:
    judgement, losers = row.judgement, _losers(document, row)
    if row.narrows and row.harms:
        text = f"Look for another method before using {row.name}."
    elif judgement.is_shown:
        made = document.provenance.get("mitigation")
        is_saved = isinstance(made, dict) and made.get("chosen") == row.name
        saved = ": load its file with the lines below" * is_saved
        text = f"Use {row.name}{saved}. {CONFIRM}"
    elif row.harms:
        text = f"Do not use {row.name}: try other methods."
    elif judgement.looks_smaller:
        text = f"Add {judgement.more_images}, and compare again."
    elif row.narrows:
        text = f"Do not use {row.name}: it is not shown to answer better than chance."
    elif row.helps:
        text = f"Consider {row.name} for the worst group. {CONFIRM}"
    else:
        text, losers = "Try other methods, or more images.", ""
    return Card("What to do", text, losers)


def _losers(document: doc.AuditDocument, row: MethodRow) -> str:
    """The groups that are shown to lose."""
    lost = [g for g in changed_groups(document, row.comparison) if g.direction < 0]
    if not lost:
        return ""
    lost.sort(key=lambda group: group.after - group.before)
    most, least = (whole(lost[i].before - lost[i].after) for i in (0, -1))
    by = f"{least} to {most}" if least != most else most
    average = (document.runs[0].metrics.accuracy.value or 0.0) + (
        row.accuracy.value or 0.0
    )
    stay = " and stay above average" * all(group.after > average for group in lost)
    they = "they lose" if len(lost) > 1 else "it loses"
    return (
        f"Check {list_names([group.name for group in lost])}: {they} {by} points{stay}."
    )


def _cards_of_many(tasks: Sequence[NamedAudit]) -> list[Card]:
    name, document = tasks[0]
    wrong = wrong_card(document, name)
    methods = methods_on(tasks)
    if not methods:
        return [wrong, Card("What to do", "Try methods on the same images.", "")]
    best = methods[0]
    known = [
        (task, row) for (task, _), row in zip(tasks, best.rows, strict=True) if row
    ]
    ends = [
        f"{task} {row.values} {interval(row.gap, True)}".rstrip()
        + f" at {row.balanced_values}"
        for task, row in known
    ]
    figures = f"Typical gap with {best.name}, the interval of its change in points, and balanced "
    figures += "accuracy: "
    figures += f"{'; '.join(ends[:_LISTED])}."
    if best.tone == "good":
        text = f"{best.name} {_narrows_on(best)}{_missing(best)}."
        helps = Card("What helps", text, figures, "good")
        return [wrong, helps, Card("What to do", f"Use {best.name}. {CONFIRM}", "")]
    if best.shown:
        helped = [task for task, row in known if row.judgement.is_shown]
        harmed = [(task, row.judgement.costs) for task, row in known if row.harms]
        losses = [
            f"on {task} it costs {list_names(costs)}" for task, costs in harmed if costs
        ]
        losses += [
            f"on {task} it widens the gap" for task, costs in harmed if not costs
        ]
        text = (
            f"{best.name} narrows the gap on {list_names(helped)}; {'; '.join(losses)}"
        )
        todo = f"Use {best.name} for {list_names(helped)} only. {CONFIRM}"
        tried = Card("What was tried", f"{text}{_missing(best)}.", figures)
        return [wrong, tried, Card("What to do", todo, "")]
    text = "No method is shown to narrow the gap without harm."
    text += f" {best.name} {best.verdict} tasks{_missing(best)}." * bool(best.narrows)
    todo = "Label more images of the worst groups, or try other methods."
    return [wrong, Card("What was tried", text, figures), Card("What to do", todo, "")]


def _narrows_on(method: MethodOnTasks) -> str:
    n = len(method.known)
    on = f"narrows the gap on {method.shown} of {n} task{'s' * (n != 1)}"
    return (
        on
        if method.shown == n or method.harms
        else f"{on}, no harm is shown on the others"
    )


def _missing(method: MethodOnTasks) -> str:
    return f"; not run on {list_names(method.not_run)}" if method.not_run else ""
