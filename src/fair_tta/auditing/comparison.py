"""Two runs on the same images: what stands under "comparisons" in an audit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fair_tta.auditing.scores import Scores
from fair_tta.auditing.summary import CONFIDENCE, NOT_GIVEN, group_name
from fair_tta.metrics import definitions
from fair_tta.metrics.bootstrap import Bootstrap
from fair_tta.metrics.estimate import Estimate, Over, label, listed, undefined
from fair_tta.metrics.exact import images_for_change, mcnemar, paired_interval
from fair_tta.metrics.on_rows import differences, sizes
from fair_tta.metrics.rows import Floats, Rows
from fair_tta.metrics.scores import mean

Mask = npt.NDArray[np.bool_]

COUNTED = (
    definitions.ACCURACY,
    definitions.WORST_GROUP_ACCURACY,
    definitions.WORST_GROUP_ACCURACY_S,
    definitions.BIAS,
    definitions.BIAS_S,
    definitions.EQUALIZED_ODDS,
    definitions.EQUAL_OPPORTUNITY,
    definitions.DEMOGRAPHIC_PARITY,
)
"""The metrics that are functions of answers alone, in the order of audits."""


NOTHING_CHANGED = "no answer changed, so resampling gives no interval"


def against(
    rows: Rows, before: int, after: int, scores: tuple[Scores, Scores], how: Bootstrap
) -> dict[str, Any]:
    """Run `after` minus run `before`, overall and group by group."""
    found = differences(COUNTED, rows, before, after, how)
    by_name = {metric.name: figure for metric, figure in zip(COUNTED, found, strict=True)}
    a, b = scores
    known = a.sensitive_entropy or {}
    by_name[CONFIDENCE] = _change(rows, b.entropy, a.entropy, how)
    everybody = np.ones(len(rows.truth), np.bool_)
    changes = _changes(rows, before, after, everybody, how)
    if not changes["changed"]:  # resampling cannot show a spread: that is no certainty
        by_name |= {
            metric.name: Estimate(figure.value, figure.n, None, None, NOTHING_CHANGED)
            for metric, figure in zip(COUNTED, found, strict=True)
            if not math.isnan(figure.value)
        }
    by_name[definitions.ACCURACY.name] = _difference(changes, how, "")
    return {
        "differences": {name: figure.to_dict() for name, figure in by_name.items()},
        "sensitive_indifference": {
            attribute: _change(rows, known.get(attribute), entropy, how).to_dict()
            for attribute, entropy in (b.sensitive_entropy or {}).items()
        },
        "changes": changes,
        "groups": _groups(rows, before, after, how),
    }


def lone_strata(rows: Rows) -> tuple[str, ...]:
    """A sentence on groups of one image, which resampling cannot vary."""
    alone = [name for name, n in sizes(rows, Over.TARGET_AND_SENSITIVE).items() if n == 1]
    if not alone:
        return ()
    return (
        "One image only, which resampling cannot vary, so paired intervals of worst-group "
        f"accuracy and gaps are too narrow: {listed(alone)}.",
    )


def _change(rows: Rows, less: Floats | None, more: Floats | None, how: Bootstrap) -> Estimate:
    """Mean of ``more - less``, image by image."""
    if less is None or more is None:
        return undefined(NOT_GIVEN)
    strata = rows.group * len(rows.targets) + rows.truth
    return mean(more - less, how.level, least=-1.0, strata=strata)


def _groups(rows: Rows, before: int, after: int, how: Bootstrap) -> list[dict[str, Any]]:
    found = []
    for target in (None, *range(len(rows.targets))):
        for g in range(len(rows.groups)):
            mask = rows.group == g
            name = None if target is None else str(rows.targets[target])
            if target is not None:
                mask = mask & (rows.truth == target)
            changes = _changes(rows, before, after, mask, how)
            values = group_name(rows, g)
            cell = label(*(() if name is None else (name,)), *values.values())
            found.append(
                {
                    "target": name,
                    "sensitive": values,
                    "difference": _difference(changes, how, cell).to_dict(),
                    "changes": changes,
                }
            )
    return found


def _changes(
    rows: Rows, before: int, after: int, mask: Mask, how: Bootstrap
) -> dict[str, int | float | None]:
    a, b, truth = rows.answers[before][mask], rows.answers[after][mask], rows.truth[mask]
    was, now, moved = a == truth, b == truth, a != b
    n, lost, won = len(truth), int((was & ~now).sum()), int((~was & now).sum())
    return {
        "n": n,
        "changed": int(moved.sum()),
        "right_to_wrong": lost,
        "wrong_to_right": won,
        "wrong_to_wrong": int((moved & ~was & ~now).sum()),
        "mcnemar_p": mcnemar(lost, won) if n else None,
        "images_needed": images_for_change(lost, won, n, how.level) if n else None,
    }


def _difference(changes: dict[str, Any], how: Bootstrap, name: str) -> Estimate:
    n, lost, won = changes["n"], changes["right_to_wrong"], changes["wrong_to_right"]
    if n == 0:
        return undefined(f"no images: {name}")
    return Estimate((won - lost) / n, n, *paired_interval(lost, won, n, how.level))
