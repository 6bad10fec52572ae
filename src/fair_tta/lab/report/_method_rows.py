"""What each method does to the typical gap, to the worst group and to accuracy, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fair_tta.auditing import _document as doc
from fair_tta.auditing._judge import recommended
from fair_tta.lab.report._numbers import (
    ARROW,
    SPACE,
    count,
    images,
    in_words,
    interval,
    number_of_times,
    p_value,
    percent,
    times,
)
from fair_tta.metrics._estimate import direction

NamedAudit = tuple[str, doc.AuditDocument]
"""What a task is called, and its audit."""

_SHARED = 0.9  # times the cost of zero-shot: less means that work was shared, not that it is cheap


@dataclass(frozen=True)
class MethodRow:
    """What a method does to the typical gap, to the worst group and to accuracy.

    Each is stated only if the interval of its change shows it, allowing for all methods compared.

    Attributes:
        comparison: with the reference, on the same images.
        before: the typical gap of the reference.
        after: that of the method.
        gap: its change.
        level: of intervals.
        compared: how many comparisons intervals allow for, 0 if they are not corrected.
        cost: as a multiple of plain zero-shot, None if that was not run.
    """

    comparison: doc.Comparison
    before: doc.EstimateFields
    after: doc.EstimateFields
    gap: doc.Difference
    level: float
    compared: int
    cost: float | None

    @property
    def name(self) -> str:
        return self.comparison.run

    @property
    def worst(self) -> doc.Difference:
        return self.comparison.adjusted.worst_group_accuracy

    @property
    def accuracy(self) -> doc.Difference:
        return self.comparison.adjusted.accuracy

    @property
    def changed(self) -> float:
        """The share of answers that changed."""
        return self.comparison.changes.changed / max(1, self.comparison.changes.n)

    @property
    def narrows(self) -> bool:
        return _direction(self.gap) < 0

    @property
    def helps(self) -> bool:
        return _direction(self.worst) > 0

    @property
    def harms(self) -> bool:
        """Whether the gap is shown to widen, or the worst group or accuracy to fall."""
        return max(_direction(self.gap), -_direction(self.worst), -_direction(self.accuracy)) > 0

    @property
    def verdicts(self) -> tuple[str, str, str]:
        """On the gap, on the worst group, on accuracy; empty what is not shown."""
        worse = " by serving the better groups worse" * self.harms
        return (
            ("", "widens the gap", f"narrows the gap{worse}")[_direction(self.gap)],
            ("", "helps the worst group", "hurts the worst group")[_direction(self.worst)],
            ("", "raises accuracy", "costs accuracy")[_direction(self.accuracy)],
        )

    @property
    def verdict(self) -> str:
        reason = f"no verdict on the gap: {self.gap.reason}" if self.gap.low is None else ""
        return ", ".join(filter(None, [*self.verdicts, reason])) or "not shown"

    @property
    def tone(self) -> str:
        """A class of the style sheet; none if it does good and harm."""
        if self.narrows:
            return "" if self.harms else "good"
        return "bad" if self.harms else ""

    @property
    def values(self) -> str:
        """``21.7 → 13.9``."""
        return f"{percent(self.before.value)} {ARROW} {percent(self.after.value)}"


@dataclass(frozen=True)
class MethodOnTasks:
    """What a method does, task by task: None and a name where it was not run."""

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
    def harms(self) -> int:
        """Tasks on which the gap is shown to widen, or the worst group or accuracy to fall."""
        return sum(row.harms for row in self.known)

    @property
    def verdict(self) -> str:
        found = Counter(part for row in self.known for part in row.verdicts if part)
        parts = [f"{what} in {n}" for what, n in found.items()]
        return f"{', '.join(parts)} of {len(self.known)}" if parts else "not shown"

    @property
    def tone(self) -> str:
        if bool(self.narrows) == bool(self.harms):
            return ""
        return "good" if self.narrows else "bad"

    @property
    def values(self) -> str:
        """The typical gap before and after, means over tasks."""
        before, after = ([getattr(row, x).value for row in self.known] for x in ("before", "after"))
        return f"{percent(_mean(before))} {ARROW} {percent(_mean(after))}"

    @property
    def accuracy(self) -> doc.Difference:
        """Its change, the mean over tasks."""
        mean = _mean([row.accuracy.value for row in self.known])
        return doc.Difference(mean, None, None, 0, None)

    @property
    def cost(self) -> float | None:
        """As a multiple of plain zero-shot, the mean over tasks; None if it is not known."""
        return _mean([row.cost for row in self.known])


def method_rows(document: doc.AuditDocument) -> list[MethodRow]:
    """A row for each run that is compared with the first, by the change of the typical gap."""
    plain = next((r for r in document.runs if r.adapter and r.adapter.name == "ZeroShot"), None)
    by_name = {run.name: run for run in document.runs}
    before, level = typical_gap(document.runs[0]), document.settings.level
    rows = []
    for c in (c for c in document.comparisons if c.run in by_name):
        run = by_name[c.run]
        gap, cost = c.adjusted.typical_gap, _multiple(run, plain)
        rows.append(MethodRow(c, before, typical_gap(run), gap, level, document.compared, cost))
    return sorted(rows, key=lambda row: row.gap.value if row.gap.value is not None else 2.0)


def featured(document: doc.AuditDocument) -> MethodRow | None:
    """The method that a page speaks of: the recommended one; else one that helps the worst group
    without harm; else one that narrows the gap; else that with the lowest gap.
    """
    chosen = recommended(document)

    def rank(row: MethodRow) -> int:
        if row.comparison is chosen:
            return 0
        return 1 if row.helps and not row.harms else 2 if row.narrows else 3

    return min(method_rows(document), key=rank, default=None)


def methods_on(tasks: Sequence[NamedAudit]) -> list[MethodOnTasks]:
    """A row for each method, those first that narrow the gap most often and do the least harm."""
    by_task = [{row.name: row for row in method_rows(document)} for _, document in tasks]
    names = dict.fromkeys(c.run for _, document in tasks for c in document.comparisons)
    found = []
    for name in names:
        rows = tuple(of.get(name) for of in by_task)
        missing = [task for (task, _), row in zip(tasks, rows, strict=True) if row is None]
        found.append(MethodOnTasks(name, rows, tuple(missing)))

    def rank(method: MethodOnTasks) -> tuple[int, int, float]:
        change = sum(row.gap.value or 0.0 for row in method.known)
        return method.harms - method.narrows, method.harms, change

    return sorted(found, key=rank)


def typical_gap(run: doc.RunFigures) -> doc.EstimateFields:
    """That of a run."""
    return run.metrics.typical_gap


def _mean(figures: Sequence[float | None]) -> float | None:
    known = [x for x in figures if x is not None]
    return sum(known) / len(known) if known else None


def _direction(change: doc.Difference) -> int:
    return direction(change.low, change.high)


def cost_sentence(document: doc.AuditDocument) -> str:
    """What each method costs against plain zero-shot, the cheapest first; empty if not known."""
    known = sorted((row.cost, row.name) for row in method_rows(document) if row.cost is not None)
    if not known:
        return ""
    listed = [f"{number_of_times(cost)} with {name}" for cost, name in known]
    return f"Cost in zero-shot calls: {', '.join(listed)}."


def _multiple(run: doc.RunFigures, plain: doc.RunFigures | None) -> float | None:
    if plain is None or not run.cost or not plain.cost or plain.cost.seconds_per_image <= 0:
        return None
    multiple = run.cost.seconds_per_image / plain.cost.seconds_per_image
    return multiple if multiple > _SHARED else None


def gap_sentences(row: MethodRow) -> tuple[str, str]:
    """What a method does to the typical gap, or why that is not shown, and how sure that is."""
    gap, name = row.gap, row.name
    if gap.value is None:
        return f"{name}: the change of the typical gap is not defined ({gap.reason}).", ""
    before, after = percent(row.before.value), f"{percent(row.after.value)} points"
    if not row.after.value:  # not called a gap that is closed
        before, after = f"{before} points", "no more than chance explains"
    differ = f"two groups of a class typically differ by {after}, before by {before}"
    if gap.low is None:
        return f"{name}: {differ}.", f"No verdict on the gap: {gap.reason}."
    ci, ends = f"{100 * row.level:g}{SPACE}% CI", interval(gap, signed=True, words=True)
    ends += f", corrected for {row.compared} methods" * bool(row.compared)
    if row.verdicts[0]:
        return f"{name} {row.verdicts[0]}: {differ}.", f"{ci} of the change {ends}."
    n, change = images(row.comparison.changes.n), percent(gap.value, signed=True)
    text = f"{name}: these {n} cannot tell whether the gap changes ({change}, {ci} {ends})."
    power = row.comparison.power
    if power is None:
        return text, ""
    more = f"A change of {percent(power.detectable)} points would show in 8 of 10 audits"
    if power.images_needed is not None:
        more += f"; the change seen would need about {count(power.images_needed)} images"
    return text, f"{more}."


def beside_gap(row: MethodRow) -> str:
    """What a method does to the worst group and to accuracy, and its cost."""
    worst, accuracy = (in_words(x, " points", signed=True) for x in (row.worst, row.accuracy))
    _, on_worst, on_accuracy = row.verdicts
    text = f"{on_worst or 'worst group'} {worst}, {on_accuracy or 'accuracy'} {accuracy}"
    cost = f", cost {times(row.cost)}" if row.cost is not None else ""
    return f"{text[0].upper()}{text[1:]}{cost}."


def changes(document: doc.AuditDocument) -> list[str]:
    """For each run that is compared with the first its verdict and how many answers changed."""
    found = []
    for row in method_rows(document):
        n = row.comparison.changes
        test = "" if n.mcnemar_p is None else f" (exact McNemar {p_text(n.mcnemar_p)})"
        found.append(
            f"{' '.join(gap_sentences(row))} {beside_gap(row)} "
            f"{count(n.changed)} of {count(n.n)} answers changed: {count(n.wrong_to_right)} from "
            f"wrong to right, {count(n.right_to_wrong)} from right to wrong, "
            f"{count(n.wrong_to_wrong)} from wrong to wrong{test}."
        )
    return found


def p_text(p: float | None) -> str:
    """``p = 0.008``."""
    text = p_value(p)
    return f"p{SPACE}{text}" if text.startswith("<") else f"p{SPACE}={SPACE}{text}"
