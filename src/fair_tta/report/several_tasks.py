"""What several audits of the same methods say together: a verdict over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fair_tta.auditing.document import AuditDocument
from fair_tta.metrics.estimate import listed
from fair_tta.report.banners import NamedAudit
from fair_tta.report.examination_sentences import Card
from fair_tta.report.method_rows import MethodRow, method_rows
from fair_tta.report.numbers import interval
from fair_tta.report.verdict import CONFIRM, MAY_COST, cells_of, gap_exists, wrong_card

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
        return Card(heading, "Try methods on the same pictures.", "")
    best = min(methods, key=lambda row: (row.tone != "good", row.may_cost))
    if best.tone == "good":
        return _advised(best)
    more = "Label more pictures of the worst groups, or try other methods."
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
