"""One run in figures: what stands under "runs" in an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fair_tta.auditing._document import (
    AdapterFields,
    ClassInGroup,
    Cost,
    Difference,
    GapsOfClass,
    GroupFigures,
    GroupName,
    HarmChange,
    HarmRate,
    Measured,
    PerceivedOdds,
    PerceivedOddsChange,
    RelativeSteps,
    RunFigures,
    RunMetrics,
    WorstGroups,
    ZeroShotScores,
)
from fair_tta.errors import FairTTAError
from fair_tta.metrics._bootstrap import Bootstrap
from fair_tta.metrics._calibration import mean
from fair_tta.metrics._columns import Columns, Floats
from fair_tta.metrics._definitions import EQUALIZED_ODDS, METRICS, calibration_of, confidence_of
from fair_tta.metrics._estimate import Over
from fair_tta.metrics._groups import Rates, gaps_of_classes, rate, rates_of_groups
from fair_tta.metrics._harm import change_of, share_of
from fair_tta.metrics._metric import estimates
from fair_tta.metrics._paired import Mask
from fair_tta.metrics._perceived import PseudoOdds, pseudo_odds
from fair_tta.metrics._scores import Scores

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
    columns: Columns, sets: Mapping[str, Sequence[str]], level: float
) -> tuple[HarmRate, ...]:
    """The shares of the first run: of everybody, then of each value of each attribute."""
    return tuple(
        HarmRate(name, group, Measured.of(share_of(bad, mask, level, _called(group))))
        for name, bad in _members(columns, sets, 0)
        for group, mask in _harm_groups(columns)
    )


def harm_against(
    columns: Columns, sets: Mapping[str, Sequence[str]], after: int, level: float
) -> tuple[HarmChange, ...]:
    """How these shares differ between two runs."""
    pairs = zip(_members(columns, sets, 0), _members(columns, sets, after), strict=True)
    return tuple(
        HarmChange(name, group, Difference.of(change_of(was, now, mask, level, _called(group))))
        for (name, was), (_, now) in pairs
        for group, mask in _harm_groups(columns)
    )


def _members(
    columns: Columns, sets: Mapping[str, Sequence[str]], run: int
) -> Iterator[tuple[str, Mask]]:
    for name, classes in sets.items():
        yield name, np.isin(columns.answers[run], [columns.targets.index(one) for one in classes])


def _harm_groups(columns: Columns) -> Iterator[tuple[dict[str, str], Mask]]:
    yield {}, np.ones(len(columns.group), np.bool_)
    groups = columns.groups
    for place, (attribute, values) in enumerate(columns.values.items()):
        for value in values:
            inside = [g for g, group in enumerate(groups) if group[place] == value]
            yield {attribute: str(value)}, np.isin(columns.group, inside)


def _called(group: Mapping[str, str]) -> str:
    return " / ".join(group.values()) or "everybody"


_SAME = 1e-3  # beliefs of one model on the same images, up to rounding


def perceived_odds(columns: Columns, how: Bootstrap) -> dict[str, PerceivedOdds] | None:
    """Pseudo-EOD and EOD of the first run, by attribute of the model; None without beliefs."""
    scores = columns.scores[0]
    if not _is_known(columns, scores):
        return None
    found = {}
    for attribute in scores.sensitive_zero_shot or ():
        pseudo = _pseudo(columns, [0], scores, attribute, how).runs[0]
        true = None
        if attribute in columns.values:
            alone = by_attribute(columns, attribute)
            true = Measured.of(EQUALIZED_ODDS.estimate(alone, 0, how))
        found[attribute] = PerceivedOdds(Measured.of(pseudo), true)
    return found


def perceived_change(
    columns: Columns, after: int, how: Bootstrap
) -> dict[str, PerceivedOddsChange] | None:
    """How both change; None without beliefs, or if the two runs come from different models."""
    first, then = columns.scores[0], columns.scores[after]
    if not _is_known(columns, first) or not _alike(first, then):
        return None
    found = {}
    for attribute in first.sensitive_zero_shot or ():
        pseudo = _pseudo(columns, [0, after], first, attribute, how).changes[0]
        true = None
        if attribute in columns.values:
            alone = by_attribute(columns, attribute)
            true = Difference.of(EQUALIZED_ODDS.difference(alone, 0, after, how))
        found[attribute] = PerceivedOddsChange(Difference.of(pseudo), true)
    return found


def by_attribute(columns: Columns, attribute: str) -> Columns:
    """The same images in groups of one attribute alone."""
    sizes = [len(names) for names in columns.values.values()]
    codes = np.unravel_index(columns.group, sizes)
    place = list(columns.values).index(attribute)
    return replace(columns, values={attribute: columns.values[attribute]}, group=codes[place])


def _pseudo(
    columns: Columns, runs: list[int], scores: Scores, attribute: str, how: Bootstrap
) -> PseudoOdds:
    beliefs, sensitive = scores.zero_shot or {}, scores.sensitive_zero_shot or {}
    place = np.array([list(beliefs).index(str(name)) for name in columns.targets])
    target = np.stack(list(beliefs.values()), 1)
    return pseudo_odds(
        [place[columns.answers[run]] for run in runs], target, sensitive[attribute], how
    )


def _is_known(columns: Columns, scores: Scores) -> bool:
    """Whether there are beliefs in the classes of the answers."""
    names = set(map(str, columns.targets))
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


QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
MOST_WARNINGS = 20  # different warnings of a run


def figures_of_run(
    columns: Columns,
    how: Bootstrap,
    *,
    name: str,
    adapter: AdapterFields | None,
    cost: Cost | None,
    harmful: Mapping[str, Sequence[str]],
) -> RunFigures:
    """The first run of these columns in figures."""
    scores = columns.scores[0]
    found = zip(METRICS, estimates([*METRICS.values()], columns, 0, how), strict=True)
    return RunFigures(
        name=name,
        adapter=adapter,
        metrics=RunMetrics(**{metric: Measured.of(figure) for metric, figure in found}),
        sensitive_indifference=_indifference(scores.sensitive_entropy, how),
        zero_shot_scores=_before(scores, how),
        worst_group=WorstGroups(*(_worst_group(columns, over) for over in Over)),
        classes=tuple(_classes(columns, how)),
        groups=tuple(_groups(columns, how)),
        relative_steps=_steps(scores.relative_step),
        warnings=dict(_count(scores.warnings).most_common(MOST_WARNINGS)),
        cost=cost,
        provenance=None,
        harm=harm_of_run(columns, harmful, how.level),
        perceived=perceived_odds(columns, how),
        median_confidence=_median(scores.confidence),
    )


def _median(confidence: Floats | None) -> float | None:
    return None if confidence is None or not len(confidence) else float(np.median(confidence))


def group_values(columns: Columns, group: int) -> dict[str, str]:
    """``{attribute: value}``."""
    return dict(zip(columns.values, map(str, columns.groups[group]), strict=True))


def _indifference(entropies: Mapping[str, Floats] | None, how: Bootstrap) -> dict[str, Measured]:
    return {a: Measured.of(mean(entropy, how.level)) for a, entropy in (entropies or {}).items()}


def _before(scores: Scores, how: Bootstrap) -> ZeroShotScores | None:
    if scores.entropy_zero_shot is None:
        return None
    return ZeroShotScores(
        Measured.of(confidence_of(scores.entropy_zero_shot, how.level)),
        _indifference(scores.sensitive_entropy_zero_shot, how),
    )


def _worst_group(columns: Columns, over: Over) -> GroupName:
    cell = list(map(str, columns.cells(over)[columns.worst_cell(0, over)]))
    target = None if over is Over.SENSITIVE else cell.pop(0)
    return GroupName(target, dict(zip(columns.values, cell, strict=True)))


def _classes(columns: Columns, how: Bootstrap) -> list[GapsOfClass]:
    n = np.bincount(columns.truth, minlength=len(columns.targets)).tolist()
    table = zip(columns.targets, n, gaps_of_classes(columns, 0, how), strict=True)
    return [GapsOfClass(str(target), count, *_figures(gaps)) for target, count, gaps in table]


def _groups(columns: Columns, how: Bootstrap) -> list[GroupFigures]:
    found = []
    table = zip(columns.counts(0), rates_of_groups(columns, 0, how.level), strict=True)
    for g, (confusion, classes) in enumerate(table):
        name = group_values(columns, g)
        n, correct = int(confusion.sum()), int(confusion.trace())
        found.append(
            GroupFigures(
                sensitive=name,
                n=n,
                correct=correct,
                accuracy=Measured.of(rate(correct, n, how.level, " / ".join(name.values()))),
                calibration_error=Measured.of(calibration_of(columns, 0, how, g)),
                confusion=tuple(map(tuple, confusion.tolist())),
                classes=tuple(
                    ClassInGroup(
                        str(target),
                        rates.true_positive_rate.n,
                        int(confusion[c, c]),
                        *_figures(rates),
                    )
                    for c, (target, rates) in enumerate(zip(columns.targets, classes, strict=True))
                ),
            )
        )
    return found


def _figures(rates: Rates) -> tuple[Measured, Measured, Measured]:
    return (
        Measured.of(rates.true_positive_rate),
        Measured.of(rates.false_positive_rate),
        Measured.of(rates.selection_rate),
    )


def _steps(steps: Floats | None) -> RelativeSteps | None:
    if steps is None:
        return None
    known = steps[np.isfinite(steps)]
    quantiles = zip(QUANTILES, np.quantile(known, QUANTILES).tolist(), strict=True)
    return RelativeSteps(len(known), {f"{q:g}": value for q, value in quantiles})


def _count(warnings: Sequence[Sequence[str]]) -> Counter[str]:
    """On how many images each warning came."""
    return Counter(text for texts in warnings for text in set(texts))
