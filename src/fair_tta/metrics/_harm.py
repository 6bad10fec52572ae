"""Rates of answers that should not be given, group by group; labels are not needed."""

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
    """Return the share of answers in a set of classes, for each group, with Wilson's interval.

    ``sum_i [answer_i in harmful, s_i = s] / K^(s)``. No labels of the target are needed. Equal
    rates mean no disparity; they need not be low.

    Args:
        y_pred: answers, one per image.
        sensitive: sensitive values, or ``{attribute: values}``; groups are intersections.
        harmful: the classes that should not be answered, such as ``["thief", "criminal"]``.
        values: all sensitive values, also those that do not occur.
        interval: the level of the intervals; None for none.
        clusters: the person or source of each image, if several images come from one.

    Example:
        >>> rates = harm_rate(["man", "thief"] * 50, ["a", "b"] * 50, ["thief"])
        >>> rates["a"].value, rates["b"].value
        (0.0, 1.0)
    """
    return _harm_by_group(
        {"y_pred": y_pred}, sensitive, harmful, values, interval, clusters
    )


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
    """Return the change of `harm_rate` between runs on the same images, ``after - before``.

    Each group has its own paired interval (Bonett and Price, 2012).
    """
    return _harm_by_group(
        {"before": before, "after": after},
        sensitive,
        harmful,
        values,
        interval,
        clusters,
    )


def _harm_by_group(
    runs: Mapping[str, Column],
    sensitive: Sensitive,
    harmful: Collection[Hashable],
    values: Values | None,
    interval: Interval | None,
    clusters: Column | None,
) -> dict[Hashable, Estimate]:
    """Return the share of one run, or its change from the first of two to the second."""
    answers = {argument: read_column(argument, run) for argument, run in runs.items()}
    _check_same_length(answers)
    is_list = isinstance(harmful, Collection) and not isinstance(harmful, str | bytes)
    if not is_list or not len(harmful):
        raise FairTTAError(
            f"`harmful` should be a list of classes (got {harmful!r}).",
            argument="harmful",
        )

    # Answers stand in for the labels, which are not needed.
    all_runs = list(answers.values())
    table = read_answer_table(
        all_runs[0],
        all_runs,
        sensitive,
        None,
        values,
        clusters,
        truth_has_classes=False,
    )
    check_clusters(table.clusters)
    warn_small_groups(table.sizes_by_name(GroupBy.SENSITIVE), stacklevel=4)
    _check_harmful(harmful, table.targets)

    # For each run, the images that got a harmful answer.
    harmful_set = set(harmful)
    class_is_harmful = np.array([name in harmful_set for name in table.targets])
    is_harmful = [class_is_harmful[codes] for codes in table.answers]
    level = None if interval is None else read_interval(interval).level
    estimates: dict[Hashable, Estimate] = {}
    for code, group in enumerate(table.groups):
        in_group = table.group_codes == code
        name = group[0] if len(group) == 1 else group
        estimates[name] = share_estimate(
            table, in_group, level, group_label(*group), *is_harmful
        )
    return estimates


def _check_same_length(answers: Mapping[str, list[Hashable]]) -> None:
    """Raise unless the runs have equally many answers, at least one."""
    first_argument, *other_arguments = answers
    length = len(answers[first_argument])
    if not length:
        raise FairTTAError(
            f"`{first_argument}` should have at least one row (got none).",
            argument=first_argument,
        )
    for argument in other_arguments:
        if len(answers[argument]) != length:
            raise FairTTAError(
                f"`{argument}` should be as long as `{first_argument}`, {length} "
                f"(got {len(answers[argument])}).",
                argument=argument,
            )


def _check_harmful(
    harmful: Collection[Hashable], answers: Collection[Hashable]
) -> None:
    """Warn of classes that are never answered: their rate is 0, also if they are misspelt.

    Raises:
        FairTTAError: such a class reads like an answer, which is then meant.
    """
    answered = set(answers)
    never_answered = [name for name in dict.fromkeys(harmful) if name not in answered]
    if not never_answered:
        return
    # A class in another spelling than the answers would have a rate of 0.
    harmful_names = set(harmful)
    by_spelling = {canonical_spelling(str(answer)): answer for answer in answers}
    for name in never_answered:
        answer = by_spelling.get(canonical_spelling(str(name)))
        if answer is not None and answer not in harmful_names:
            raise FairTTAError(
                f"`harmful` should name classes as answers do (got {name!r}, but answers are "
                f"{answer!r}): use their spelling.",
                argument="harmful",
            )
    absent = list_names([repr(name) for name in never_answered])
    known = list_names([repr(answer) for answer in answers])
    warnings.warn(
        f"no answer is {absent}, which `harmful` names: check how they are written, as answers "
        f"are {known}.",
        UnknownAnswerWarning,
        stacklevel=4,
    )
