"""Two runs on the same images: what stands under "comparisons" in an audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fair_tta.auditing._document import (
    AnswerChanges,
    ComparedGroup,
    Comparison,
    Difference,
    Differences,
)
from fair_tta.auditing._run import NOT_GIVEN, group_values, harm_against, perceived_change
from fair_tta.auditing._scores import Scores
from fair_tta.metrics import _definitions as definitions
from fair_tta.metrics._bootstrap import Bootstrap
from fair_tta.metrics._calibration import mean
from fair_tta.metrics._definitions import Metric
from fair_tta.metrics._estimate import Estimate, direction, label, undefined
from fair_tta.metrics._estimates import differences
from fair_tta.metrics._intervals import holm_errors, images_for_change, mcnemar, paired_interval
from fair_tta.metrics._paired import Mask
from fair_tta.metrics._rows import Floats, Rows

COUNTED = (
    definitions.ACCURACY,
    definitions.BALANCED_ACCURACY,
    definitions.WORST_GROUP_ACCURACY,
    definitions.WORST_GROUP_ACCURACY_S,
    definitions.BIAS,
    definitions.BIAS_S,
    definitions.EQUALIZED_ODDS,
    definitions.EQUAL_OPPORTUNITY,
    definitions.DEMOGRAPHIC_PARITY,
)
"""The metrics that are functions of answers alone, in the order of audits."""

ChangeAt = Callable[[int, Bootstrap], Difference]
"""How a figure of a run, by its place, differs from that of the first."""


def against(
    rows: Rows,
    before: int,
    after: int,
    scores: tuple[Scores, Scores],
    how: Bootstrap,
    *,
    names: tuple[str, str],
    harmful: Mapping[str, Sequence[str]],
    corrected: Sequence[Differences],
) -> Comparison:
    """Run `after` minus run `before`, overall and group by group.

    Args:
        rows: of both runs.
        before: the reference.
        after: the run.
        scores: of both.
        how: intervals are made.
        names: of both.
        harmful: sets of classes.
        corrected: of `corrected_differences`, for all runs that are compared.
    """
    found = differences(COUNTED, rows, before, after, how)
    by_name = {m.name: Difference.of(figure) for m, figure in zip(COUNTED, found, strict=True)}
    a, b = scores
    known = a.sensitive_entropy or {}
    everybody = np.ones(len(rows.truth), np.bool_)
    plain = Differences(**by_name, average_target_confidence=_change(b.entropy, a.entropy, how))
    return Comparison(
        *names,
        differences=plain,
        sensitive_indifference={
            attribute: _change(known.get(attribute), entropy, how)
            for attribute, entropy in (b.sensitive_entropy or {}).items()
        },
        changes=_changes(rows, before, after, everybody, how),
        groups=tuple(_groups(rows, before, after, how)),
        harm=harm_against(rows, harmful, before, after, how.level),
        perceived=perceived_change(rows, before, after, scores, how),
        corrected=corrected[after - 1] if corrected else None,
        compared=len(corrected) or None,
    )


def corrected_differences(
    rows: Rows, scores: Sequence[Scores], how: Bootstrap
) -> list[Differences]:
    """For each run but the first its differences from that, at Holm's levels for all of them.

    Empty if there are fewer than two.
    """
    runs = len(rows.answers) - 1
    if runs < 2:
        return []

    def counted(metric: Metric) -> ChangeAt:
        return lambda run, how: Difference.of(differences([metric], rows, 0, run, how)[0])

    def confidence(run: int, how: Bootstrap) -> Difference:
        return _change(scores[run].entropy, scores[0].entropy, how)

    every = {metric.name: _together(counted(metric), runs, how) for metric in COUNTED}
    every["average_target_confidence"] = _together(confidence, runs, how)
    return [Differences(**{name: found[i] for name, found in every.items()}) for i in range(runs)]


def _together(change: ChangeAt, runs: int, how: Bootstrap) -> list[Difference]:
    """The change of a figure in each run, judged together."""

    def at(place: int, error: float) -> Difference:
        return change(place + 1, replace(how, level=1 - error))

    def is_shown(place: int, error: float) -> bool:
        found = at(place, error)
        return direction(found.low, found.high) != 0

    return [at(*each) for each in enumerate(holm_errors(is_shown, runs, 1 - how.level))]


def _change(less: Floats | None, more: Floats | None, how: Bootstrap) -> Difference:
    """Mean of ``more - less``, image by image."""
    if less is None or more is None:
        return Difference.of(undefined(NOT_GIVEN))
    return Difference.of(mean(more - less, how.level, least=-1.0))


def _groups(rows: Rows, before: int, after: int, how: Bootstrap) -> list[ComparedGroup]:
    found = []
    for target in (None, *range(len(rows.targets))):
        for g in range(len(rows.groups)):
            mask = rows.group == g
            name = None if target is None else str(rows.targets[target])
            if target is not None:
                mask = mask & (rows.truth == target)
            changes = _changes(rows, before, after, mask, how)
            values = group_values(rows, g)
            cell = label(*(() if name is None else (name,)), *values.values())
            difference = Difference.of(_difference(changes, how, cell))
            found.append(ComparedGroup(name, values, difference, changes))
    return found


def _changes(rows: Rows, before: int, after: int, mask: Mask, how: Bootstrap) -> AnswerChanges:
    a, b, truth = rows.answers[before][mask], rows.answers[after][mask], rows.truth[mask]
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
