"""Judgements on an audit: which method to use, if any, and thresholds that a run may fail."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from fair_tta.auditing import _document as doc
from fair_tta.errors import FairTTAError
from fair_tta.metrics._estimates import Estimate, direction, group_label, list_names
from fair_tta.metrics.definitions import METRICS


@dataclass(frozen=True)
class Verdict:
    """What an audit shows of one method: the rule of docs/report.md, which every page follows.

    Directions are 1 if the figure is shown to grow, -1 if it is shown to fall, 0 if neither.

    Attributes:
        typical_gap: direction of its change.
        balanced_accuracy: direction of its change.
        accuracy: direction of its change.
        worst_group: direction of the change of worst-group accuracy.
        odds: direction of the change of the equalized-odds difference.
        falling_groups: each class in each group whose accuracy is shown to fall, the worst first;
            intervals allow for all of them (Holm).
        is_above_chance: the interval of balanced accuracy lies above one over the classes.
        small_groups: images of each class in each group that has some, but too few.
        missing_images: how many more images these need not to be small.
    """

    typical_gap: int
    balanced_accuracy: int
    accuracy: int
    worst_group: int
    odds: int
    falling_groups: tuple[str, ...]
    is_above_chance: bool
    small_groups: Mapping[str, int]
    missing_images: int

    @property
    def costs(self) -> list[str]:
        """What is shown to fall; single groups only if no figure of all of them is."""
        directions = {
            "balanced accuracy": self.balanced_accuracy,
            "accuracy": self.accuracy,
            "the worst group": self.worst_group,
        }
        falling = [name for name, direction in directions.items() if direction < 0]
        return falling or list(self.falling_groups)

    @property
    def is_harmful(self) -> bool:
        """Whether the gap is shown to grow, or an accuracy to fall."""
        return self.typical_gap > 0 or bool(self.costs)

    @property
    def looks_smaller(self) -> bool:
        """Whether the gap is shown to fall and nothing speaks against it but small groups."""
        narrows = self.typical_gap < 0 and self.is_above_chance
        return narrows and not self.costs and bool(self.small_groups)

    @property
    def is_shown(self) -> bool:
        """Whether the verdict is green: the method is shown to narrow the gap without harm."""
        narrows = self.typical_gap < 0 and self.is_above_chance
        return narrows and not self.costs and not self.small_groups

    @property
    def objection(self) -> str | None:
        """Why the method is not a choice, None if it is one."""
        reasons = []
        if self.typical_gap >= 0:
            reasons.append("does not significantly narrow the gap")
        if self.costs:
            reasons.append(f"significantly costs {list_names(self.costs)}")
        if self.typical_gap < 0 and not self.is_above_chance:
            reasons.append(
                "is not shown to answer better than chance (balanced accuracy)"
            )
        if self.looks_smaller:
            reasons.append(
                f"makes the gap look smaller, but {self.more_images} would show it"
            )
        return ", and ".join(reasons) or None

    @property
    def more_images(self) -> str:
        """``7 more images of dog / out``."""
        plural = "s" * (self.missing_images != 1)
        return f"{self.missing_images} more image{plural} of {list_names([*self.small_groups])}"


def verdict_on(document: doc.AuditDocument, comparison: doc.Comparison) -> Verdict:
    """Return what an audit shows of a method that it compares.

    Intervals of metrics allow for all methods compared, those of groups for all groups.
    """
    changes = comparison.adjusted.by_name()
    small_groups = images_of_small_groups(document)
    falling = [group for group in comparison.groups if group.target and _falls(group)]
    falling.sort(key=lambda group: group.judged.value or 0.0)
    metrics = {run.name: run.metrics.by_name() for run in document.runs}
    balanced = metrics.get(comparison.run, {}).get("balanced_accuracy")
    lowest = None if balanced is None else balanced.low

    def shown(metric: str) -> int:
        change = changes.get(metric)
        return 0 if change is None else direction(change.low, change.high)

    return Verdict(
        typical_gap=shown("typical_gap"),
        balanced_accuracy=shown("balanced_accuracy"),
        accuracy=shown("accuracy"),
        worst_group=shown("worst_group_accuracy"),
        odds=shown("equalized_odds_difference"),
        falling_groups=tuple(
            group_label(g.target, *g.sensitive.values()) for g in falling
        ),
        is_above_chance=lowest is not None and lowest > 1 / len(document.data.targets),
        small_groups=small_groups,
        missing_images=sum(document.settings.small - n for n in small_groups.values()),
    )


def _falls(group: doc.ComparedGroup) -> bool:
    return direction(group.judged.low, group.judged.high) < 0


def images_of_small_groups(document: doc.AuditDocument) -> dict[str, int]:
    """Return the images of each class in each group that has some, but too few."""
    return {
        group_label(cell.target, *group.sensitive.values()): cell.images
        for group in document.runs[0].groups
        for cell in group.classes
        if 0 < cell.images < document.settings.small
    }


def recommended_comparison(document: doc.AuditDocument) -> doc.Comparison | None:
    """Return the method with the lowest typical gap among those whose verdict is green."""
    green = [c for c in document.comparisons if verdict_on(document, c).is_shown]
    return min(
        green, key=lambda c: c.differences.typical_gap.value or 0.0, default=None
    )


def label_cautions(document: doc.AuditDocument) -> list[str]:
    """Return what labels cannot show, to be read before any figure: cells, a class in a group, with
    few images or none."""
    run = document.runs[0]
    names = [group_label(*group.sensitive.values()) for group in run.groups]
    confusion = np.array(
        [group.confusion for group in run.groups]
    )  # group, true, answer
    few = [f"{name} ({n})" for name, n in images_of_small_groups(document).items()]
    signs = (
        [f"Not measurable with these images: few images of {list_names(few)}."]
        if few
        else []
    )
    for target, of_groups in zip(
        document.data.targets, confusion.sum(2).T, strict=True
    ):
        missing = [
            group_label(target, names[g]) for g in np.flatnonzero(of_groups == 0)
        ]
        alone = f", so {target} is in no gap" * (int((of_groups > 0).sum()) == 1)
        if missing and of_groups.any():
            signs.append(
                f"No images of {list_names(missing)}{alone}: nothing is known of them."
            )
    return signs


METRIC_ALIASES = {
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
        parts = re.fullmatch(
            r"\s*([\w -]+?)\s*([<>])\s*(\d{1,3}(?:\.\d+)?)\s*(%?)\s*", text
        )
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
        metric = METRIC_ALIASES.get(written, written)
        if metric not in METRICS:
            allowed = ", ".join([*METRICS, *METRIC_ALIASES])
            raise FairTTAError(
                f"the metric of a threshold should be one of {allowed} (got {parts[1]!r})."
            )
        if run not in runs:
            raise FairTTAError(
                f"a threshold should be for one of the methods, {', '.join(runs)} (got {run!r})."
            )
        found.append(doc.Threshold(metric, parts[2], points, run, "not judged"))
    return found


def judged_estimate(
    threshold: doc.Threshold, document: doc.AuditDocument
) -> Estimate | None:
    """What is judged, None if it was not recorded."""
    runs = {run.name: run.metrics.by_name() for run in document.runs}
    return runs.get(threshold.run, {}).get(threshold.metric)


def judge_threshold(
    threshold: doc.Threshold, document: doc.AuditDocument
) -> doc.Threshold:
    """The threshold with its outcome: it fails if the whole interval lies beyond it."""
    figure, limit = judged_estimate(threshold, document), threshold.points / 100
    if figure is None or figure.low is None or figure.high is None:
        return replace(threshold, outcome="not judged")
    ends = (figure.low, figure.high)
    beyond = [end > limit if threshold.sign == ">" else end < limit for end in ends]
    outcome = "failed" if all(beyond) else "undecided" if any(beyond) else "passed"
    return replace(threshold, outcome=outcome)
