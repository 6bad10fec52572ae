"""What each method does to gap and accuracy: the one place that decides it for all pages."""

from __future__ import annotations

from dataclasses import dataclass

from fair_tta.auditing.document import AuditDocument, Difference, RunFigures
from fair_tta.metrics.estimate import direction
from fair_tta.report.numbers import number_of_times

_SHARED = 0.9  # times the cost of zero-shot: less means that work was shared, not that it is cheap


@dataclass(frozen=True)
class MethodRow:
    """What a method does to the gap and to accuracy, beside the reference.

    Attributes:
        name: of the run.
        gap: its change, with an interval that allows for all comparisons made.
        accuracy: the same.
        worst: the same of the worst group's accuracy.
        may_cost: accuracy is shown to fall only if the number of comparisons is not allowed for.
            No mark says so, but the method is not advised without a word.
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
        """Whether it is shown to narrow the gap."""
        return _direction(self.gap) < 0

    @property
    def widens(self) -> bool:
        """Whether it is shown to widen the gap."""
        return _direction(self.gap) > 0

    @property
    def costs(self) -> bool:
        """Whether it is shown to cost accuracy."""
        return _direction(self.accuracy) < 0

    @property
    def raises(self) -> bool:
        """Whether it is shown to raise accuracy."""
        return _direction(self.accuracy) > 0

    @property
    def helps(self) -> bool:
        """Whether the worst group is shown to fare better, but not the gap to narrow.

        So it is where everybody fares better.
        """
        return _direction(self.worst) > 0 and not self.narrows

    @property
    def says(self) -> str:
        """The verdict in a few words."""
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
        """The same of the gap alone."""
        return "good" if self.narrows else "bad" if self.widens else ""


def method_rows(document: AuditDocument) -> list[MethodRow]:
    """A row for each run that is compared with the first, by the change of the gap."""
    plain = next((r for r in document.runs if r.adapter and r.adapter.name == "ZeroShot"), None)
    by_name = {run.name: run for run in document.runs}
    rows = []
    for c in document.comparisons:
        accuracy = c.told.accuracy
        may_cost = _direction(c.differences.accuracy) < 0 <= _direction(accuracy)
        changed = c.changes.changed / c.changes.n if c.changes.n else 0.0
        cost = _multiple(by_name.get(c.run), plain)
        worst = c.told.worst_group_accuracy
        rows.append(MethodRow(c.run, c.told.bias, accuracy, worst, may_cost, changed, cost))
    return sorted(rows, key=lambda row: row.gap.value if row.gap.value is not None else 2.0)


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
