"""The mean over groups: its value, its interval, and that of its change."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import mean_change_bounds, mean_rate_bounds, paired_bounds

from fair_tta import metrics
from fair_tta.errors import SmallGroupWarning
from fair_tta.metrics import Bootstrap, definitions

Case = list[tuple[str, str, str]]
ROWS = st.lists(
    st.tuples(
        *(
            st.sampled_from(names)
            for names in (["a", "b", "c"], ["a", "b", "c"], ["u", "v"])
        )
    ),
    min_size=1,
    max_size=40,
)


@pytest.fixture(autouse=True)
def _small_groups_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        yield


@settings(max_examples=40, deadline=None)
@given(ROWS)
def test_it_is_the_mean_over_groups_that_are_there(rows: Case) -> None:
    columns: Any = tuple(map(list, zip(*rows, strict=True)))
    found = metrics.balanced_accuracy(
        *columns, targets=["a", "b", "c"], values=["u", "v"]
    )
    shares, absent = [], []
    for s in ("u", "v"):
        for y in ("a", "b", "c"):
            right = [p == t for t, p, g in rows if (t, g) == (y, s)]
            if right:
                shares.append(sum(right) / len(right))
            else:
                absent.append(f"{y} / {s}")
    assert found.value == pytest.approx(sum(shares) / len(shares))
    assert found.n == len(rows)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= float(found) + 1e-12
    assert float(found) - 1e-12 <= found.high <= 1
    assert (found.reason or "") == (
        f"left out, no images: {', '.join(absent)}" if absent else ""
    )
    worst = metrics.worst_group_accuracy(*columns, targets=["a", "b", "c"])
    assert float(worst) <= float(found) + 1e-12


def test_it_equals_the_worst_group_if_all_fare_alike() -> None:
    y_true, sensitive = ["a", "b"] * 40, ["u"] * 40 + ["v"] * 40
    y_pred = ["a", "b", "b", "a"] * 20
    found = metrics.balanced_accuracy(y_true, y_pred, sensitive)
    assert (
        found.value
        == metrics.worst_group_accuracy(y_true, y_pred, sensitive).value
        == 0.5
    )


def test_one_sensitive_value_is_scikit_learns() -> None:
    sklearn: Any = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    y_true, y_pred = generator.integers(0, 4, (2, 200))
    found = metrics.balanced_accuracy(y_true, y_pred, ["u"] * 200)
    assert found.value == pytest.approx(sklearn.balanced_accuracy_score(y_true, y_pred))


def test_one_group_has_the_intervals_of_its_rate() -> None:
    """Agresti and Coull's, and Bonett and Price's."""
    z = NormalDist().inv_cdf(0.975)
    rate = (7 + 2) / (10 + 4)
    half = z * math.sqrt(rate * (1 - rate) / 14)
    ends = mean_rate_bounds(np.array([7.0]), np.array([10.0]), 0.95)
    assert ends == pytest.approx((rate - half, rate + half))
    ends = mean_change_bounds(np.array([3.0]), np.array([9.0]), np.array([40.0]), 0.9)
    loss, gain, images = np.array([3.0, 9.0, 40.0])
    assert ends == pytest.approx(paired_bounds(loss, gain, images, 0.9))


def test_many_equal_groups_by_hand() -> None:
    """Price and Bonett's formula in a loop; with equal groups all of them matter."""
    z, right, n = NormalDist().inv_cdf(0.975), [3, 5, 9, 10], 10
    middle = variance = 0.0
    for r in right:
        p = (r + 0.5) / (n + 1)
        middle += p / 4
        variance += p * (1 - p) / (n + 1) / 16
    ends = mean_rate_bounds(np.array(right, np.float64), np.full(4, float(n)), 0.95)
    expected = middle - z * math.sqrt(variance), middle + z * math.sqrt(variance)
    assert ends == pytest.approx(expected)


def test_one_tiny_group_counts_as_one() -> None:
    """It brings nearly all of the variance, so as much is added as to a group alone."""
    n = np.array([2.0, 1e6, 1e6, 1e6])
    ends = mean_rate_bounds(np.array([2.0, 9e5, 9e5, 9e5]), n, 0.95)
    alone = mean_rate_bounds(np.array([2.0]), np.array([2.0]), 0.95)
    assert ends[1] - ends[0] == pytest.approx((alone[1] - alone[0]) / 4, rel=0.01)


@pytest.mark.parametrize(
    "sizes", [[4, 400, 200, 300], [5, 5, 5, 5], [8, 60, 60, 60], [40] * 14]
)
def test_intervals_hold(sizes: list[int]) -> None:
    """Where a rare group brings the variance too. ``benchmarks/coverage.py`` has more designs."""
    generator = np.random.default_rng(0)
    n = np.array(sizes)
    right = generator.uniform(0.5, 0.95, len(n))
    lost, won = 0.1 * right, 0.3 * (1 - right)
    held = np.zeros(2)
    for _ in range(1000):
        table = np.array(
            [
                generator.multinomial(m, [r - a, a, b, 1 - r - b])
                for m, r, a, b in zip(n, right, lost, won, strict=True)
            ]
        )
        both, loss, gain = (table[:, k].astype(np.float64) for k in range(3))
        ends = mean_rate_bounds(both + loss, n.astype(np.float64), 0.95)
        held[0] += ends[0] <= right.mean() <= ends[1]
        ends = mean_change_bounds(loss, gain, n.astype(np.float64), 0.95)
        held[1] += ends[0] <= (won - lost).mean() <= ends[1]
    assert held.min() >= 930


def test_a_change_that_is_paired_is_narrower_than_two_runs() -> None:
    generator = np.random.default_rng(0)
    y_true, sensitive = generator.integers(0, 2, (2, 400))
    before = np.where(generator.random(400) < 0.7, y_true, 1 - y_true)
    after = np.where(generator.random(400) < 0.05, y_true, before)
    change = metrics.paired_difference(
        definitions.BALANCED_ACCURACY,
        y_true,
        before,
        after,
        sensitive,
        interval=Bootstrap(),
    )
    runs = [
        metrics.balanced_accuracy(y_true, some, sensitive) for some in (before, after)
    ]
    assert float(change) == pytest.approx(float(runs[1]) - float(runs[0]))
    widths = [(f.high or 0) - (f.low or 0) for f in (change, *runs)]
    assert 0 < widths[0] < 0.7 * min(widths[1:])
