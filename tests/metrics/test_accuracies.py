"""The mean over groups: its value, its interval, and that of its change."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import mean_change_bounds, mean_rate_bounds, paired_bounds

from fair_tta import metrics
from fair_tta.metrics import Estimate, definitions

Z = NormalDist().inv_cdf(0.975)
TARGETS = ["a", "b", "c"]
NAMES = st.sampled_from(TARGETS)
Rows = list[tuple[str, str, str]]
ROWS = st.lists(
    st.tuples(NAMES, NAMES, st.sampled_from(["u", "v"])), min_size=1, max_size=40
)
pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")


@settings(max_examples=40, deadline=None)
@given(ROWS)
def test_it_is_the_mean_over_groups_that_are_there(rows: Rows) -> None:
    columns: Any = tuple(map(list, zip(*rows, strict=True)))
    estimate = metrics.balanced_accuracy(*columns, targets=TARGETS, values=["u", "v"])
    accuracies = []
    absent = []
    for cell in [(y, s) for s in ("u", "v") for y in TARGETS]:
        is_correct = [answer == y for y, answer, s in rows if (y, s) == cell]
        if is_correct:
            accuracies.append(sum(is_correct) / len(is_correct))
        else:
            absent.append(" / ".join(cell))
    assert estimate.value == pytest.approx(sum(accuracies) / len(accuracies))
    assert estimate.n == len(rows)
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 <= estimate.low <= float(estimate) + 1e-12
    assert float(estimate) - 1e-12 <= estimate.high <= 1
    note = f"left out, no images: {', '.join(absent)}" if absent else None
    assert estimate.reason == note
    worst = metrics.worst_group_accuracy(*columns, targets=TARGETS)
    assert float(worst) <= float(estimate) + 1e-12


def test_it_equals_the_worst_group_if_all_fare_alike() -> None:
    columns = ["a", "b"] * 40, ["a", "b", "b", "a"] * 20, ["u"] * 40 + ["v"] * 40
    assert metrics.balanced_accuracy(*columns).value == 0.5
    assert metrics.worst_group_accuracy(*columns).value == 0.5


def test_one_sensitive_value_is_scikit_learns() -> None:
    sklearn: Any = pytest.importorskip("sklearn.metrics")
    y_true, y_pred = np.random.default_rng(0).integers(0, 4, (2, 200))
    estimate = metrics.balanced_accuracy(y_true, y_pred, ["u"] * 200)
    expected = sklearn.balanced_accuracy_score(y_true, y_pred)
    assert estimate.value == pytest.approx(expected)


def test_one_group_has_the_intervals_of_its_rate() -> None:
    """Agresti and Coull's, and Bonett and Price's."""
    rate = (7 + 2) / (10 + 4)
    margin = Z * math.sqrt(rate * (1 - rate) / 14)
    bounds = mean_rate_bounds(np.array([7.0]), np.array([10.0]), 0.95)
    assert bounds == pytest.approx((rate - margin, rate + margin))
    loss, gain, images = np.array([[3.0], [9.0], [40.0]])
    bounds = mean_change_bounds(loss, gain, images, 0.9)
    expected = np.concatenate(paired_bounds(loss, gain, images, 0.9))
    assert bounds == pytest.approx(tuple(expected))


def test_many_equal_groups_by_hand() -> None:
    """Price and Bonett's formula in a loop; with equal groups all of them matter."""
    correct = [3, 5, 9, 10]
    n = 10
    mean = variance = 0.0
    for hits in correct:
        p = (hits + 0.5) / (n + 1)
        mean += p / 4
        variance += p * (1 - p) / (n + 1) / 16
    bounds = mean_rate_bounds(np.array(correct, float), np.full(4, float(n)), 0.95)
    margin = Z * math.sqrt(variance)
    assert bounds == pytest.approx((mean - margin, mean + margin))


def test_one_tiny_group_counts_as_one() -> None:
    """It brings nearly all of the variance, so as much is added as to a group alone."""
    n = np.array([2.0, 1e6, 1e6, 1e6])
    low, high = mean_rate_bounds(np.array([2.0, 9e5, 9e5, 9e5]), n, 0.95)
    low_alone, high_alone = mean_rate_bounds(np.array([2.0]), np.array([2.0]), 0.95)
    assert high - low == pytest.approx((high_alone - low_alone) / 4, rel=0.01)


@pytest.mark.parametrize(
    "sizes", [[4, 400, 200, 300], [5, 5, 5, 5], [8, 60, 60, 60], [40] * 14]
)
def test_intervals_hold(sizes: list[int]) -> None:
    """Where a rare group brings the variance too. ``benchmarks/coverage.py`` has more designs."""
    generator = np.random.default_rng(0)
    n = np.array(sizes, float)
    accuracy = generator.uniform(0.5, 0.95, len(n))
    loss_rate = 0.1 * accuracy
    gain_rate = 0.3 * (1 - accuracy)
    shares = np.stack(
        [accuracy - loss_rate, loss_rate, gain_rate, 1 - accuracy - gain_rate], 1
    )
    held = held_change = 0
    for _ in range(1000):
        stayed, loss, gain, _ = generator.multinomial(sizes, shares).T.astype(float)
        low, high = mean_rate_bounds(stayed + loss, n, 0.95)
        held += low <= accuracy.mean() <= high
        low, high = mean_change_bounds(loss, gain, n, 0.95)
        held_change += low <= (gain_rate - loss_rate).mean() <= high
    assert min(held, held_change) >= 930


def test_a_paired_change_is_narrower_than_two_runs() -> None:
    generator = np.random.default_rng(0)
    y_true, sensitive = generator.integers(0, 2, (2, 400))
    before = np.where(generator.random(400) < 0.7, y_true, 1 - y_true)
    after = np.where(generator.random(400) < 0.05, y_true, before)
    change = metrics.paired_difference(
        definitions.BALANCED_ACCURACY, y_true, before, after, sensitive
    )
    of_before = metrics.balanced_accuracy(y_true, before, sensitive)
    of_after = metrics.balanced_accuracy(y_true, after, sensitive)
    assert float(change) == pytest.approx(float(of_after) - float(of_before))
    assert 0 < width(change) < 0.7 * min(width(of_before), width(of_after))


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low
