"""Figures without labels against explicit loops, and what they are with certain beliefs."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from internals import (
    Floats,
    Ints,
    pseudo_equalized_odds_difference,
    pseudo_odds,
    pseudo_rates,
    r_squared,
)

from fair_tta import metrics
from fair_tta.errors import SmallGroupWarning
from fair_tta.metrics import Bootstrap

Case = tuple[Ints, Floats, Floats]


@st.composite
def cases(draw: st.DrawFn, certain: bool = False) -> Case:
    """Answers, q and w of a few images; beliefs may be certain or nearly so."""
    n, classes, values = (
        draw(st.integers(*ends)) for ends in ((1, 25), (2, 4), (2, 4))
    )
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    sharp = draw(st.sampled_from([0.0, 1.0, 10.0, 200.0]))

    def beliefs(k: int) -> Floats:
        if certain:
            return np.eye(k)[generator.integers(0, k, n)]
        return softmax(sharp * generator.normal(size=(n, k)))

    return generator.integers(0, classes, n), beliefs(classes), beliefs(values)


def softmax(logits: Floats) -> Floats:
    e = np.exp(logits - logits.max(1, keepdims=True))
    whole: Floats = e / e.sum(1, keepdims=True)
    return whole


def loops(
    answers: Ints, q: Floats, w: Floats
) -> tuple[list[list[float]], list[list[float]]]:
    """The formulas of the rates, written out."""
    tables: tuple[list[list[float]], list[list[float]]] = [], []
    for s in range(w.shape[1]):
        for table, is_hit in zip(tables, (True, False), strict=True):
            row = []
            for y in range(q.shape[1]):
                top = bottom = 0.0
                for i, answer in enumerate(answers):
                    weight = w[i][s] * (q[i][y] if is_hit else max(0.0, 1 - q[i][y]))
                    top += weight * (answer == y)
                    bottom += weight
                row.append(top / bottom if bottom > 0 else math.nan)
            table.append(row)
    return tables


def looped_difference(answers: Ints, q: Floats, w: Floats) -> float:
    gaps = []
    for y in range(q.shape[1]):
        larger = []
        for table in loops(answers, q, w):
            known = [row[y] for row in table if not math.isnan(row[y])]
            larger.append(max(known) - min(known) if len(known) > 1 else math.nan)
        if not any(map(math.isnan, larger)):
            gaps.append(max(larger))
    return sum(gaps) / len(gaps) if gaps else math.nan


@given(cases())
def test_rates_and_their_gap_by_hand(case: Case) -> None:
    found = pseudo_rates(*case)
    for rates, expected in zip(found, loops(*case), strict=True):
        np.testing.assert_allclose(rates, expected, atol=1e-9)
    value = pseudo_equalized_odds_difference(*case)
    assert value == pytest.approx(looped_difference(*case), abs=1e-9, nan_ok=True)
    assert math.isnan(value) or 0 <= value <= 1


@given(cases(certain=True))
def test_certain_beliefs_are_labels(case: Case) -> None:
    answers, q, w = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        labelled = metrics.equalized_odds_difference(
            q.argmax(1), answers, w.argmax(1),
            targets=range(q.shape[1]), values=range(w.shape[1]),
        )  # fmt: skip
    value = pseudo_equalized_odds_difference(answers, q, w)
    assert value == pytest.approx(float(labelled), abs=1e-12, nan_ok=True)


@given(cases(), st.randoms(use_true_random=False))
def test_order_and_names_do_not_matter(case: Case, random: Any) -> None:
    answers, q, w = case
    classes, values, images = (
        random.sample(range(k), k) for k in (q.shape[1], w.shape[1], len(answers))
    )
    moved = (
        np.argsort(classes)[answers][images],
        q[images][:, classes],
        w[images][:, values],
    )
    once, again = (pseudo_equalized_odds_difference(*of) for of in (case, moved))
    assert again == pytest.approx(once, abs=1e-9, nan_ok=True)
    logits = np.log(np.maximum(q, 1e-30))
    first, second = r_squared(logits, w), r_squared(np.log(
        np.maximum(moved[1], 1e-30)), moved[2])  # fmt: skip
    assert second == pytest.approx(first, abs=1e-6, nan_ok=True)


def test_what_is_indifferent_to_the_attribute_has_no_gap() -> None:
    answers, q = (
        np.arange(40) % 2,
        softmax(np.random.default_rng(0).normal(size=(40, 2))),
    )
    assert pseudo_equalized_odds_difference(answers, q, np.full((40, 3), 1 / 3)) < 1e-12


@settings(max_examples=30)
@given(cases())
def test_intervals_hold_their_value_and_depend_on_the_seed_alone(case: Case) -> None:
    answers, q, w = case
    other = (answers + 1) % q.shape[1]
    how = Bootstrap(60, seed=3)
    found = pseudo_odds([answers, other, answers], q, w, how)
    assert found == pseudo_odds([answers, other, answers], q, w, how)
    for figure, run in zip(found.runs, (answers, other, answers), strict=True):
        value = pseudo_equalized_odds_difference(run, q, w)
        assert float(figure) == pytest.approx(value, nan_ok=True)
        assert figure.n == len(q)
    if found.runs[0].value is None:
        assert found.changes[0].reason == "no class is perceived with two values"
        assert found.changes[0].low is None
        return
    for figure in (*found.runs, *found.changes):
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= float(figure) <= figure.high
    assert (
        found.changes[1].value == 0
    )  # nothing changed on these images, but it might on others
    assert found.changes[1].low < 0 < found.changes[1].high  # type: ignore[operator]


def leaning(n: int, seed: int, corrected: float) -> tuple[Ints, Ints, Floats, Floats]:
    """Two classes that lean on two values, and answers after a share of that is taken away."""
    generator = np.random.default_rng(seed)
    y, s = generator.integers(0, 2, (2, n))
    w = softmax(2 * np.eye(2)[s] + generator.normal(size=(n, 2)))
    lean = 1.5 * np.eye(2)
    logits = 2 * np.eye(2)[y] + lean[s] + 1.5 * generator.normal(size=(n, 2))
    after: Ints = (logits - corrected * w @ lean).argmax(1)
    return logits.argmax(1), after, softmax(logits), w


@pytest.mark.parametrize("corrected", [0.02, 0.5, 1.0])
def test_intervals_cover_the_truth(corrected: float) -> None:
    """Also of changes that are so rare that most samples do not show them."""
    before, after, q, w = leaning(100_000, 1, corrected)
    first, then = (pseudo_equalized_odds_difference(a, q, w) for a in (before, after))
    generator, held, trials = np.random.default_rng(2), np.zeros(3), 100
    for seed in range(trials):
        some = generator.integers(0, len(q), 150)
        found = pseudo_odds(
            [before[some], after[some]], q[some], w[some], Bootstrap(200, seed=seed)
        )
        for k, (figure, truth) in enumerate(
            zip([*found.runs, *found.changes], (first, then, then - first), strict=True)
        ):
            held[k] += figure.low <= truth <= figure.high  # type: ignore[operator]
    assert held.min() >= 89  # 95 with a standard deviation of 2.2


def test_intervals_agree_with_resampled_rows_and_narrow_with_n() -> None:
    before, after, q, w = leaning(2000, 0, 0.5)
    found = pseudo_odds([before, after], q, w, Bootstrap(1000))
    generator, values = np.random.default_rng(5), []
    for _ in range(500):
        some = generator.integers(0, 2000, 2000)
        first, then = (
            pseudo_equalized_odds_difference(a[some], q[some], w[some])
            for a in (before, after)
        )
        values.append(then - first)
    change = found.changes[0]
    assert (change.low, change.high) == pytest.approx(
        np.quantile(values, [0.025, 0.975]), abs=0.006
    )
    few = pseudo_odds([before[:200], after[:200]], q[:200], w[:200]).changes[0]
    assert few.high - few.low > 2 * (change.high - change.low)  # type: ignore[operator]


@given(cases())
def test_r_squared_by_hand(case: Case) -> None:
    """Normal equations for each class, with the intercept written as a column."""
    _, q, w = case
    u = np.log(np.maximum(q, 1e-30))
    u = u - u.mean(1, keepdims=True)
    value = r_squared(u, w)
    if len(u) <= w.shape[1] or ((u - u.mean(0)) ** 2).sum() < 1e-18 * u.size:
        assert math.isnan(value)
        return
    spread = np.linalg.svd(w - w.mean(0), compute_uv=False)
    assume(
        not ((spread > 1e-12) & (spread < 1e-4)).any()
    )  # between something and nothing
    x = np.column_stack([np.ones(len(w)), w])
    rest = total = 0.0
    for y in range(u.shape[1]):
        fitted = x @ (np.linalg.pinv(x, rcond=1e-8) @ u[:, y])
        rest += sum((a - b) ** 2 for a, b in zip(u[:, y], fitted, strict=True))
        total += sum((a - u[:, y].mean()) ** 2 for a in u[:, y])
    assert value == pytest.approx(1 - rest / total, abs=1e-5)
    assert 0 <= value <= 1


def test_r_squared_of_what_is_and_is_not_the_attribute() -> None:
    generator = np.random.default_rng(0)
    w = softmax(generator.normal(size=(3000, 3)))
    assert r_squared(w @ generator.normal(size=(3, 4)) + 7, w) == pytest.approx(1)
    assert r_squared(generator.normal(size=(3000, 4)), w) < 0.01
    assert math.isnan(r_squared(np.zeros((3000, 4)), w))
    rounded = w.astype(np.float32).astype(
        np.float64
    )  # its sums are noise and explain nothing
    few = generator.normal(size=(8, 2))
    exact = r_squared(few, w[:8])
    assert r_squared(few, rounded[:8]) == pytest.approx(exact, abs=1e-4)
    assert math.isnan(r_squared(np.eye(3), w[:3]))  # as many coefficients as images


@given(st.integers(2, 4), st.integers(2, 5), st.integers(0, 1000))
def test_associations_by_hand(values: int, classes: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    z, t = generator.normal(size=(values, 6)), generator.normal(size=(classes, 6))
    table = metrics.prompt_associations(z, t, 30.0)
    for s in range(values):
        for y in range(classes):
            a = [
                z[s][k] - sum(z[j][k] for j in range(values)) / values for k in range(6)
            ]
            b = [
                t[y][k] - sum(t[j][k] for j in range(classes)) / classes
                for k in range(6)
            ]
            expected = 30 * sum(x * y for x, y in zip(a, b, strict=True))
            assert table[s, y] == pytest.approx(expected, abs=1e-9)
    assert table.sum(0) == pytest.approx(np.zeros(classes), abs=1e-9)
    np.testing.assert_allclose(
        metrics.prompt_associations(z[::-1], t, 30.0), table[::-1]
    )


def test_tensors_are_taken_too() -> None:
    answers, q, w = (
        torch.tensor([0, 1, 1]),
        torch.rand(3, 2).softmax(1),
        torch.eye(2)[[0, 1, 0]],
    )
    found = pseudo_equalized_odds_difference(answers, q, w)
    again = pseudo_equalized_odds_difference(answers.numpy(), q.numpy(), w.numpy())
    assert found == pytest.approx(again, abs=1e-6)
