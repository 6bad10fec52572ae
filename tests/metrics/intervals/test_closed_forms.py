"""Closed forms against scipy and textbooks, and plans against simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import clopper_pearson_bounds, paired_bounds, step_down, wilson

from fair_tta import metrics

stats: Any = pytest.importorskip("scipy.stats")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 3000))
def test_mcnemar_is_the_binomial_test(lost: int, won: int) -> None:
    expected = stats.binomtest(lost, lost + won).pvalue if lost + won else 1.0
    p_value = metrics.mcnemar(lost, won)
    # scipy ends in 0 before the smallest number: at 3e-300 with 10 and 1065
    assert p_value == pytest.approx(expected, rel=1e-7, abs=1e-280)
    assert p_value == metrics.mcnemar(won, lost)


@settings(deadline=None)
@given(st.integers(1, 500), st.data())
def test_wilson_equals_scipy_and_holds_the_rate(n: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, n))
    low, high = wilson(correct, n, 0.9)
    expected = stats.binomtest(correct, n).proportion_ci(0.9, method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= low <= correct / n <= high <= 1
    assert low < high


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_clopper_pearson_equals_scipy(data: st.DataObject) -> None:
    n = data.draw(st.one_of(st.integers(1, 60), st.integers(61, 1_000_000)))
    correct = data.draw(st.integers(0, n))
    level = data.draw(st.sampled_from([0.5, 0.9, 0.95, 0.9975, 0.9999]))
    expected = stats.binomtest(correct, n).proportion_ci(level, "exact")
    bounds = clopper_pearson_bounds(np.array(float(correct)), np.array(float(n)), level)
    assert bounds == pytest.approx((expected.low, expected.high), abs=1e-7)


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_the_worst_of_many_small_groups_that_are_nearly_always_right() -> None:
    """Wilson's ends held the truth here in 84 of 100."""
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 5)
    truth = np.zeros(100, np.int64)
    held = 0
    for _ in range(200):
        answers = (generator.random(100) > 0.97).astype(np.int64)
        worst = metrics.worst_group_accuracy(truth, answers, group, targets=[0, 1])
        assert worst.low is not None
        assert worst.high is not None
        held += worst.low <= 0.97 <= worst.high
    assert held >= 186


def test_the_paired_interval_covers() -> None:
    generator = np.random.default_rng(0)
    for n in (5, 30, 200):
        lost, won, _ = generator.multinomial(n, [0.05, 0.2, 0.75], 2000).T
        low, high = paired_bounds(lost, won, np.full(2000, n), 0.95)
        observed = (won - lost) / n
        assert np.all((low <= observed) & (observed <= high))
        assert np.mean((low <= 0.15) & (high >= 0.15)) > 0.93
    nothing = np.zeros(1)
    low, high = paired_bounds(nothing, nothing, np.array([100.0]), 0.95)
    assert -0.05 < low < 0 < high < 0.05, "no change on 100 images is not certain"


def textbook_rejections(p_values: list[float], error: float) -> set[int]:
    """Holm's procedure from the smallest p-value on, until the first that is too large."""
    rejections = set()
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for step, index in enumerate(order):
        if p_values[index] > error / (len(p_values) - step):
            break
        rejections.add(index)
    return rejections


def holm_errors(p_values: list[float], error: float) -> list[float]:
    """Return the error at which each comparison is judged."""
    judged = step_down(
        len(p_values),
        lambda remaining: error / len(remaining),
        lambda index, share: (share, p_values[index] <= share),
        lambda comparison: comparison[1],
    )
    return [share for share, _ in judged]


@given(st.lists(st.floats(0, 0.2), max_size=9), st.sampled_from([0.01, 0.05, 0.2]))
def test_step_down_is_holms_procedure(p_values: list[float], error: float) -> None:
    errors = holm_errors(p_values, error)
    rejections = {i for i, p in enumerate(p_values) if p <= errors[i]}
    assert rejections == textbook_rejections(p_values, error)
    assert all(error / len(p_values) <= share <= error for share in errors)


def test_a_plan_for_a_change_has_its_power() -> None:
    n = metrics.images_for_change(right_to_wrong=4, wrong_to_right=12, n=100)
    assert n is not None
    generator = np.random.default_rng(0)
    shown = 0
    for lost, won, _ in generator.multinomial(n, [0.04, 0.12, 0.84], 2000).tolist():
        shown += metrics.mcnemar(lost, won) < 0.05
    assert 0.7 < shown / 2000 < 0.87, "the exact test is a little conservative"
    assert metrics.images_for_change(5, 5, 100) is None
    for_more_power = metrics.images_for_change(4, 12, 100, power=0.9)
    assert for_more_power is not None
    assert for_more_power > n


def test_a_plan_for_a_rate_has_its_width() -> None:
    n = metrics.images_for_half_width(0.6, 0.05)
    low, high = wilson(round(0.6 * n), n)
    assert (high - low) / 2 == pytest.approx(0.05, abs=0.002)
    assert metrics.images_for_half_width(1.0, 0.05) == 1
