"""One run in figures: what stands under "runs" in an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fair_tta.auditing.scores import Scores
from fair_tta.metrics import definitions
from fair_tta.metrics.bootstrap import Bootstrap
from fair_tta.metrics.estimate import Estimate, Over, undefined
from fair_tta.metrics.on_rows import (
    Rates,
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
from fair_tta.metrics.scores import BINS, calibration, mean

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
MOST = 20  # different warnings of a run
NOT_GIVEN = "not given: no scores were passed"

CONFIDENCE = "average_target_confidence"
CALIBRATION = "expected_calibration_error"


def summarise(rows: Rows, run: int, scores: Scores, how: Bootstrap) -> dict[str, Any]:
    """Figures of one run, all but its name, adapter and cost."""
    drawn = (
        definitions.ACCURACY,
        definitions.EQUALIZED_ODDS,
        definitions.EQUAL_OPPORTUNITY,
        definitions.DEMOGRAPHIC_PARITY,
    )
    accuracy, odds, opportunity, parity = estimates(drawn, rows, run, how)
    figures = {
        "accuracy": accuracy,
        "worst_group_accuracy": worst(rows, run, Over.TARGET_AND_SENSITIVE, how.level),
        "worst_group_accuracy_s": worst(rows, run, Over.SENSITIVE, how.level),
        "bias": shortfall(rows, run, Over.TARGET_AND_SENSITIVE, how.level),
        "bias_s": shortfall(rows, run, Over.SENSITIVE, how.level),
        "equalized_odds_difference": odds,
        "equal_opportunity_difference": opportunity,
        "demographic_parity_difference": parity,
        CONFIDENCE: confidence(scores.entropy, how),
        CALIBRATION: _calibration(rows, run, scores, how),
    }
    return {
        "metrics": {name: figure.to_dict() for name, figure in figures.items()},
        "sensitive_indifference": _indifference(scores.sensitive_entropy, how),
        "zero_shot_scores": _before(scores, how),
        "worst_group": {over.value: _worst_group(rows, run, over) for over in Over},
        "classes": _classes(rows, run, how),
        "groups": _groups(rows, run, scores, how),
        "relative_steps": _steps(scores.relative_step),
        "warnings": dict(_count(scores.warnings).most_common(MOST)),
    }


def confidence(entropy: Floats | None, how: Bootstrap) -> Estimate:
    """ATC, if entropies are known."""
    return undefined(NOT_GIVEN) if entropy is None else mean(1 - entropy, how.level)


def group_name(rows: Rows, group: int) -> dict[str, str]:
    """``{attribute: value}``."""
    return dict(zip(rows.values, map(str, rows.groups[group]), strict=True))


def _calibration(
    rows: Rows, run: int, scores: Scores, how: Bootstrap, group: int | None = None
) -> Estimate:
    if scores.confidence is None:
        return undefined(NOT_GIVEN)
    some = slice(None) if group is None else rows.group == group
    right = rows.truth[some] == rows.answers[run][some]
    return calibration(right, scores.confidence[some], BINS, how)


def _indifference(entropies: Mapping[str, Floats] | None, how: Bootstrap) -> dict[str, Any]:
    return {a: mean(entropy, how.level).to_dict() for a, entropy in (entropies or {}).items()}


def _before(scores: Scores, how: Bootstrap) -> dict[str, Any] | None:
    if scores.entropy_zero_shot is None:
        return None
    return {
        CONFIDENCE: confidence(scores.entropy_zero_shot, how).to_dict(),
        "sensitive_indifference": _indifference(scores.sensitive_entropy_zero_shot, how),
    }


def _worst_group(rows: Rows, run: int, over: Over) -> dict[str, Any]:
    at = worst_cell(rows, run, over)
    cell = list(map(str, cells(rows, over)[at]))
    target = None if over is Over.SENSITIVE else cell.pop(0)
    return {"target": target, "sensitive": dict(zip(rows.values, cell, strict=True))}


def _classes(rows: Rows, run: int, how: Bootstrap) -> list[dict[str, Any]]:
    n = np.bincount(rows.truth, minlength=len(rows.targets))
    return [
        {
            "target": str(target),
            "n": int(n[c]),
            "tpr_gap": gaps.true_positive_rate.to_dict(),
            "fpr_gap": gaps.false_positive_rate.to_dict(),
            "selection_gap": gaps.selection_rate.to_dict(),
        }
        for c, (target, gaps) in enumerate(
            zip(rows.targets, gaps_of_classes(rows, run, how), strict=True)
        )
    ]


def _groups(rows: Rows, run: int, scores: Scores, how: Bootstrap) -> list[dict[str, Any]]:
    counts = rows.counts(run)
    table = rates_of_groups(rows, run, how.level)
    found = []
    for g, confusion in enumerate(counts):
        name = group_name(rows, g)
        n, correct = int(confusion.sum()), int(confusion.trace())
        found.append(
            {
                "sensitive": name,
                "n": n,
                "correct": correct,
                "accuracy": rate(correct, n, how.level, " / ".join(name.values())).to_dict(),
                "calibration_error": _calibration(rows, run, scores, how, g).to_dict(),
                "confusion": confusion.tolist(),
                "classes": [
                    _cell(str(target), rates, int(confusion[c, c]))
                    for c, (target, rates) in enumerate(zip(rows.targets, table[g], strict=True))
                ],
            }
        )
    return found


def _cell(target: str, rates: Rates, correct: int) -> dict[str, Any]:
    return {
        "target": target,
        "n": rates.true_positive_rate.n,
        "correct": correct,
        "true_positive_rate": rates.true_positive_rate.to_dict(),
        "false_positive_rate": rates.false_positive_rate.to_dict(),
        "selection_rate": rates.selection_rate.to_dict(),
    }


def _steps(steps: Floats | None) -> dict[str, Any] | None:
    if steps is None:
        return None
    known = steps[np.isfinite(steps)]
    quantiles = np.quantile(known, QUANTILES).tolist()
    return {
        "n": len(known),
        "quantiles": {f"{q:g}": value for q, value in zip(QUANTILES, quantiles, strict=True)},
    }


def _count(warnings: Sequence[Sequence[str]]) -> Counter[str]:
    """On how many images each warning came."""
    return Counter(text for texts in warnings for text in set(texts))
