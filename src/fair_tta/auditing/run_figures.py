"""One run in figures: what stands under "runs" in an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fair_tta.auditing.document import (
    AdapterFields,
    ClassInGroup,
    Cost,
    GapsOfClass,
    GroupFigures,
    GroupName,
    Measured,
    RelativeSteps,
    RunFigures,
    RunMetrics,
    WorstGroups,
    ZeroShotScores,
)
from fair_tta.auditing.harm_sets import harm_of_run
from fair_tta.auditing.perceived_odds import perceived_odds
from fair_tta.auditing.scores import Scores
from fair_tta.metrics import definitions
from fair_tta.metrics.bootstrap import Bootstrap
from fair_tta.metrics.calibration import BINS, calibration
from fair_tta.metrics.certainty import mean
from fair_tta.metrics.estimate import Over, undefined
from fair_tta.metrics.on_rows import (
    Rates,
    balanced,
    cells,
    estimates,
    gaps_of_classes,
    rate,
    rates_of_groups,
    shortfall,
    worst,
    worst_cell,
)
from fair_tta.metrics.rows import Floats, Rows

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
