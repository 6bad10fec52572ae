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
from fair_tta.auditing._scores import Scores
from fair_tta.errors import FairTTAError
from fair_tta.metrics import _definitions as definitions
from fair_tta.metrics._bootstrap import Bootstrap
from fair_tta.metrics._calibration import BINS, calibration, mean
from fair_tta.metrics._definitions import EQUALIZED_ODDS
from fair_tta.metrics._estimate import Over, undefined
from fair_tta.metrics._estimates import (
    Rates,
    balanced,
    cells,
    differences,
    estimate,
    estimates,
    gaps_of_classes,
    rate,
    rates_of_groups,
    shortfall,
    worst,
    worst_cell,
)
from fair_tta.metrics._harm import change_of, share_of
from fair_tta.metrics._paired import Mask
from fair_tta.metrics._perceived import PseudoOdds, pseudo_odds
from fair_tta.metrics._rows import Floats, Rows

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


QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
MOST_WARNINGS = 20  # different warnings of a run
NOT_GIVEN = "not given: no scores were passed"


def figures_of_run(
    rows: Rows,
    scores: Scores,
    how: Bootstrap,
    *,
    name: str,
    adapter: AdapterFields | None,
    cost: Cost | None,
    harmful: Mapping[str, Sequence[str]],
) -> RunFigures:
    """The first run of these rows in figures."""
    drawn = (
        definitions.ACCURACY,
        definitions.EQUALIZED_ODDS,
        definitions.EQUAL_OPPORTUNITY,
        definitions.DEMOGRAPHIC_PARITY,
    )
    accuracy, odds, opportunity, parity = map(Measured.of, estimates(drawn, rows, 0, how))
    return RunFigures(
        name=name,
        adapter=adapter,
        metrics=RunMetrics(
            accuracy=accuracy,
            balanced_accuracy=Measured.of(balanced(rows, 0, how.level)),
            worst_group_accuracy=Measured.of(worst(rows, 0, Over.TARGET_AND_SENSITIVE, how.level)),
            worst_group_accuracy_s=Measured.of(worst(rows, 0, Over.SENSITIVE, how.level)),
            bias=Measured.of(shortfall(rows, 0, Over.TARGET_AND_SENSITIVE, how.level)),
            bias_s=Measured.of(shortfall(rows, 0, Over.SENSITIVE, how.level)),
            equalized_odds_difference=odds,
            equal_opportunity_difference=opportunity,
            demographic_parity_difference=parity,
            average_target_confidence=_confidence(scores.entropy, how),
            expected_calibration_error=_calibration(rows, scores, how),
        ),
        sensitive_indifference=_indifference(scores.sensitive_entropy, how),
        zero_shot_scores=_before(scores, how),
        worst_group=WorstGroups(*(_worst_group(rows, over) for over in Over)),
        classes=tuple(_classes(rows, how)),
        groups=tuple(_groups(rows, scores, how)),
        relative_steps=_steps(scores.relative_step),
        warnings=dict(_count(scores.warnings).most_common(MOST_WARNINGS)),
        cost=cost,
        provenance=None,
        harm=harm_of_run(rows, harmful, how.level),
        perceived=perceived_odds(rows, scores, how),
        median_confidence=_median(scores.confidence),
    )


def _confidence(entropy: Floats | None, how: Bootstrap) -> Measured:
    """ATC, if entropies are known."""
    return Measured.of(undefined(NOT_GIVEN) if entropy is None else mean(1 - entropy, how.level))


def _median(confidence: Floats | None) -> float | None:
    return None if confidence is None or not len(confidence) else float(np.median(confidence))


def group_values(rows: Rows, group: int) -> dict[str, str]:
    """``{attribute: value}``."""
    return dict(zip(rows.values, map(str, rows.groups[group]), strict=True))


def _calibration(rows: Rows, scores: Scores, how: Bootstrap, group: int | None = None) -> Measured:
    if scores.confidence is None:
        return Measured.of(undefined(NOT_GIVEN))
    some = slice(None) if group is None else rows.group == group
    right = rows.truth[some] == rows.answers[0][some]
    return Measured.of(calibration(right, scores.confidence[some], BINS, how))


def _indifference(entropies: Mapping[str, Floats] | None, how: Bootstrap) -> dict[str, Measured]:
    return {a: Measured.of(mean(entropy, how.level)) for a, entropy in (entropies or {}).items()}


def _before(scores: Scores, how: Bootstrap) -> ZeroShotScores | None:
    if scores.entropy_zero_shot is None:
        return None
    return ZeroShotScores(
        _confidence(scores.entropy_zero_shot, how),
        _indifference(scores.sensitive_entropy_zero_shot, how),
    )


def _worst_group(rows: Rows, over: Over) -> GroupName:
    cell = list(map(str, cells(rows, over)[worst_cell(rows, 0, over)]))
    target = None if over is Over.SENSITIVE else cell.pop(0)
    return GroupName(target, dict(zip(rows.values, cell, strict=True)))


def _classes(rows: Rows, how: Bootstrap) -> list[GapsOfClass]:
    n = np.bincount(rows.truth, minlength=len(rows.targets)).tolist()
    table = zip(rows.targets, n, gaps_of_classes(rows, 0, how), strict=True)
    return [GapsOfClass(str(target), count, *_figures(gaps)) for target, count, gaps in table]


def _groups(rows: Rows, scores: Scores, how: Bootstrap) -> list[GroupFigures]:
    found = []
    table = zip(rows.counts(0), rates_of_groups(rows, 0, how.level), strict=True)
    for g, (confusion, classes) in enumerate(table):
        name = group_values(rows, g)
        n, correct = int(confusion.sum()), int(confusion.trace())
        found.append(
            GroupFigures(
                sensitive=name,
                n=n,
                correct=correct,
                accuracy=Measured.of(rate(correct, n, how.level, " / ".join(name.values()))),
                calibration_error=_calibration(rows, scores, how, g),
                confusion=tuple(map(tuple, confusion.tolist())),
                classes=tuple(
                    ClassInGroup(
                        str(target),
                        rates.true_positive_rate.n,
                        int(confusion[c, c]),
                        *_figures(rates),
                    )
                    for c, (target, rates) in enumerate(zip(rows.targets, classes, strict=True))
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
