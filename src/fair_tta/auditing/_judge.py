"""Judgements on an audit: which method to use, if any, and thresholds that a run may fail."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from fair_tta.auditing import _document as doc
from fair_tta.errors import FairTTAError
from fair_tta.metrics._estimate import label, listed
from fair_tta.metrics.definitions import METRICS

_COSTS = {"accuracy": "accuracy", "worst_group_accuracy": "the worst group"}


def objection(comparison: doc.Comparison) -> str | None:
    """Why a method is not a choice: it does not significantly narrow the typical gap, or it
    significantly costs accuracy or the worst group. None if it is one.

    Intervals allow for all methods that were compared.
    """
    changes = comparison.adjusted.by_name()
    narrows = _falls(changes.get("typical_gap"))
    reasons = [] if narrows else ["does not significantly narrow the gap"]
    costs = [what for metric, what in _COSTS.items() if _falls(changes.get(metric))]
    reasons += [f"significantly costs {' and '.join(costs)}"] if costs else []
    return ", and ".join(reasons) or None


def recommended(document: doc.AuditDocument) -> doc.Comparison | None:
    """The method with the lowest typical gap among those without an `objection`."""
    found = [c for c in document.comparisons if objection(c) is None]
    return min(found, key=lambda c: c.differences.typical_gap.value or 0.0, default=None)


def _falls(change: doc.Difference | None) -> bool:
    return change is not None and change.high is not None and change.high < 0


def stop_signs(document: doc.AuditDocument) -> list[str]:
    """What labels cannot show, to be read before any figure: cells, a class in a group, with few
    images or none, and a worst group that the attribute helps."""
    run, small = document.runs[0], document.settings.small
    names = [label(*group.sensitive.values()) for group in run.groups]
    confusion = np.array([group.confusion for group in run.groups])  # group, true, answer
    n = confusion.sum(2)
    found = []
    for target, of_groups in zip(document.data.targets, n.T, strict=True):
        empty = [label(target, names[g]) for g in np.flatnonzero(of_groups == 0)]
        few = [f"{label(target, names[g])} ({of_groups[g]})"
               for g in np.flatnonzero((of_groups > 0) & (of_groups < small))]  # fmt: skip
        alone = f", so {target} is in no gap" * (int((of_groups > 0).sum()) == 1)
        if empty and of_groups.any():
            found.append(f"no images of {listed(empty)}{alone}")
        if few:
            within = f"{98 / min(n for n in of_groups if n) ** 0.5:.0f} points at best"
            found.append(f"few images of {listed(few)}, accuracy is known to within {within}")
    signs = [f"Not measurable with these images: {'; '.join(found)}."] if found else []
    return signs + [
        f"STOP: of the groups that can be measured {label(target, name)} is the worst, and the "
        f"attribute helps it: {name} is answered {target} {100 * pull:.0f} points more often than "
        "others of the same class. A correction takes that away, and too few images show who gains."
        for target, name, pull in _helped(document.data.targets, names, confusion, small)
    ]


def _helped(
    targets: Collection[str], names: list[str], confusion: np.ndarray[Any, Any], small: int
) -> Iterator[tuple[str, str, float]]:
    """The worst cell that can be measured if no other group can on its class and the attribute
    significantly raises the right answer, by so much in classes where groups can be compared."""
    n = confusion.sum(2)
    seen = n >= small
    if not seen.any():
        return
    right = np.diagonal(confusion, axis1=1, axis2=2) / np.maximum(n, 1)
    g, t = np.unravel_index(np.where(seen, right, 2.0).argmin(), n.shape)
    others = (np.arange(len(names)) != g)[:, None] & seen
    if others[:, t].any():
        return
    both = seen[g] & others.any(0)
    if not both.any():
        return
    answers = np.stack([confusion[g], (confusion * others[..., None]).sum(0)])[:, both]
    sizes = answers.sum(2)
    rates = answers[..., t] / sizes  # how often the value, and others, get that answer
    pull = float((rates[0] - rates[1]).mean())
    error = float((rates * (1 - rates) / sizes).sum() ** 0.5 / both.sum())
    if pull > 1.96 * error:
        yield list(targets)[t], names[g], pull


SHORT = {
    "wga": "worst_group_accuracy",
    "eod": "equalized_odds_difference",
    "equalized_odds": "equalized_odds_difference",
    "equal_opportunity": "equal_opportunity_difference",
    "demographic_parity": "demographic_parity_difference",
    "atc": "average_target_confidence",
    "ece": "expected_calibration_error",
}


def read_thresholds(
    expressions: Iterable[str], run: str, runs: Collection[str]
) -> list[doc.Threshold]:
    """Expressions about one of the runs, not judged yet; what cannot be meant is an error."""
    found = []
    for text in expressions:
        parts = re.fullmatch(r"\s*([\w -]+?)\s*([<>])\s*(\d{1,3}(?:\.\d+)?)\s*(%?)\s*", text)
        if parts is None or float(parts[3]) > 100:
            raise FairTTAError(
                "a threshold should be a metric, < or >, and points from 0 to 100, such as "
                f"'typical_gap > 10' (got {text!r})."
            )
        points = float(parts[3])
        if 0 < points < 1 and not parts[4]:  # of accuracy it would never hold
            raise FairTTAError(
                f"a threshold should be in points from 0 to 100 (got {text!r}): write "
                f"{100 * points:g} if {points} is a share, or '{points} %' if it is not."
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
        found.append(doc.Threshold(metric, parts[2], points, run, "not judged"))
    return found


def figure_of(threshold: doc.Threshold, document: doc.AuditDocument) -> doc.EstimateFields | None:
    """What is judged, None if it was not recorded."""
    runs = {run.name: run.metrics.by_name() for run in document.runs}
    return runs.get(threshold.run, {}).get(threshold.metric)


def judge(threshold: doc.Threshold, document: doc.AuditDocument) -> doc.Threshold:
    """The threshold with its outcome: it fails if the whole interval lies beyond it."""
    figure, limit = figure_of(threshold, document), threshold.points / 100
    if figure is None or figure.low is None or figure.high is None:
        return replace(threshold, outcome="not judged")
    ends = (figure.low, figure.high)
    beyond = [end > limit if threshold.sign == ">" else end < limit for end in ends]
    outcome = "failed" if all(beyond) else "undecided" if any(beyond) else "passed"
    return replace(threshold, outcome=outcome)
