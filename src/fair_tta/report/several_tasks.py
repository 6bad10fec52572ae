"""What several audits of the same methods say together: a verdict over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fair_tta.auditing.document import AuditDocument
from fair_tta.report.banners import NamedAudit
from fair_tta.report.examination_sentences import Card
from fair_tta.report.numbers import interval
from fair_tta.report.verdict import MethodRow, cells_of, method_rows, of_hundred

_LISTED = 3  # tasks whose gaps a card lists


@dataclass(frozen=True)
class MethodOnTasks:
    """What a method does to the gap, task by task.

    Attributes:
        name: of the method.
        rows: for each task what it does there, None if it was not run.
        narrows: tasks in which it is shown to narrow the gap.
        harms: tasks in which it is shown to widen the gap or to cost accuracy.
    """

    name: str
    rows: tuple[MethodRow | None, ...]
    narrows: int
    harms: int

    @property
    def says(self) -> str:
        """The verdict in a few words."""
        parts = [f"narrows the gap in {self.narrows}"] if self.narrows else []
        parts += [f"does harm in {self.harms}"] if self.harms else []
        return f"{', '.join(parts)} of {len(self.rows)}" if parts else "not shown"

    @property
    def tone(self) -> str:
        """A class of the style sheet."""
        if bool(self.narrows) == bool(self.harms):
            return ""
        return "good" if self.narrows else "bad"

    @property
    def changed(self) -> float:
        """The share of answers that changed, the mean over tasks."""
        shares = [row.changed for row in self.rows if row is not None]
        return sum(shares) / len(shares)

    @property
    def cost(self) -> float | None:
        """As a multiple of plain zero-shot, the mean over tasks; None if it is not known."""
        known = [row.cost for row in self.rows if row is not None and row.cost is not None]
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
        tones = [row.tone for row in rows if row is not None]
        found.append(MethodOnTasks(name, rows, tones.count("good"), tones.count("bad")))
    return sorted(found, key=lambda row: (row.harms - row.narrows, row.harms))


def cards_of_many(tasks: Sequence[NamedAudit]) -> list[Card]:
    """What is wrong, how sure, what to do, over all tasks; the largest gap comes first in them."""
    (name, document), n = tasks[0], len(tasks)
    run, worst = document.runs[0], cells_of(document.runs[0])[0]
    wrong = Card(
        "What is wrong",
        f"Largest gap on {name}: right in {of_hundred(run.metrics.accuracy.value or 0.0)} pictures "
        f"overall, but in {of_hundred(worst.rate)} of {worst.name}.",
        f"Answers of {run.name}.",
        "bad",
    )
    shown = [(d.runs[0].metrics.bias.low or 0.0) > 0 for _, d in tasks]
    exists = f"A gap exists on {sum(shown)} of {n} tasks." if any(shown) else "A gap is not shown."
    ends = [f"{t} {interval(d.runs[0].metrics.bias, words=True)}" for t, d in tasks[:_LISTED]]
    sure = Card("How sure", exists, f"In points: {', '.join(ends)}.")
    return [wrong, sure, _advice(methods_on(tasks))]


def _advice(methods: Sequence[MethodOnTasks]) -> Card:
    heading = "What to do"
    if not methods:
        return Card(heading, "Try methods on the same pictures.", "")
    best, n = methods[0], len(methods[0].rows)
    if best.tone == "good":
        elsewhere = "" if best.narrows == n else ", no harm is shown on the others"
        text = f"Try {best.name}: it narrows the gap on {best.narrows} of {n} tasks{elsewhere}."
        return Card(heading, text, "Confirm it on pictures that took no part.", "good")
    more = "Label more pictures of the worst groups, or try other methods."
    mixed = next((row for row in methods if row.narrows), None)
    if mixed is not None:
        text = f"No method narrows the gap without harm: {mixed.name} {mixed.says} tasks."
        return Card(heading, text, more)
    tried = "The method tried is not" if len(methods) == 1 else f"None of {len(methods)} methods is"
    return Card(heading, f"{tried} shown to narrow the gap on any task.", more)


def _gap(document: AuditDocument) -> float:
    return document.runs[0].metrics.bias.value or 0.0
