"""What would have been said without labels, beside what the labels show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fair_tta.auditing.document import Difference, Measured, PerceivedOdds, PerceivedOddsChange
from fair_tta.auditing.scores import Scores
from fair_tta.metrics.bootstrap import Bootstrap
from fair_tta.metrics.definitions import EQUALIZED_ODDS
from fair_tta.metrics.on_rows import differences, estimate
from fair_tta.metrics.perceived_bootstrap import PseudoOdds, pseudo_odds
from fair_tta.metrics.rows import Rows

_SAME = 1e-3  # beliefs of one model on the same images, up to rounding


def perceived_odds(rows: Rows, scores: Scores, how: Bootstrap) -> dict[str, PerceivedOdds] | None:
    """Pseudo-EOD and EOD of the first run, by attribute of the model; None without beliefs."""
    if not _is_known(rows, scores):
        return None
    found = {}
    for attribute in scores.sensitive_zero_shot or ():
        pseudo = _pseudo(rows, [0], scores, attribute, how).runs[0]
        true = None
        if attribute in rows.values:
            alone = by_attribute(rows, attribute)
            true = Measured.of(estimate(EQUALIZED_ODDS, alone, interval=how))
        found[attribute] = PerceivedOdds(Measured.of(pseudo), true)
    return found


def perceived_change(
    rows: Rows, before: int, after: int, scores: tuple[Scores, Scores], how: Bootstrap
) -> dict[str, PerceivedOddsChange] | None:
    """How both change; None without beliefs, or if the two runs come from different models."""
    first, then = scores
    if not _is_known(rows, first) or not _alike(first, then):
        return None
    found = {}
    for attribute in first.sensitive_zero_shot or ():
        pseudo = _pseudo(rows, [before, after], first, attribute, how).changes[0]
        true = None
        if attribute in rows.values:
            alone = by_attribute(rows, attribute)
            true = Difference.of(differences([EQUALIZED_ODDS], alone, before, after, how)[0])
        found[attribute] = PerceivedOddsChange(Difference.of(pseudo), true)
    return found


def by_attribute(rows: Rows, attribute: str) -> Rows:
    """The same images in groups of one attribute alone."""
    sizes = [len(names) for names in rows.values.values()]
    codes = np.unravel_index(rows.group, sizes)
    place = list(rows.values).index(attribute)
    return replace(rows, values={attribute: rows.values[attribute]}, group=codes[place])


def _pseudo(
    rows: Rows, runs: list[int], scores: Scores, attribute: str, how: Bootstrap
) -> PseudoOdds:
    beliefs, sensitive = scores.zero_shot or {}, scores.sensitive_zero_shot or {}
    place = np.array([list(beliefs).index(str(name)) for name in rows.targets])
    target = np.stack(list(beliefs.values()), 1)
    return pseudo_odds(
        [place[rows.answers[run]] for run in runs], target, sensitive[attribute], how
    )


def _is_known(rows: Rows, scores: Scores) -> bool:
    """Whether there are beliefs in the classes of the answers."""
    names = set(map(str, rows.targets))
    return bool(scores.sensitive_zero_shot) and names <= set(scores.zero_shot or ())


def _alike(first: Scores, then: Scores) -> bool:
    """Whether both have the same beliefs."""
    parts = [{**(s.zero_shot or {})} for s in (first, then)]
    more = [{**(s.sensitive_zero_shot or {})} for s in (first, then)]
    return all(
        list(a) == list(b)
        and all(a[k].shape == b[k].shape and np.allclose(a[k], b[k], 0, _SAME) for k in a)
        for a, b in (parts, more)
    )
