"""Banners and verdicts over several audits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._examine import MOST_ENTROPY
from fair_tta.lab.report._numbers import group_name, interval, of_hundred, points, whole_percent
from fair_tta.lab.report._sentences import MANY_CHANGED, Card
from fair_tta.lab.report._verdict import (
    CONFIRM,
    MAY_COST,
    MethodRow,
    cells_of,
    commonest,
    gap_exists,
    method_rows,
    wrong_card,
)
from fair_tta.metrics._estimate import listed

NEAR_CHANCE = 0.1
"""Of the way from chance to certain: a median confidence below is called near chance."""

NamedAudit = tuple[str, AuditDocument]
"""What a task is called, and its audit."""


def audit_banners(document: AuditDocument) -> list[str]:
    """The banners of one audit."""
    run = document.runs[0]
    usual, chance = _guessing(document), _near_chance(document)
    found = []
    eod = run.metrics.equalized_odds_difference
    odds = "not defined" if eod.value is None else points(eod)
    if _between_classes(document):
        found.append(
            "This gap may lie between classes: no difference between groups is shown "
            f"(equalized-odds difference, EOD: {odds})."
        )
    if _between_groups(document):
        found.append(
            f"But a difference between groups is shown: equalized-odds difference (EOD) {odds}."
        )
    if usual is not None:
        found.append(
            f"{run.name} is not shown to be better than always answering {usual[0]!r}, which is "
            f"right in {of_hundred(usual[1])}."
        )
    if chance is not None:
        found.append(
            f"{run.name} is hardly sure of any answer: median confidence {whole_percent(chance)}, "
            f"by chance {whole_percent(1 / len(document.data.targets))}."
        )
    found += [
        f"The model does not perceive {attribute}: do not correct by it, every correction is noise."
        for attribute in _not_perceived(document)
    ]
    found += [
        f"{name} changes {whole_percent(share)} of the answers."
        for name, share in _many_changed(document)
    ]
    found += [f"{text}." for text in _harm(document)]
    cells = cells_of(run)
    small = [cell for cell in cells if cell.n < document.settings.small]
    if small:
        found.append(
            f"{len(small)} of {len(cells)} groups have fewer than {document.settings.small} images."
        )
    found += [text for text in document.warnings if not text.startswith("Fewer than ")]
    n, here = document.compared, len(document.comparisons)
    if n:
        some = f", {here} of them here" if here < n else ""
        single = "single groups and sets of classes" if document.data.harmful else "single groups"
        found.append(
            f"{n} methods were compared{some}: intervals and marks of metrics allow for that "
            f"(Holm), those of {single} do not."
        )
    return found


def banners_of_many(tasks: Sequence[NamedAudit]) -> list[str]:
    """The banners of several audits, one sentence for each kind."""
    found = []
    classes = [name for name, document in tasks if _between_classes(document)]
    if classes:
        found.append(
            "The gap may lie between classes, as no difference between groups is shown (EOD): "
            f"{', '.join(classes)}."
        )
    groups = [name for name, document in tasks if _between_groups(document)]
    if groups:
        found.append(
            f"A difference between groups is shown (EOD), though no gap is: {', '.join(groups)}."
        )
    guessing = [
        f"{name} ({usual[0]!r} is right in {of_hundred(usual[1])})"
        for name, document in tasks
        if (usual := _guessing(document)) is not None
    ]
    if guessing:
        found.append(
            f"{tasks[0][1].runs[0].name} is not shown to be better than always giving the "
            f"commonest answer: {', '.join(guessing)}."
        )
    unsure = [
        f"{name} (median confidence {whole_percent(chance)}, by chance "
        f"{whole_percent(1 / len(document.data.targets))})"
        for name, document in tasks
        if (chance := _near_chance(document)) is not None
    ]
    if unsure:
        found.append(f"Hardly sure of any answer: {', '.join(unsure)}.")
    unseen = [
        f"{attribute} ({name})"
        for name, document in tasks
        for attribute in _not_perceived(document)
    ]
    if unseen:
        found.append(
            f"Not perceived by the model: {', '.join(unseen)}. Do not correct by what it does not "
            "perceive, every correction is noise."
        )
    changed: dict[str, list[str]] = {}
    for name, document in tasks:
        for method, share in _many_changed(document):
            changed.setdefault(method, []).append(f"{name} {whole_percent(share)}")
    if changed:
        listed = "; ".join(f"{method} ({', '.join(on)})" for method, on in changed.items())
        found.append(
            f"More than {whole_percent(MANY_CHANGED)} of the answers are changed by {listed}."
        )
    found += [f"{name}: {text}." for name, document in tasks for text in _harm(document)]
    cells = [(cell, d.settings.small) for _, d in tasks for cell in cells_of(d.runs[0])]
    small = sum(cell.n < least for cell, least in cells)
    if small:
        found.append(
            f"{small} of {len(cells)} groups have fewer than {cells[0][1]} images: their figures "
            "are uncertain."
        )
    compared = [document.compared for _, document in tasks]
    n = max(compared)
    if n:
        several = f"{n} methods were compared on each task"
        if min(compared) < n:
            several = f"Up to {n} methods were compared on a task"
        found.append(
            f"{several}: intervals and marks of metrics allow for that, task by task (Holm)."
        )
    return found


def _between_classes(document: AuditDocument) -> bool:
    """Whether the gap that is shown may be one of classes that are hard in every group."""
    low = document.runs[0].metrics.equalized_odds_difference.low
    return gap_exists(document.runs[0]) and not low


def _between_groups(document: AuditDocument) -> bool:
    """Whether groups are shown to differ although the gap is not."""
    low = document.runs[0].metrics.equalized_odds_difference.low
    return not gap_exists(document.runs[0]) and bool(low)


def _guessing(document: AuditDocument) -> tuple[str, float] | None:
    """The commonest answer and its share, if the first run is not shown to be better."""
    accuracy, usual = document.runs[0].metrics.accuracy, commonest(document.runs[0])
    is_guess = usual is not None and accuracy.low is not None and accuracy.low <= usual[1]
    return usual if is_guess else None


def _near_chance(document: AuditDocument) -> float | None:
    """The median confidence, if it is near chance."""
    median, chance = document.runs[0].median_confidence, 1 / len(document.data.targets)
    if median is None or median >= chance + NEAR_CHANCE * (1 - chance):
        return None
    return median


def _not_perceived(document: AuditDocument) -> Iterator[str]:
    run = document.runs[0]
    before = run.sensitive_indifference
    if run.zero_shot_scores is not None:
        before = run.zero_shot_scores.sensitive_indifference
    for attribute, entropy in before.items():
        if entropy.value is not None and entropy.value > MOST_ENTROPY:
            yield attribute


def _harm(document: AuditDocument) -> Iterator[str]:
    """For each set of harmful classes the groups that are answered so most and least often."""
    run = document.runs[0]
    for name in document.data.harmful:
        shares = [
            (harm.rate.value, f"of {group_name(harm.sensitive)} {interval(harm.rate)}".rstrip())
            for harm in run.harm
            if harm.classes == name and harm.sensitive and harm.rate.value is not None
        ]
        if shares:
            ordered = sorted(shares, key=lambda share: -share[0])
            ends = ordered if len(ordered) < 2 else [ordered[0], ordered[-1]]
            told = " and in ".join(f"{whole_percent(share)} {group}" for share, group in ends)
            yield f"{run.name} answers with a class of the set {name!r} in {told}"


def _many_changed(document: AuditDocument) -> Iterator[tuple[str, float]]:
    for row in method_rows(document):
        if row.changed > MANY_CHANGED:
            yield row.name, row.changed


_LISTED = 3  # tasks whose gaps a card lists


@dataclass(frozen=True)
class MethodOnTasks:
    """What a method does to the gap, task by task.

    Attributes:
        name: of the method.
        rows: for each task what it does there, None if it was not run.
        not_run: names of the tasks on which it was not.
    """

    name: str
    rows: tuple[MethodRow | None, ...]
    not_run: tuple[str, ...]

    @property
    def known(self) -> list[MethodRow]:
        """The rows of the tasks on which it was run."""
        return [row for row in self.rows if row is not None]

    @property
    def narrows(self) -> int:
        """Tasks in which it is shown to narrow the gap."""
        return sum(row.narrows for row in self.known)

    @property
    def raises(self) -> int:
        """Tasks in which it is shown to raise accuracy."""
        return sum(row.raises for row in self.known)

    @property
    def harms(self) -> int:
        """Tasks in which it is shown to widen the gap or to cost accuracy."""
        return sum(row.widens or row.costs for row in self.known)

    @property
    def may_cost(self) -> bool:
        """Whether it may cost accuracy in some task, see `MethodRow`."""
        return any(row.may_cost for row in self.known)

    @property
    def says(self) -> str:
        """The verdict in a few words."""
        parts = [f"narrows the gap in {self.narrows}"] if self.narrows else []
        parts += [f"raises accuracy in {self.raises}"] if self.raises else []
        parts += [f"does harm in {self.harms}"] if self.harms else []
        return f"{', '.join(parts)} of {len(self.known)}" if parts else "not shown"

    @property
    def tone(self) -> str:
        """A class of the style sheet."""
        if bool(self.narrows) == bool(self.harms):
            return ""
        return "good" if self.narrows else "bad"

    @property
    def changed(self) -> float:
        """The share of answers that changed, the mean over tasks."""
        shares = [row.changed for row in self.known]
        return sum(shares) / len(shares)

    @property
    def cost(self) -> float | None:
        """As a multiple of plain zero-shot, the mean over tasks; None if it is not known."""
        known = [row.cost for row in self.known if row.cost is not None]
        return sum(known) / len(known) if known else None


def by_gap(tasks: Sequence[NamedAudit]) -> list[NamedAudit]:
    """The tasks, the largest gap of the first run first; those without one are left out."""
    known = [task for task in tasks if task[1].runs[0].metrics.bias.value is not None]
    return sorted(known, key=lambda task: -_gap(task[1]))


def methods_on(tasks: Sequence[NamedAudit]) -> list[MethodOnTasks]:
    """A row for each method, those first that narrow the gap most often and do the least harm."""
    by_task = [{row.name: row for row in method_rows(document)} for _, document in tasks]
    names = dict.fromkeys(c.run for _, document in tasks for c in document.comparisons)
    found = []
    for name in names:
        rows = tuple(of.get(name) for of in by_task)
        missing = [task for (task, _), row in zip(tasks, rows, strict=True) if row is None]
        found.append(MethodOnTasks(name, rows, tuple(missing)))
    return sorted(found, key=lambda row: (row.harms - row.narrows, row.harms))


def cards_of_many(tasks: Sequence[NamedAudit]) -> list[Card]:
    """What is wrong, how sure, what to do, over all tasks; the largest gap comes first in them."""
    (name, document), n = tasks[0], len(tasks)
    wrong = wrong_card(document.runs[0], cells_of(document.runs[0]), name)
    shown = sum(gap_exists(d.runs[0]) for _, d in tasks)
    exists = f"A gap exists on {shown} of {n} tasks." if shown else "A gap is not shown."
    ends = [f"{t} {interval(d.runs[0].metrics.bias, words=True)}" for t, d in tasks[:_LISTED]]
    sure = Card("How sure", exists, f"In points: {', '.join(ends)}.")
    return [wrong, sure, _advice(methods_on(tasks))]


def _advice(methods: Sequence[MethodOnTasks]) -> Card:
    heading = "What to do"
    if not methods:
        return Card(heading, "Try methods on the same images.", "")
    best = min(methods, key=lambda row: (row.tone != "good", row.may_cost))
    if best.tone == "good":
        return _advised(best)
    more = "Label more images of the worst groups, or try other methods."
    mixed = next((row for row in methods if row.narrows), None)
    if mixed is not None:
        tasks = "task" if len(mixed.known) == 1 else "tasks"
        says = f"{mixed.name} {mixed.says} {tasks}{_missing(mixed)}"
        text = f"No method narrows the gap without harm: {says}."
        return Card(heading, text, more)
    tried = (
        "The method tried is not" if len(methods) == 1 else f"None of the {len(methods)} methods is"
    )
    return Card(heading, f"{tried} shown to narrow the gap on any task.", more)


def _advised(method: MethodOnTasks) -> Card:
    """What to do about a method that narrows the gap, and is not shown to do harm."""
    n = len(method.known)
    on = f"narrows the gap on {method.narrows} of {n} task{'s' * (n != 1)}"
    elsewhere = "" if method.narrows == n else ", no harm is shown on the others"
    if method.may_cost:
        text = f"{method.name} {on}, but may cost accuracy{_missing(method)}."
        return Card("What to do", text, f"{MAY_COST} {CONFIRM}")
    text = f"Try {method.name}: it {on}{elsewhere}{_missing(method)}."
    return Card("What to do", text, CONFIRM, "good")


def _missing(method: MethodOnTasks) -> str:
    return f"; not run on {listed(method.not_run)}" if method.not_run else ""


def _gap(document: AuditDocument) -> float:
    return document.runs[0].metrics.bias.value or 0.0
