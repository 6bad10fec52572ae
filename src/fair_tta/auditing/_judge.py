"""Judgements on an audit: which method to use, if any, and thresholds that a run may fail."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from fair_tta.auditing._document import (
    AuditDocument,
    Comparison,
    Difference,
    EstimateFields,
    Threshold,
)
from fair_tta.errors import FairTTAError
from fair_tta.metrics._definitions import METRICS

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


SHORT = {
    "wga": "worst_group_accuracy",
    "eod": "equalized_odds_difference",
    "equalized_odds": "equalized_odds_difference",
    "equal_opportunity": "equal_opportunity_difference",
    "demographic_parity": "demographic_parity_difference",
    "atc": "average_target_confidence",
    "ece": "expected_calibration_error",
}


def read_thresholds(expressions: Iterable[str], run: str, runs: Collection[str]) -> list[Threshold]:
    """Expressions about one of the runs, not judged yet; what cannot be meant is an error."""
    found = []
    for text in expressions:
        parts = re.fullmatch(r"\s*([\w -]+?)\s*([<>])\s*(\d{1,3}(?:\.\d+)?)\s*%?\s*", text)
        if parts is None or float(parts[3]) > 100:
            raise FairTTAError(
                "a threshold should be a metric, < or >, and points from 0 to 100, such as "
                f"'typical_gap > 10' (got {text!r})."
            )
        written = re.sub("[ -]+", "_", parts[1].lower())
        metric = SHORT.get(written, written)
        if metric not in METRICS:
            raise FairTTAError(
                f"the metric of a threshold should be one of {', '.join([*METRICS, *SHORT])} "
                f"(got {parts[1]!r})."
            )
        if run not in runs:
            raise FairTTAError(
                f"a threshold should be for one of the methods, {', '.join(runs)} (got {run!r})."
            )
        found.append(Threshold(metric, parts[2], float(parts[3]), run, "not judged"))
    return found


def figure_of(threshold: Threshold, document: AuditDocument) -> EstimateFields | None:
    """What is judged, None if it was not recorded."""
    runs = {run.name: run.metrics.by_name() for run in document.runs}
    return runs.get(threshold.run, {}).get(threshold.metric)


def judge(threshold: Threshold, document: AuditDocument) -> Threshold:
    """The threshold with its outcome: it fails if the whole interval lies beyond it."""
    figure, limit = figure_of(threshold, document), threshold.points / 100
    if figure is None or figure.low is None or figure.high is None:
        return replace(threshold, outcome="not judged")
    ends = (figure.low, figure.high)
    beyond = [end > limit if threshold.sign == ">" else end < limit for end in ends]
    outcome = "failed" if all(beyond) else "undecided" if any(beyond) else "passed"
    return replace(threshold, outcome=outcome)
