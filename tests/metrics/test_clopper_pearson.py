from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import clopper_pearson_bounds

from fair_tta.metrics import worst_group_accuracy

stats: Any = pytest.importorskip("scipy.stats")


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_it_is_scipys_exact_interval(data: st.DataObject) -> None:
    n = data.draw(st.one_of(st.integers(1, 60), st.integers(61, 20_000)))
    correct = data.draw(st.integers(0, n))
    level = data.draw(st.sampled_from([0.5, 0.9, 0.95, 0.9975, 0.9999]))
    expected = stats.binomtest(correct, n).proportion_ci(level, "exact")
    right, images = np.array([correct, n], float)
    found = clopper_pearson_bounds(right, images, level)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-7)


def test_a_million_images() -> None:
    expected = stats.binomtest(700_123, 1_000_000).proportion_ci(0.999, "exact")
    right, images = np.array([700_123.0, 1_000_000.0])
    found = clopper_pearson_bounds(right, images, 0.999)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-7)


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_many_small_groups_that_are_nearly_always_right() -> None:
    """Wilson's ends held the truth here in 84 of 100."""
    chance = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 5)
    truth = np.zeros(100, np.int64)
    held = 0
    for _ in range(200):
        answers = (chance.random(100) > 0.97).astype(np.int64)
        found = worst_group_accuracy(truth, answers, group, targets=[0, 1])
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.97 <= found.high
    assert held >= 186
