"""`paired_difference` takes every definition, also those that are no function of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from internals import MetricDefinition

from fair_tta import metrics
from fair_tta.auditing import Scores, audit, compare
from fair_tta.metrics.definitions import METRICS


def drawn(n: int = 400, seed: int = 0) -> dict[str, Any]:
    """Answers of two runs with confidences; the second is less confident."""
    generator = np.random.default_rng(seed)
    truth = np.arange(n) % 2
    group = np.arange(n) // 2 % 2
    confidence = generator.uniform(0.6, 1.0, (2, n))
    confidence[1] = 0.5 + 0.6 * (confidence[1] - 0.5)
    is_right = generator.random(n) < np.where(group == 0, 0.9, 0.7)
    is_right_after = np.where(generator.random(n) < 0.1, ~is_right, is_right)
    entropy = generator.uniform(0.2, 0.8, (2, n))
    scores = tuple(
        Scores(confidence=confidence[run], entropy=entropy[run]) for run in range(2)
    )
    return {
        "y_true": truth.tolist(),
        "before": np.where(is_right, truth, 1 - truth).tolist(),
        "after": np.where(is_right_after, truth, 1 - truth).tolist(),
        "sensitive": group.tolist(),
        "scores": scores,
    }


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_every_definition(metric: MetricDefinition) -> None:
    case = drawn()
    change = metrics.paired_difference(metric, **case)
    assert change.low is not None
    assert change.high is not None
    assert change.low < float(change) < change.high
    assert change.low >= -1
    assert change.high <= 1
    swapped = {
        **case,
        "before": case["after"],
        "after": case["before"],
        "scores": case["scores"][::-1],
    }
    back = metrics.paired_difference(metric, **swapped)
    assert float(back) == pytest.approx(-float(change), abs=1e-12)
    assert back.low == pytest.approx(-change.high, abs=0.02)
    assert back.high == pytest.approx(-change.low, abs=0.02)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_it_is_the_difference_of_both_runs(metric: MetricDefinition) -> None:
    case = drawn()
    change = metrics.paired_difference(metric, **case)
    first, second = (
        audit(case["y_true"], case[name], case["sensitive"], name=name, scores=scores)
        for name, scores in zip(("before", "after"), case["scores"], strict=True)
    )
    expected = float(second.estimate(metric.name)) - float(first.estimate(metric.name))
    assert change.value == pytest.approx(expected, abs=1e-12)
    if metric.is_compared:
        assert compare([first, second]).difference(metric.name, "after") == change


def test_without_scores_there_is_a_reason() -> None:
    case = drawn()
    del case["scores"]
    for metric in (
        metrics.definitions.EXPECTED_CALIBRATION_ERROR,
        metrics.definitions.AVERAGE_TARGET_CONFIDENCE,
    ):
        change = metrics.paired_difference(metric, **case)
        assert change.value is None
        assert change.reason == "not given: no scores were passed"


def test_an_error_that_shrinks_is_seen() -> None:
    """A run that is too sure by 25 points, and one that is calibrated."""
    generator = np.random.default_rng(0)
    sure = generator.uniform(0.6, 0.8, 1000)
    right = generator.random(1000) < sure
    truth = np.arange(1000) % 2
    answers = np.where(right, truth, 1 - truth).tolist()
    runs = Scores(confidence=np.minimum(1.0, sure + 0.25)), Scores(confidence=sure)
    groups = ["a", "b"] * 500
    error = metrics.definitions.EXPECTED_CALIBRATION_ERROR
    change = metrics.paired_difference(
        error, truth.tolist(), answers, answers, groups, scores=runs
    )
    assert change.low is not None
    assert change.high is not None
    assert change.low < -0.24 < change.high < -0.15
