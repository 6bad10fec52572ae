"""How often answers fall into a set of harmful classes, group by group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._bootstrap import Interval, accepts_level, read_interval
from fair_tta.metrics._columns import Column, Columns, Sensitive, Values, parse_columns, read_column
from fair_tta.metrics._estimate import Estimate, Over, label, undefined, warn_small
from fair_tta.metrics._groups import rate
from fair_tta.metrics._intervals import paired_interval
from fair_tta.metrics._paired import Mask


@accepts_level
def harm_rate(
    y_pred: Column,
    sensitive: Sensitive,
    harmful: Collection[Hashable],
    *,
    values: Values | None = None,
    interval: Interval = 0.95,
) -> dict[Hashable, Estimate]:
    """The share of answers in a set of classes, for each group, with Wilson's interval.

    ``sum_i [answer_i in harmful, s_i = s] / K^(s)``. No labels of the target are needed. Equal
    rates are no disparity; that they are low does not follow.

    Args:
        y_pred: answers, one per image.
        sensitive: sensitive values, or ``{attribute: values}``; groups are intersections.
        harmful: the classes that should not be answered, such as ``["thief", "criminal"]``.
        values: all sensitive values, also such as do not occur.
        interval: the level of the intervals.

    Example:
        >>> found = harm_rate(["man", "thief"] * 50, ["a", "b"] * 50, ["thief"])
        >>> found["a"].value, found["b"].value
        (0.0, 1.0)
    """
    columns = _columns([("y_pred", y_pred)], sensitive, values)
    bad, level = _members(columns, harmful)[0], read_interval(interval).level
    return _by_group(columns, lambda mask, name: share_of(bad, mask, level, name))


@accepts_level
def harm_rate_change(
    before: Column,
    after: Column,
    sensitive: Sensitive,
    harmful: Collection[Hashable],
    *,
    values: Values | None = None,
    interval: Interval = 0.95,
) -> dict[Hashable, Estimate]:
    """How `harm_rate` changes from one run to another on the same images, ``after - before``.

    Each group has its own paired interval (Bonett and Price, 2012).
    """
    columns = _columns([("before", before), ("after", after)], sensitive, values)
    (was, now), level = _members(columns, harmful), read_interval(interval).level
    return _by_group(columns, lambda mask, name: change_of(was, now, mask, level, name))


def share_of(bad: Mask, mask: Mask, level: float, name: str) -> Estimate:
    """The share of bad answers among some images."""
    return rate(int(bad[mask].sum()), int(mask.sum()), level, name)


def change_of(was: Mask, now: Mask, mask: Mask, level: float, name: str) -> Estimate:
    """How that share changes on the same images."""
    n, gone = int(mask.sum()), int((was & ~now)[mask].sum())
    if n == 0:
        return undefined(f"no images: {name}")
    come = int((~was & now)[mask].sum())
    return Estimate((come - gone) / n, n, *paired_interval(gone, come, n, level))


def _columns(
    answers: list[tuple[str, Column]], sensitive: Sensitive, values: Values | None
) -> Columns:
    given = [read_column(argument, column) for argument, column in answers]
    if not given[0]:
        raise FairTTAError(f"`{answers[0][0]}` should have at least one row (got none).")
    if any(len(column) != len(given[0]) for column in given):
        raise FairTTAError(
            f"`after` should be as long as `before`, {len(given[0])} (got {len(given[1])})."
        )
    columns = parse_columns(given[0], given, sensitive, None, values)
    warn_small(columns.sizes(Over.SENSITIVE), stacklevel=5)
    return columns


def _members(columns: Columns, harmful: Collection[Hashable]) -> list[Mask]:
    if isinstance(harmful, str | bytes) or not isinstance(harmful, Collection) or not len(harmful):
        raise FairTTAError(f"`harmful` should be a list of classes (got {harmful!r}).")
    bad = np.array([target in set(harmful) for target in columns.targets], np.bool_)
    return [bad[answers] for answers in columns.answers]


def _by_group(
    columns: Columns, measure: Callable[[Mask, str], Estimate]
) -> dict[Hashable, Estimate]:
    return {
        group[0] if len(group) == 1 else group: measure(columns.group == g, label(*group))
        for g, group in enumerate(columns.groups)
    }
