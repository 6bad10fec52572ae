"""Sets of harmful classes in audits: who is answered with one of them, before and after."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

import numpy as np

from fair_tta.auditing.document import Difference, HarmChange, HarmRate, Measured
from fair_tta.errors import FairTTAError
from fair_tta.metrics.harm import change_of, share_of
from fair_tta.metrics.rows import Rows
from fair_tta.metrics.shifts import Mask

HarmSets = Mapping[str, Sequence[Hashable]] | Sequence[Hashable]
"""Classes that should not be answered, or ``{name of a set: classes}``."""

ONE_SET = "harmful"
"""The name of a set that has none."""


def parse_harmful(harmful: HarmSets | None, targets: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """``{name: classes}`` as text; an error unless they are among the targets."""
    if harmful is None:
        return {}
    if not isinstance(harmful, Mapping):
        harmful = {ONE_SET: harmful}
    sets = {}
    for name, classes in harmful.items():
        is_list = isinstance(classes, Collection) and not isinstance(classes, str | bytes)
        if not is_list or not len(classes):
            raise FairTTAError(
                f"`harmful` should be a list of classes, or {{name: classes}} (got {classes!r})."
            )
        names = tuple(dict.fromkeys(map(str, classes)))
        unknown = [one for one in names if one not in targets]
        if unknown:
            raise FairTTAError(
                f"`harmful` should be among the classes, {list(targets)} (got {unknown})."
            )
        sets[str(name)] = names
    return sets


def harm_of_run(
    rows: Rows, sets: Mapping[str, Sequence[str]], level: float
) -> tuple[HarmRate, ...]:
    """The shares of the first run: of everybody, then of each value of each attribute."""
    return tuple(
        HarmRate(name, group, Measured.of(share_of(bad, mask, level, _called(group))))
        for name, bad in _members(rows, sets, 0)
        for group, mask in _harm_groups(rows)
    )


def harm_against(
    rows: Rows, sets: Mapping[str, Sequence[str]], before: int, after: int, level: float
) -> tuple[HarmChange, ...]:
    """How these shares differ between two runs."""
    pairs = zip(_members(rows, sets, before), _members(rows, sets, after), strict=True)
    return tuple(
        HarmChange(name, group, Difference.of(change_of(was, now, mask, level, _called(group))))
        for (name, was), (_, now) in pairs
        for group, mask in _harm_groups(rows)
    )


def _members(rows: Rows, sets: Mapping[str, Sequence[str]], run: int) -> Iterator[tuple[str, Mask]]:
    for name, classes in sets.items():
        yield name, np.isin(rows.answers[run], [rows.targets.index(one) for one in classes])


def _harm_groups(rows: Rows) -> Iterator[tuple[dict[str, str], Mask]]:
    yield {}, np.ones(len(rows.group), np.bool_)
    groups = rows.groups
    for place, (attribute, values) in enumerate(rows.values.items()):
        for value in values:
            inside = [g for g, group in enumerate(groups) if group[place] == value]
            yield {attribute: str(value)}, np.isin(rows.group, inside)


def _called(group: Mapping[str, str]) -> str:
    return " / ".join(group.values()) or "everybody"
