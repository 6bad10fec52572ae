"""Two runs on the same images: what stands under "comparisons" in an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fair_tta.auditing._document import (
    AnswerChanges,
    ComparedGroup,
    Comparison,
    Difference,
    Differences,
)
from fair_tta.auditing._run import group_values, harm_against, perceived_change
from fair_tta.metrics._bootstrap import Bootstrap
from fair_tta.metrics._columns import Columns
from fair_tta.metrics._definitions import METRICS, mean_change
from fair_tta.metrics._estimate import Estimate, direction, label, undefined
from fair_tta.metrics._intervals import holm_errors, images_for_change, mcnemar, paired_interval
from fair_tta.metrics._metric import Figure, differences
from fair_tta.metrics._paired import Mask


def against(
    columns: Columns,
    after: int,
    how: Bootstrap,
    *,
    names: tuple[str, str],
    harmful: Mapping[str, Sequence[str]],
    corrected: Sequence[Differences],
) -> Comparison:
    """Run `after` minus the first run, overall and group by group.

    Args:
        columns: of all runs.
        after: the run.
        how: intervals are made.
        names: of the first run and of this one.
        harmful: sets of classes.
        corrected: of `corrected_differences`, for all runs that are compared.
    """
    metrics = _compared()
    changes = differences(metrics, columns, 0, after, how)
    found = {m.name: Difference.of(change) for m, change in zip(metrics, changes, strict=True)}
    a, b = columns.scores[0], columns.scores[after]
    known = a.sensitive_entropy or {}
    everybody = np.ones(len(columns.truth), np.bool_)
    return Comparison(
        *names,
        differences=Differences(**found),
        sensitive_indifference={
            attribute: Difference.of(mean_change(known.get(attribute), entropy, how.level))
            for attribute, entropy in (b.sensitive_entropy or {}).items()
        },
        changes=_changes(columns, after, everybody, how),
        groups=tuple(_groups(columns, after, how)),
        harm=harm_against(columns, harmful, after, how.level),
        perceived=perceived_change(columns, after, how),
        corrected=corrected[after - 1] if corrected else None,
        compared=len(corrected) or None,
    )


def corrected_differences(columns: Columns, how: Bootstrap) -> list[Differences]:
    """For each run but the first its differences from that, at Holm's levels for all of them.

    Empty if there are fewer than two.
    """
    runs = len(columns.answers) - 1
    if runs < 2:
        return []
    every = {metric.name: _together(metric, columns, runs, how) for metric in _compared()}
    return [Differences(**{name: found[i] for name, found in every.items()}) for i in range(runs)]


def _compared() -> list[Figure]:
    return [metric for metric in METRICS.values() if metric.is_compared]


def _together(metric: Figure, columns: Columns, runs: int, how: Bootstrap) -> list[Difference]:
    """The change of a figure in each run, judged together."""

    def at(place: int, error: float) -> Difference:
        level = replace(how, level=1 - error)
        return Difference.of(metric.difference(columns, 0, place + 1, level))

    def is_shown(place: int, error: float) -> bool:
        found = at(place, error)
        return direction(found.low, found.high) != 0

    return [at(*each) for each in enumerate(holm_errors(is_shown, runs, 1 - how.level))]


def _groups(columns: Columns, after: int, how: Bootstrap) -> list[ComparedGroup]:
    found = []
    for target in (None, *range(len(columns.targets))):
        for g in range(len(columns.groups)):
            mask = columns.group == g
            name = None if target is None else str(columns.targets[target])
            if target is not None:
                mask = mask & (columns.truth == target)
            changes = _changes(columns, after, mask, how)
            values = group_values(columns, g)
            cell = label(*(() if name is None else (name,)), *values.values())
            difference = Difference.of(_difference(changes, how, cell))
            found.append(ComparedGroup(name, values, difference, changes))
    return found


def _changes(columns: Columns, after: int, mask: Mask, how: Bootstrap) -> AnswerChanges:
    a, b, truth = columns.answers[0][mask], columns.answers[after][mask], columns.truth[mask]
    was, now, moved = a == truth, b == truth, a != b
    n, lost, won = len(truth), int((was & ~now).sum()), int((~was & now).sum())
    return AnswerChanges(
        n=n,
        changed=int(moved.sum()),
        right_to_wrong=lost,
        wrong_to_right=won,
        wrong_to_wrong=int((moved & ~was & ~now).sum()),
        mcnemar_p=mcnemar(lost, won) if n else None,
        images_needed=images_for_change(lost, won, n, how.level) if n else None,
    )


def _difference(changes: AnswerChanges, how: Bootstrap, name: str) -> Estimate:
    n, lost, won = changes.n, changes.right_to_wrong, changes.wrong_to_right
    if n == 0:
        return undefined(f"no images: {name}")
    return Estimate((won - lost) / n, n, *paired_interval(lost, won, n, how.level))
