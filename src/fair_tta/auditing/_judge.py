"""Judgements on an audit: the verdict on each method, and thresholds that a run may fail."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from fair_tta.auditing import _document as doc
from fair_tta.errors import FairTTAError
from fair_tta.metrics._estimates import Estimate, direction, group_label, list_names
from fair_tta.metrics.definitions import METRICS


@dataclass(frozen=True)
class Verdict:
    """The verdict on one method by the rule of docs/report.md, which every page follows.

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
        small_groups: ``{class in group: its images}`` of those that have some, but too few.
        missing_images: the images that would have to be added to these.
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
        """Accuracies that are shown to fall; single groups only if no overall one is."""
        directions = {
            "balanced accuracy": self.balanced_accuracy,
            "accuracy": self.accuracy,
            "the worst group": self.worst_group,
        }
        falling = [name for name, direction in directions.items() if direction < 0]
        return falling or list(self.falling_groups)

    @property
    def is_harmful(self) -> bool:
        """True if the gap is shown to grow, or an accuracy to fall."""
        return self.typical_gap > 0 or bool(self.costs)

    @property
    def looks_smaller(self) -> bool:
        """True if the verdict would be green with enough images of small groups."""
        return self._narrows_without_costs and bool(self.small_groups)

    @property
    def is_shown(self) -> bool:
        """True if the verdict is green: the method is shown to narrow the gap without harm."""
        return self._narrows_without_costs and not self.small_groups

    @property
    def _narrows_without_costs(self) -> bool:
        return self.typical_gap < 0 and self.is_above_chance and not self.costs

    @property
    def objection(self) -> str | None:
        """The reason not to choose the method, None if the verdict is green."""
        # Each condition of docs/report.md that does not hold
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
        noun = "image" if self.missing_images == 1 else "images"
        groups = list_names(list(self.small_groups))
        return f"{self.missing_images} more {noun} of {groups}"


def verdict_on(document: doc.AuditDocument, comparison: doc.Comparison) -> Verdict:
    """Return the verdict on the method that a comparison is about.

    Intervals of metrics allow for all methods compared, those of groups for all groups.
    """
    changes = comparison.adjusted.by_name()

    def shown_direction(metric: str) -> int:
        change = changes.get(metric)
        return 0 if change is None else direction(change.low, change.high)

    # Only classes in groups: those of a whole group are not corrected for their number
    falling = []
    for group in comparison.groups:
        is_cell = group.target is not None
        if is_cell and direction(group.judged.low, group.judged.high) < 0:
            falling.append(group)
    falling.sort(key=lambda group: group.judged.value or 0.0)
    falling_names = []
    for group in falling:
        falling_names.append(group_label(group.target, *group.sensitive.values()))

    # A method whose answers are no better than chance has no gap either
    chance = 1 / len(document.data.targets)
    is_above_chance = False
    for run in document.runs:
        if run.name == comparison.run:
            lowest = run.metrics.by_name()["balanced_accuracy"].low
            is_above_chance = lowest is not None and lowest > chance

    small_groups = images_of_small_groups(document)
    return Verdict(
        typical_gap=shown_direction("typical_gap"),
        balanced_accuracy=shown_direction("balanced_accuracy"),
        accuracy=shown_direction("accuracy"),
        worst_group=shown_direction("worst_group_accuracy"),
        odds=shown_direction("equalized_odds_difference"),
        falling_groups=tuple(falling_names),
        is_above_chance=is_above_chance,
        small_groups=small_groups,
        missing_images=sum(document.settings.small - n for n in small_groups.values()),
    )


def images_of_small_groups(document: doc.AuditDocument) -> dict[str, int]:
    """Return the images of each class in each group that has some, but too few."""
    small_groups = {}
    for group in document.runs[0].groups:
        for cell in group.classes:
            if 0 < cell.images < document.settings.small:
                name = group_label(cell.target, *group.sensitive.values())
                small_groups[name] = cell.images
    return small_groups


def recommended_comparison(document: doc.AuditDocument) -> doc.Comparison | None:
    """Return the method with the lowest typical gap among those whose verdict is green."""
    # All are compared with the same run, so the largest fall is the lowest gap
    green = [c for c in document.comparisons if verdict_on(document, c).is_shown]
    return min(
        green, key=lambda c: c.differences.typical_gap.value or 0.0, default=None
    )


def label_cautions(document: doc.AuditDocument) -> list[str]:
    """Return the limits of the labels, to be read before any figure.

    They name the classes of groups that have few images or none.
    """
    cautions = []
    small_groups = images_of_small_groups(document)
    if small_groups:
        few = [f"{name} ({n})" for name, n in small_groups.items()]
        cautions.append(
            f"Not measurable with these images: few images of {list_names(few)}."
        )

    groups = document.runs[0].groups
    for index, target in enumerate(document.data.targets):
        missing = []
        for group in groups:
            if group.classes[index].n == 0:
                missing.append(group_label(target, *group.sensitive.values()))
        # A class without any image is not in the data at all
        if not missing or len(missing) == len(groups):
            continue
        has_one_group = len(groups) - len(missing) == 1
        consequence = f", so {target} is in no gap" if has_one_group else ""
        cautions.append(
            f"No images of {list_names(missing)}{consequence}: nothing is known of them."
        )
    return cautions


METRIC_ALIASES = {
    "wga": "worst_group_accuracy",
    "eod": "equalized_odds_difference",
    "equalized_odds": "equalized_odds_difference",
    "equal_opportunity": "equal_opportunity_difference",
    "demographic_parity": "demographic_parity_difference",
    "atc": "average_target_confidence",
    "ece": "expected_calibration_error",
}


# Such as "typical-gap > 10" or "wga < 55.5 %"
_THRESHOLD = re.compile(r"\s*([\w -]+?)\s*([<>])\s*(\d{1,3}(?:\.\d+)?)\s*(%?)\s*")


def read_thresholds(
    expressions: Iterable[str], run: str, runs: Collection[str]
) -> list[doc.Threshold]:
    """Return thresholds for a run, not judged yet.

    Args:
        expressions: such as ``typical_gap > 10``, in points.
        run: the run that they are for.
        runs: names of all runs.

    Raises:
        FairTTAError: an expression cannot be read, or there is no such run.
    """
    thresholds = []
    for text in expressions:
        match = _THRESHOLD.fullmatch(text)
        if match is None or float(match[3]) > 100:
            raise FairTTAError(
                "a threshold should be a metric, < or >, and points from 0 to 100, such as "
                f"'typical_gap > 10' (got {text!r})."
            )
        written_metric, sign, number, percent_with_sign = match.groups()

        # "accuracy < 0.8" probably means 80 points, and would never hold as it stands
        points = float(number)
        if 0 < points < 1 and not percent_with_sign:
            raise FairTTAError(
                f"a threshold should be in points from 0 to 100 (got {text!r}): write "
                f"{100 * points:g} if {points} is a share, or '{points} %' if it is not."
            )
        metric = re.sub("[ -]+", "_", written_metric.lower())
        metric = METRIC_ALIASES.get(metric, metric)
        if metric not in METRICS:
            allowed = ", ".join([*METRICS, *METRIC_ALIASES])
            raise FairTTAError(
                f"the metric of a threshold should be one of {allowed} (got {written_metric!r})."
            )
        if run not in runs:
            raise FairTTAError(
                f"a threshold should be for one of the methods, {', '.join(runs)} (got {run!r})."
            )
        thresholds.append(doc.Threshold(metric, sign, points, run, "not judged"))
    return thresholds


def judged_estimate(
    threshold: doc.Threshold, document: doc.AuditDocument
) -> Estimate | None:
    """Return the figure that a threshold is about, None if it was not recorded."""
    for run in document.runs:
        if run.name == threshold.run:
            return run.metrics.by_name().get(threshold.metric)
    return None


def judge_threshold(
    threshold: doc.Threshold, document: doc.AuditDocument
) -> doc.Threshold:
    """Return the threshold with its outcome: it fails if the whole interval lies beyond it."""
    estimate = judged_estimate(threshold, document)
    if estimate is None or estimate.low is None or estimate.high is None:
        return replace(threshold, outcome="not judged")
    limit = threshold.points / 100

    # The run fails if even the end of the interval that favours it lies beyond the limit
    if threshold.sign == ">":
        is_low_beyond = estimate.low > limit
        is_high_beyond = estimate.high > limit
    else:
        is_low_beyond = estimate.low < limit
        is_high_beyond = estimate.high < limit
    if is_low_beyond and is_high_beyond:
        return replace(threshold, outcome="failed")
    if is_low_beyond or is_high_beyond:
        return replace(threshold, outcome="undecided")
    return replace(threshold, outcome="passed")
