"""Closed forms against scipy, and plans against simulation."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import paired_bounds, wilson

from fair_tta import metrics
from fair_tta.errors import FairTTAError

stats: Any = pytest.importorskip("scipy.stats")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 3000))
def test_mcnemar_is_the_binomial_test(a: int, b: int) -> None:
    expected = stats.binomtest(a, a + b).pvalue if a + b else 1.0
    # scipy ends in 0 before the smallest number: at 3e-300 with a = 10, b = 1065
    assert metrics.mcnemar(a, b) == pytest.approx(expected, rel=1e-7, abs=1e-280)
    assert metrics.mcnemar(a, b) == metrics.mcnemar(b, a)


@settings(deadline=None)
@given(st.integers(1, 500), st.data())
def test_wilson_equals_scipy_and_holds_the_rate(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = wilson(k, n, 0.9)
    expected = stats.binomtest(k, n).proportion_ci(0.9, method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= low <= k / n <= high <= 1
    assert low < high


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
    assert -0.05 < low < 0 < high < 0.05  # nothing seen is not nothing


def test_a_plan_for_a_change_has_its_power() -> None:
    n = metrics.images_for_change(right_to_wrong=4, wrong_to_right=12, n=100)
    assert n is not None
    generator = np.random.default_rng(0)
    lost, won, _ = generator.multinomial(n, [0.04, 0.12, 0.84], 2000).T
    found = np.mean(
        [metrics.mcnemar(int(a), int(b)) < 0.05 for a, b in zip(lost, won, strict=True)]
    )
    assert 0.7 < found < 0.87  # the exact test is a little conservative
    assert metrics.images_for_change(5, 5, 100) is None
    more = metrics.images_for_change(4, 12, 100, power=0.9)
    assert more is not None
    assert more > n


def test_a_plan_for_a_rate_has_its_width() -> None:
    n = metrics.images_for_half_width(0.6, 0.05)
    low, high = wilson(round(0.6 * n), n)
    assert (high - low) / 2 == pytest.approx(0.05, abs=0.002)
    assert metrics.images_for_half_width(1.0, 0.05) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: wilson(3, 2),
            "`correct` should lie from 0 to a positive `n` (got 3 of 2).",
        ),
        (
            lambda: wilson(0, 0),
            "`correct` should lie from 0 to a positive `n` (got 0 of 0).",
        ),
        (
            lambda: wilson(-1, 3),
            "`correct` should lie from 0 to a positive `n` (got -1 of 3).",
        ),
        (
            lambda: metrics.images_for_change(3, 2, 4),
            "changes should be counts of at most `n` images in all (got 3 and 2 of 4).",
        ),
        (
            lambda: metrics.images_for_half_width(1.2, 0.1),
            "`rate` should lie between 0 and 1 (got 1.2).",
        ),
        (
            lambda: metrics.images_for_half_width(0.5, 0.0),
            "`half_width` should lie between 0 and 1 (got 0.0).",
        ),
        (
            lambda: metrics.images_for_change(1, 2, 9, power=1.0),
            "`power` should lie between 0 and 1 (got 1.0).",
        ),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(FairTTAError) as error:
        call()
    assert str(error.value) == message


def test_the_papers_tables_agree_with_our_definitions() -> None:
    """Bias = accuracy - worst-group accuracy <= everything, in all cells but the suspect ones."""
    folder = Path(__file__).parents[2] / "benchmarks" / "paper"
    text = (folder / "printed_tables.csv").read_text("utf-8")
    cells = list(csv.DictReader(text.splitlines()))
    assert len(cells) == 1091
    broken = 0
    for cell in cells:
        names = "accuracy", "worst_group_accuracy", "bias", "equalized_odds_difference"
        accuracy, worst, bias, odds = (float(cell[name]) for name in names)
        assert worst <= accuracy
        assert 0 <= odds <= 100
        agrees = abs(accuracy - worst - bias) <= 0.15 + 1e-9
        assert agrees or cell["suspect"], cell
        broken += not agrees
        if {"worst_group_accuracy", "bias"} & set(cell["suspect"].split()):
            assert not agrees, cell
    assert broken == 6
