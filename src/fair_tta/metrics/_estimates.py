"""The same metrics on rows that are parsed already: what the public functions and audits share."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics import _definitions as definitions
from fair_tta.metrics._bootstrap import Bootstrap, intervals, resampled_change
from fair_tta.metrics._definitions import Metric
from fair_tta.metrics._estimate import Estimate, Over, label, left_out, listed, undefined
from fair_tta.metrics._intervals import clopper_pearson, mean_rate_ends, wilson
from fair_tta.metrics._rows import Floats, Ints, Rows


@dataclass(frozen=True)
class Rates:
    """Three rates of one class, in one group or as gaps between groups."""

    true_positive_rate: Estimate
    false_positive_rate: Estimate
    selection_rate: Estimate


def cells(rows: Rows, over: Over) -> list[tuple[Hashable, ...]]:
    """All groups: ``(*values)``, or ``(target, *values)`` group by group."""
    if over is Over.SENSITIVE:
        return rows.groups
    return [(target, *group) for group in rows.groups for target in rows.targets]


def estimate(metric: Metric, rows: Rows, run: int = 0, *, interval: Bootstrap | None) -> Estimate:
    """A metric of one run, with an interval on request."""
    return estimates([metric], rows, run, interval)[0]


def estimates(
    metrics: Sequence[Metric], rows: Rows, run: int, interval: Bootstrap | None
) -> list[Estimate]:
    """Metrics of one run; intervals come from the same resamples."""
    counts = rows.counts(run)
    ends = (
        [(None, None)] * len(metrics) if interval is None else intervals(metrics, counts, interval)
    )
    return [
        _figure(metric, rows, float(metric(counts)), low, high)
        for metric, (low, high) in zip(metrics, ends, strict=True)
    ]


def differences(
    metrics: Sequence[Metric], rows: Rows, before: int, after: int, interval: Bootstrap
) -> list[Estimate]:
    """Metrics of run `after` minus those of run `before`."""
    a, b = rows.counts(before), rows.counts(after)
    found = []
    for metric in metrics:
        change = metric(b) - metric(a)
        if np.ndim(change):
            raise FairTTAError(
                f"`metric` should give one number (got {metric.name!r}, which gives "
                f"{np.size(change)})."
            )
        low, high = (
            resampled_change(metric, rows, before, after, interval)
            if metric.change is None
            else metric.change(rows, before, after, interval.level)
        )
        found.append(_figure(metric, rows, float(change), low, high))
    return found


def rate(right: int, n: int, level: float, name: str) -> Estimate:
    """A share of n images with Wilson's interval."""
    if n == 0:
        return undefined(f"no images: {name}")
    return Estimate(right / n, n, *wilson(right, n, level))


def balanced(rows: Rows, run: int, level: float) -> Estimate:
    """See `balanced_accuracy`."""
    over = Over.TARGET_AND_SENSITIVE
    right, n = (part.astype(np.float64) for part in right_and_all(rows, run, over))
    low, high = mean_rate_ends(right[n > 0], n[n > 0], level)
    value = float(definitions.BALANCED_ACCURACY(rows.counts(run)))
    reason = left_out(_empty(rows, over))
    return Estimate(value, len(rows.truth), max(0.0, low), min(1.0, high), reason)


def worst(rows: Rows, run: int, over: Over, level: float) -> Estimate:
    """See `worst_group_accuracy`."""
    right, n = right_and_all(rows, run, over)
    present = np.flatnonzero(n)
    ends = [_together(int(right[i]), int(n[i]), level, len(present)) for i in present]
    at = worst_cell(rows, run, over)
    return Estimate(
        float(right[at] / n[at]),
        int(n[at]),
        min(low for low, _ in ends),
        min(high for _, high in ends),
        left_out(_empty(rows, over)),
    )


def worst_cell(rows: Rows, run: int, over: Over) -> int:
    """Position in `cells` of the worst group; of equal ones that with the most images."""
    right, n = right_and_all(rows, run, over)
    present: list[int] = np.flatnonzero(n).tolist()
    return min(present, key=lambda i: (right[i] / n[i], -n[i]))


def shortfall(rows: Rows, run: int, over: Over, level: float) -> Estimate:
    """See `bias`."""
    lowest = worst(rows, run, over, level)
    mean = float(definitions.ACCURACY(rows.counts(run)))
    assert lowest.low is not None
    assert lowest.high is not None
    value = max(0.0, mean - lowest.value)
    low, high = max(0.0, mean - lowest.high), max(0.0, mean - lowest.low)
    return Estimate(value, lowest.n, low, high, lowest.reason)


def rates_of_groups(rows: Rows, run: int, level: float) -> list[list[Rates]]:
    """``[groups][targets]``, with Wilson's intervals."""
    counts = rows.counts(run)
    true, answered = counts.sum(2), counts.sum(1)
    right, n = np.einsum("gcc->gc", counts), true.sum(1)
    table = []
    for g, group in enumerate(rows.groups):
        name, row = label(*group), []
        for c, target in enumerate(rows.targets):
            others = int(n[g] - true[g, c])
            row.append(
                Rates(
                    rate(int(right[g, c]), int(true[g, c]), level, label(target, *group)),
                    rate(
                        int(answered[g, c] - right[g, c]),
                        others,
                        level,
                        label(f"not {target}", *group),
                    ),
                    rate(int(answered[g, c]), int(n[g]), level, name),
                )
            )
        table.append(row)
    return table


def gaps_of_classes(rows: Rows, run: int, interval: Bootstrap | None) -> list[Rates]:
    """Gaps between groups for each class."""
    metrics = [
        definitions.TRUE_POSITIVE_GAPS,
        definitions.FALSE_POSITIVE_GAPS,
        definitions.SELECTION_GAPS,
    ]
    counts = rows.counts(run)
    true = counts.sum(2)
    bases = true, true.sum(1, keepdims=True) - true, true.sum(1, keepdims=True) + 0 * true
    ends = None if interval is None else intervals(metrics, counts, interval)
    values = [metric(counts) for metric in metrics]
    result = []
    for c, target in enumerate(rows.targets):
        row = []
        for i, (figures, base) in enumerate(zip(values, bases, strict=True)):
            low, high = (None, None) if ends is None else (ends[i][0][c], ends[i][1][c])
            what = (target, f"not {target}", "")[i]
            empty = [
                label(*((what,) if what else ()), *group)
                for g, group in enumerate(rows.groups)
                if base[g, c] == 0
            ]
            value, n = float(figures[c]), int(base[:, c].sum())
            row.append(_estimate(value, n, low, high, left_out(empty)))
        result.append(Rates(*row))
    return result


def of_class(
    metric: Metric, rows: Rows, target: Hashable | None, interval: Bootstrap | None
) -> Estimate:
    """A mean over classes, or the gap of one class."""
    if target is None:
        return estimate(metric, rows, interval=interval)
    if target not in rows.targets:
        raise FairTTAError(f"`target` should be one of {list(rows.targets)} (got {target!r}).")
    gaps = gaps_of_classes(rows, 0, interval)[rows.targets.index(target)]
    is_tpr = metric is definitions.EQUAL_OPPORTUNITY
    return gaps.true_positive_rate if is_tpr else gaps.selection_rate


def _estimate(
    value: float,
    n: int,
    low: Floats | float | None,
    high: Floats | float | None,
    reason: str | None,
    needs: str = "two groups with images",
) -> Estimate:
    if math.isnan(value):
        why = f"a gap needs {needs}"
        return undefined(f"{why}; {reason}" if reason else why, n)
    ends = [None if end is None or np.isnan(end) else float(end) for end in (low, high)]
    return Estimate(value, n, ends[0], ends[1], reason)


def _figure(
    metric: Metric,
    rows: Rows,
    value: float,
    low: Floats | float | None,
    high: Floats | float | None,
) -> Estimate:
    n, reason = len(rows.truth), _reason(metric, rows)
    if math.isnan(value):
        return _estimate(value, n, low, high, reason, _needs(metric, rows))
    return _estimate(value, n, low, high, reason)


def _needs(metric: Metric, rows: Rows) -> str:
    """What a gap cannot do without."""
    needs = "two groups with images"
    if (rows.counts().sum((1, 2)) > 0).sum() < 2:
        return needs
    if metric is definitions.EQUALIZED_ODDS:
        return f"{needs} of one class, and two with images of others"
    return f"{needs} of one class" if metric is definitions.EQUAL_OPPORTUNITY else needs


def _reason(metric: Metric, rows: Rows) -> str | None:
    """Which empty groups a metric does without, and which classes in consequence."""
    if metric is definitions.ACCURACY:
        return None
    by_group = (
        definitions.WORST_GROUP_ACCURACY_S,
        definitions.BIAS_S,
        definitions.DEMOGRAPHIC_PARITY,
    )
    over = Over.SENSITIVE if metric in by_group else Over.TARGET_AND_SENSITIVE
    reason = left_out(_empty(rows, over))
    if reason and metric in (definitions.EQUALIZED_ODDS, definitions.EQUAL_OPPORTUNITY):
        groups_with = (rows.counts().sum(2) > 0).sum(0)
        lost = [str(t) for t, n in zip(rows.targets, groups_with, strict=True) if n < 2]
        if lost:
            reason += f"; classes left out, as fewer than two groups have them: {listed(lost)}"
    return reason


def right_and_all(rows: Rows, run: int, over: Over) -> tuple[Ints, Ints]:
    """Right answers and images of each of `cells`."""
    if not isinstance(over, Over):
        raise FairTTAError(
            f"`over` should be a choice of Over, such as {Over.SENSITIVE} (got {over!r})."
        )
    counts = rows.counts(run)
    right, n = np.einsum("gcc->gc", counts), counts.sum(2)
    if over is Over.SENSITIVE:
        return right.sum(1), n.sum(1)
    return right.ravel(), n.ravel()


def sizes(rows: Rows, over: Over) -> dict[str, int]:
    """Images in each of `cells`, by what messages call them."""
    n = right_and_all(rows, 0, over)[1]
    return {label(*cell): int(n[i]) for i, cell in enumerate(cells(rows, over))}


def _empty(rows: Rows, over: Over) -> list[str]:
    return [name for name, n in sizes(rows, over).items() if n == 0]


def _together(right: int, n: int, level: float, groups: int) -> tuple[float, float]:
    """The exact interval at a level at which those of all groups hold together (Bonferroni)."""
    return clopper_pearson(right, n, 1 - (1 - level) / groups)
