"""The verdict on audits: what is wrong, how sure that is, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fair_tta.auditing._document import AuditDocument, Difference, Measured, RunFigures
from fair_tta.auditing._examine import HALF_WIDTH
from fair_tta.lab.report._numbers import (
    count,
    group_name,
    headline,
    images,
    interval,
    model_name,
    number_of_times,
    of_hundred,
    points,
    whole,
    whole_percent,
)
from fair_tta.lab.report._sentences import Card, images_to_know
from fair_tta.metrics._estimate import direction, listed

NamedAudit = tuple[str, AuditDocument]
"""What a task is called, and its audit."""

_SHARED = 0.9  # times the cost of zero-shot: less means that work was shared, not that it is cheap


@dataclass(frozen=True)
class MethodRow:
    """What a method does to the gap and to accuracy, beside the reference.

    It narrows or widens the gap, costs or raises accuracy if the interval shows it.

    Attributes:
        name: of the run.
        gap: its change, with an interval that allows for all comparisons made.
        accuracy: the same.
        worst: the same of the worst group's accuracy.
        may_cost: accuracy is shown to fall only if the number of comparisons is not allowed for.
            No mark shows it, but the method is not advised without a remark.
        changed: the share of answers that changed.
        cost: as a multiple of plain zero-shot, None if that was not run.
    """

    name: str
    gap: Difference
    accuracy: Difference
    worst: Difference
    may_cost: bool
    changed: float
    cost: float | None

    @property
    def narrows(self) -> bool:
        return _direction(self.gap) < 0

    @property
    def widens(self) -> bool:
        return _direction(self.gap) > 0

    @property
    def costs(self) -> bool:
        return _direction(self.accuracy) < 0

    @property
    def raises(self) -> bool:
        return _direction(self.accuracy) > 0

    @property
    def helps(self) -> bool:
        """Whether the worst group is shown to fare better, but not the gap to narrow.

        So it is where everybody fares better.
        """
        return _direction(self.worst) > 0 and not self.narrows

    @property
    def verdict(self) -> str:
        parts = ["narrows the gap"] * self.narrows + ["widens the gap"] * self.widens
        parts += ["helps the worst group"] * self.helps
        parts += ["raises accuracy"] * self.raises + ["costs accuracy"] * self.costs
        return ", ".join(parts) or "not shown"

    @property
    def tone(self) -> str:
        """A class of the style sheet; none if it does good and harm."""
        if self.narrows:
            return "" if self.costs else "good"
        return "bad" if self.widens or self.costs else ""

    @property
    def gap_tone(self) -> str:
        return "good" if self.narrows else "bad" if self.widens else ""


@dataclass(frozen=True)
class MethodOnTasks:
    """What a method does to the gap, task by task: None and a name where it was not run."""

    name: str
    rows: tuple[MethodRow | None, ...]
    not_run: tuple[str, ...]

    @property
    def known(self) -> list[MethodRow]:
        return [row for row in self.rows if row is not None]

    @property
    def narrows(self) -> int:
        return sum(row.narrows for row in self.known)

    @property
    def raises(self) -> int:
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
    def verdict(self) -> str:
        parts = [f"narrows the gap in {self.narrows}"] if self.narrows else []
        parts += [f"raises accuracy in {self.raises}"] if self.raises else []
        parts += [f"does harm in {self.harms}"] if self.harms else []
        return f"{', '.join(parts)} of {len(self.known)}" if parts else "not shown"

    @property
    def tone(self) -> str:
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


def method_rows(document: AuditDocument) -> list[MethodRow]:
    """A row for each run that is compared with the first, by the change of the gap."""
    plain = next((r for r in document.runs if r.adapter and r.adapter.name == "ZeroShot"), None)
    by_name = {run.name: run for run in document.runs}
    rows = []
    for c in document.comparisons:
        accuracy = c.adjusted.accuracy
        may_cost = _direction(c.differences.accuracy) < 0 <= _direction(accuracy)
        changed = c.changes.changed / c.changes.n if c.changes.n else 0.0
        cost = _multiple(by_name.get(c.run), plain)
        worst = c.adjusted.worst_group_accuracy
        rows.append(MethodRow(c.run, c.adjusted.bias, accuracy, worst, may_cost, changed, cost))
    return sorted(rows, key=lambda row: row.gap.value if row.gap.value is not None else 2.0)


def by_gap(tasks: Sequence[NamedAudit]) -> list[NamedAudit]:
    """The tasks, the largest gap of the first run first; those without one are left out."""
    known = [task for task in tasks if task[1].runs[0].metrics.bias.value is not None]
    return sorted(known, key=lambda task: -(task[1].runs[0].metrics.bias.value or 0.0))


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


def cost_sentence(document: AuditDocument) -> str:
    """What each method costs against plain zero-shot, the cheapest first; empty if not known."""
    known = sorted((row.cost, row.name) for row in method_rows(document) if row.cost is not None)
    if not known:
        return ""
    listed = [f"{number_of_times(cost)} with {name}" for cost, name in known]
    return f"Cost in zero-shot calls: {', '.join(listed)}."


def _direction(change: Difference) -> int:
    return direction(change.low, change.high)


def _multiple(run: RunFigures | None, plain: RunFigures | None) -> float | None:
    if run is None or plain is None or run.cost is None or plain.cost is None:
        return None
    if plain.cost.seconds_per_image <= 0:
        return None
    multiple = run.cost.seconds_per_image / plain.cost.seconds_per_image
    return multiple if multiple > _SHARED else None


_DRAWS = 2000  # of groups, to find which may be the worst
_ADDED = 2  # right images, and as many wrong ones, to draw from: no group looks certain
_SURE = 0.95  # of the draws name the same group
_WORTH_NAMING = 0.05  # of the draws name another
_LISTED = 3  # classes of a title, tasks of a card

NOTHING_MEASURED = Card("What is wrong", "Nothing was measured: no group has images.", "")
CONFIRM = "Confirm it on images that took no part."
MAY_COST = "By itself, not allowing for the number of methods, its accuracy is shown to fall."


class CellOfGroup(NamedTuple):
    """A class in a group, with its right answers and the interval of their share."""

    name: str
    n: int
    correct: int
    figure: Measured

    @property
    def rate(self) -> float:
        return self.correct / self.n


def cells_of(run: RunFigures) -> list[CellOfGroup]:
    """Each class in each group that has images, the worst first; of equal ones the larger."""
    found = [
        CellOfGroup(
            group_name(group.sensitive, cell.target), cell.n, cell.correct, cell.true_positive_rate
        )
        for group in run.groups
        for cell in group.classes
        if cell.n
    ]
    return sorted(found, key=lambda cell: (cell.rate, -cell.n))


def worst_shares(cells: Sequence[CellOfGroup], seed: int = 0) -> list[tuple[str, float]]:
    """How often each group is the worst if images are drawn anew, the most frequent first.

    Right answers of each group are drawn from a binomial distribution, at the rate that two right
    and two wrong images more would give (Agresti and Coull, 1998); ties are shared.
    """
    generator = np.random.default_rng(seed)
    n = np.array([cell.n for cell in cells])
    rates = (np.array([cell.correct for cell in cells]) + _ADDED) / (n + 2 * _ADDED)
    drawn = generator.binomial(n, rates, (_DRAWS, len(cells))) / n
    lowest = drawn == drawn.min(1, keepdims=True)
    shares = (lowest / lowest.sum(1, keepdims=True)).mean(0)
    order = np.argsort(-shares, kind="stable")
    return [(cells[i].name, float(shares[i])) for i in order]


def commonest(run: RunFigures) -> tuple[str, float] | None:
    """The most frequent class and its share: what always answering it would get right."""
    counts: Counter[str] = Counter()
    for group in run.groups:
        counts.update({cell.target: cell.n for cell in group.classes})
    if not counts.total():
        return None
    name, n = counts.most_common(1)[0]
    return name, n / counts.total()


def audit_title(document: AuditDocument) -> str:
    """Task, attribute, model and number of images."""
    name = model_name(document.origin) or "answers"
    return headline(document.data.targets, document.data.sensitive, name, document.data.n)


def in_short(document: AuditDocument) -> str:
    """Right answers of all and of the worst group, for a line that can be unfolded."""
    run = document.runs[0]
    cells = cells_of(run)
    if not cells or run.metrics.accuracy.value is None:
        return ""
    overall, lowest = of_hundred(run.metrics.accuracy.value), of_hundred(cells[0].rate)
    return f"right in {overall}" + (f", in {lowest} of {cells[0].name}" * (lowest != overall))


def audit_cards(document: AuditDocument) -> list[Card]:
    """What is wrong, how sure, what to do."""
    run = document.runs[0]
    cells = cells_of(run)
    if not cells or run.metrics.accuracy.value is None:
        return [NOTHING_MEASURED]
    return [wrong_card(run, cells), _sure(run, cells), _advice(document, cells)]


def wrong_card(run: RunFigures, cells: Sequence[CellOfGroup], task: str = "") -> Card:
    """Right answers of all and of the worst group, on a task that is named if there are several.

    It is called wrong, and is red, only if there is a difference to be read and that is shown.
    """
    worst, overall = cells[0], run.metrics.accuracy.value or 0.0
    all_of, worst_of, more = of_hundred(overall), of_hundred(worst.rate), f"Answers of {run.name}."
    if all_of == worst_of or not is_worse(run, worst):
        less = "hardly less" if is_worse(run, worst) else "no less"
        start = f"{task}: right" if task else "Right"
        text = f"{start} in {all_of} images overall, and {less} often in any group."
        return Card("What is seen", text, more)
    start = f"Largest gap on {task}: right" if task else "Right"
    text = f"{start} in {all_of} images overall, but in {worst_of} of {worst.name}."
    heading, tone = ("What is wrong", "bad") if gap_exists(run) else ("What is seen", "")
    return Card(heading, text, more, tone)


def is_worse(run: RunFigures, cell: CellOfGroup) -> bool:
    """Whether a group fares worse than all images."""
    return cell.rate < (run.metrics.accuracy.value or 0.0)


def gap_exists(run: RunFigures) -> bool:
    """Whether a gap between accuracy and the worst group is shown."""
    return (run.metrics.bias.low or 0.0) > 0


def _sure(run: RunFigures, cells: Sequence[CellOfGroup]) -> Card:
    gap = run.metrics.bias
    ends = f"{interval(gap, words=True)} points"
    exists = gap_exists(run)
    text = f"A gap exists: {ends}." if exists else f"A gap is not shown: {ends}."
    if not is_worse(run, cells[0]):
        return Card("How sure", text, "")
    shares, worst = dict(worst_shares(cells)), cells[0]
    share = shares.pop(worst.name)
    if exists and share >= _SURE:
        return Card("How sure", text, f"{worst.name} is the worst group ({images(worst.n)}).")
    more = f"{images(worst.n)}; {worst.name} is the worst in {whole_percent(share)} of resamples"
    other = next(iter(shares), None)
    if other is not None and shares[other] >= _WORTH_NAMING:
        more += f", {other} in {whole_percent(shares[other])}"
    return Card("How sure", f"{text} Which group is worst is not sure.", f"{more}.")


def _advice(document: AuditDocument, cells: Sequence[CellOfGroup]) -> Card:
    heading, worst = "What to do", cells[0]
    needed = images_to_know(worst.rate, document.settings.level) - worst.n
    label = (
        f"Label about {count(needed)} more images of {worst.name} to know its accuracy to "
        f"within {whole(HALF_WIDTH)} points."
        if needed > 0
        else ""
    )
    rows = method_rows(document)
    narrows = [row for row in rows if row.narrows]
    if narrows:
        return _advised(min(narrows, key=lambda row: (row.costs, row.may_cost)))
    if rows:
        tried = "The method tried" if len(rows) == 1 else f"None of the {len(rows)} methods tried"
        is_not = "is not shown" if len(rows) == 1 else "is shown"
        text = f"{tried} {is_not} to narrow the gap."
        helps = [row for row in rows if row.helps and not row.costs and not row.may_cost]
        if helps:
            best = max(helps, key=lambda row: row.worst.value or 0.0)
            text += f" {best.name} helps the worst group: {points(best.worst, signed=True)}."
        return Card(heading, text, CONFIRM if helps else label)
    return Card(heading, "Compare methods on the same images (option --adapters).", label)


def _advised(row: MethodRow) -> Card:
    """What to do about a method that narrows the gap, whatever it does to accuracy."""
    figures = f"gap {points(row.gap, signed=True)}, accuracy {points(row.accuracy, signed=True)}"
    if row.costs:
        text = f"{row.name} narrows the gap and costs accuracy: {figures}."
        return Card("What to do", text, "Weigh the two, or try other methods.")
    if row.may_cost:
        text = f"{row.name} narrows the gap, but may cost accuracy: {figures}."
        return Card("What to do", text, f"{MAY_COST} {CONFIRM}")
    return Card("What to do", f"Try {row.name}: {figures}.", CONFIRM, "good")


def cards_of_many(tasks: Sequence[NamedAudit]) -> list[Card]:
    """What is wrong, how sure, what to do, over all tasks; the largest gap comes first in them."""
    (name, document), n = tasks[0], len(tasks)
    wrong = wrong_card(document.runs[0], cells_of(document.runs[0]), name)
    shown = sum(gap_exists(d.runs[0]) for _, d in tasks)
    exists = f"A gap exists on {shown} of {n} tasks." if shown else "A gap is not shown."
    ends = [f"{t} {interval(d.runs[0].metrics.bias, words=True)}" for t, d in tasks[:_LISTED]]
    sure = Card("How sure", exists, f"In points: {', '.join(ends)}.")
    return [wrong, sure, _advice_on(methods_on(tasks))]


def _advice_on(methods: Sequence[MethodOnTasks]) -> Card:
    heading = "What to do"
    if not methods:
        return Card(heading, "Try methods on the same images.", "")
    best = min(methods, key=lambda row: (row.tone != "good", row.may_cost))
    if best.tone == "good":
        return _advised_on(best)
    more = "Label more images of the worst groups, or try other methods."
    mixed = next((row for row in methods if row.narrows), None)
    if mixed is not None:
        tasks = "task" if len(mixed.known) == 1 else "tasks"
        what = f"{mixed.name} {mixed.verdict} {tasks}{_missing(mixed)}"
        text = f"No method narrows the gap without harm: {what}."
        return Card(heading, text, more)
    tried = (
        "The method tried is not" if len(methods) == 1 else f"None of the {len(methods)} methods is"
    )
    return Card(heading, f"{tried} shown to narrow the gap on any task.", more)


def _advised_on(method: MethodOnTasks) -> Card:
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
