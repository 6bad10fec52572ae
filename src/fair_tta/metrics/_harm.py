"""How often classes are answered that should not be, group by group; labels are not needed."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Mapping

import numpy as np

from fair_tta._spelling import canonical_spelling
from fair_tta.errors import FairTTAError, UnknownAnswerWarning
from fair_tta.metrics._answer_table import read_answer_table
from fair_tta.metrics._clusters import check_clusters
from fair_tta.metrics._columns import read_column
from fair_tta.metrics._estimates import (
    Estimate,
    GroupBy,
    group_label,
    list_names,
    warn_small_groups,
)
from fair_tta.metrics._groups import share_estimate
from fair_tta.metrics._types import Column, Sensitive, Values
from fair_tta.metrics.intervals._bootstrap import Interval, read_interval


def harm_rate(
    y_pred: Column,
    sensitive: Sensitive,
    harmful: Collection[Hashable],
    *,
    values: Values | None = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> dict[Hashable, Estimate]:
    """The share of answers in a set of classes, for each group, with Wilson's interval.

    ``sum_i [answer_i in harmful, s_i = s] / K^(s)``. No labels of the target are needed. Equal
    rates are no disparity; that they are low does not follow.

    Args:
        y_pred: answers, one per image.
        sensitive: sensitive values, or ``{attribute: values}``; groups are intersections.
        harmful: the classes that should not be answered, such as ``["thief", "criminal"]``.
        values: all sensitive values, also such as do not occur.
        interval: the level of the intervals; None for none.
        clusters: the person or source of each image, if several images come from one.

    Example:
        >>> found = harm_rate(["man", "thief"] * 50, ["a", "b"] * 50, ["thief"])
        >>> found["a"].value, found["b"].value
        (0.0, 1.0)
    """
    return _shares({"y_pred": y_pred}, sensitive, harmful, values, interval, clusters)


def harm_rate_change(
    before: Column,
    after: Column,
    sensitive: Sensitive,
    harmful: Collection[Hashable],
    *,
    values: Values | None = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> dict[Hashable, Estimate]:
    """How `harm_rate` changes from one run to another on the same images, ``after - before``.

    Each group has its own paired interval (Bonett and Price, 2012).
    """
    return _shares(
        {"before": before, "after": after},
        sensitive,
        harmful,
        values,
        interval,
        clusters,
    )


def _shares(
    runs: Mapping[str, Column],
    sensitive: Sensitive,
    harmful: Collection[Hashable],
    values: Values | None,
    interval: Interval | None,
    clusters: Column | None,
) -> dict[Hashable, Estimate]:
    """The share of one run, or its change from the first of two to the second, group by group."""
    first, *others = answers = [read_column(*run) for run in runs.items()]
    if not first:
        raise FairTTAError(
            f"`{next(iter(runs))}` should have at least one row (got none).",
            argument=next(iter(runs)),
        )
    if any(len(other) != len(first) for other in others):
        raise FairTTAError(
            f"`after` should be as long as `before`, {len(first)} (got {len(others[0])}).",
            argument="after",
        )
    if (
        isinstance(harmful, str | bytes)
        or not isinstance(harmful, Collection)
        or not len(harmful)
    ):
        raise FairTTAError(
            f"`harmful` should be a list of classes (got {harmful!r}).",
            argument="harmful",
        )
    columns = read_answer_table(
        first, answers, sensitive, None, values, clusters, truth_has_classes=False
    )
    check_clusters(columns.clusters)
    warn_small_groups(columns.sizes_by_name(GroupBy.SENSITIVE), stacklevel=4)
    _check_harmful(harmful, columns.targets)
    bad = np.array([target in set(harmful) for target in columns.targets], np.bool_)
    counted = [bad[codes] for codes in columns.answers]
    level = None if interval is None else read_interval(interval).level
    return {
        group[0] if len(group) == 1 else group: share_estimate(
            columns, columns.group_codes == g, level, group_label(*group), *counted
        )
        for g, group in enumerate(columns.groups)
    }


def _check_harmful(
    harmful: Collection[Hashable], answers: Collection[Hashable]
) -> None:
    """Warn of classes that are never answered: their rate is 0, also if they are misspelt.

    Raises:
        FairTTAError: such a class reads like an answer, so that is what is meant.
    """
    listed_by_user = set(harmful)
    absent = [name for name in dict.fromkeys(harmful) if name not in set(answers)]
    by_reading = {canonical_spelling(str(answer)): answer for answer in answers}
    for name in absent:
        meant = by_reading.get(canonical_spelling(str(name)))
        if meant is not None and meant not in listed_by_user:
            raise FairTTAError(
                f"`harmful` should name classes as answers do (got {name!r}, but answers are "
                f"{meant!r}): write it like them.",
                argument="harmful",
            )
    if absent:
        warnings.warn(
            f"no answer is {list_names([*map(repr, absent)])}, which `harmful` names: check how "
            f"they are written, as answers are {list_names([*map(repr, answers)])}.",
            UnknownAnswerWarning,
            stacklevel=4,
        )
