"""Which of the methods that were compared to use, if any."""

from __future__ import annotations

from fair_tta.auditing._document import AuditDocument, Comparison, Difference

_COSTS = {"accuracy": "accuracy", "worst_group_accuracy": "the worst group"}


def objection(comparison: Comparison) -> str | None:
    """Why a method is not a choice: it does not significantly narrow the typical gap, or it
    significantly costs accuracy or the worst group. None if it is one.

    Intervals allow for all methods that were compared.
    """
    changes = comparison.adjusted.by_name()
    if not _falls(changes.get("typical_gap")):
        return "does not significantly narrow the gap"
    costs = [what for metric, what in _COSTS.items() if _falls(changes.get(metric))]
    return f"significantly costs {' and '.join(costs)}" if costs else None


def recommended(document: AuditDocument) -> Comparison | None:
    """The method with the lowest typical gap among those without an `objection`."""
    found = [c for c in document.comparisons if objection(c) is None]
    return min(found, key=lambda c: c.differences.typical_gap.value or 0.0, default=None)


def _falls(change: Difference | None) -> bool:
    return change is not None and change.high is not None and change.high < 0
