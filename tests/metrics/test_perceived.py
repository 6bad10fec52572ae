"""Figures without labels against explicit loops, and what they are with certain beliefs."""

from __future__ import annotations

import math

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
from fair_tta.metrics import Bootstrap, Estimate

Case = tuple[Ints, Floats, Floats]


def softmax(logits: Floats) -> Floats:
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: Floats = exponentials / exponentials.sum(1, keepdims=True)
    return probabilities


@st.composite
def cases(draw: st.DrawFn, certain: bool = False) -> Case:
    """Draw answers, q and w of a few images; beliefs may be certain or nearly so."""
    n = draw(st.integers(1, 25))
    classes = draw(st.integers(2, 4))
    values = draw(st.integers(2, 4))
    sharpness = draw(st.sampled_from([0.0, 1.0, 10.0, 200.0]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))

    def beliefs(names: int) -> Floats:
        if certain:
            return np.eye(names)[generator.integers(0, names, n)]
        return softmax(sharpness * generator.normal(size=(n, names)))

    return generator.integers(0, classes, n), beliefs(classes), beliefs(values)


def rate_by_hand(case: Case, s: int, y: int, *, is_true_positive: bool) -> float:
    """The formula of a rate, written out; NaN if nothing is perceived."""
    hits = total = 0.0
    for answer, q, w in zip(*case, strict=True):
        weight = w[s] * (q[y] if is_true_positive else max(0.0, 1 - q[y]))
        hits += weight * (answer == y)
        total += weight
    return hits / total if total > 0 else math.nan


def difference_by_hand(case: Case) -> float:
    _, q, w = case
    gaps = []
    for y in range(q.shape[1]):
        gaps_of_class = []
        for kind in (True, False):
            rates = [
                rate_by_hand(case, s, y, is_true_positive=kind)
                for s in range(w.shape[1])
            ]
            defined = [rate for rate in rates if not math.isnan(rate)]
            if len(defined) > 1:
                gaps_of_class.append(max(defined) - min(defined))
        if len(gaps_of_class) == 2:
            gaps.append(max(gaps_of_class))
    return sum(gaps) / len(gaps) if gaps else math.nan


@given(cases())
def test_rates_and_their_gap_by_hand(case: Case) -> None:
    true_positive, false_positive = pseudo_rates(*case)
    for s, y in np.ndindex(true_positive.shape):
        for rates, kind in ((true_positive, True), (false_positive, False)):
            expected = rate_by_hand(case, s, y, is_true_positive=kind)
            assert rates[s, y] == pytest.approx(expected, abs=1e-9, nan_ok=True)
    value = pseudo_equalized_odds_difference(*case)
    assert value == pytest.approx(difference_by_hand(case), abs=1e-9, nan_ok=True)
    assert math.isnan(value) or 0 <= value <= 1


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
@given(cases(certain=True))
def test_certain_beliefs_are_labels(case: Case) -> None:
    answers, q, w = case
    labelled = metrics.equalized_odds_difference(
        q.argmax(1),
        answers,
        w.argmax(1),
        targets=range(q.shape[1]),
        values=range(w.shape[1]),
    )
    value = pseudo_equalized_odds_difference(answers, q, w)
    assert value == pytest.approx(float(labelled), abs=1e-12, nan_ok=True)


@given(cases(), st.integers(0, 2**32))
def test_order_and_names_do_not_matter(case: Case, seed: int) -> None:
    answers, q, w = case
    generator = np.random.default_rng(seed)
    images = generator.permutation(len(answers))
    classes = generator.permutation(q.shape[1])
    values = generator.permutation(w.shape[1])
    moved_answers = np.argsort(classes)[answers][images]
    moved_q = q[images][:, classes]
    moved_w = w[images][:, values]
    value = pseudo_equalized_odds_difference(*case)
    again = pseudo_equalized_odds_difference(moved_answers, moved_q, moved_w)
    assert again == pytest.approx(value, abs=1e-9, nan_ok=True)
    share = r_squared(np.log(np.maximum(q, 1e-30)), w)
    again = r_squared(np.log(np.maximum(moved_q, 1e-30)), moved_w)
    assert again == pytest.approx(share, abs=1e-6, nan_ok=True)


def test_answers_that_are_indifferent_to_the_attribute_have_no_gap() -> None:
    q = softmax(np.random.default_rng(0).normal(size=(40, 2)))
    indifferent = np.full((40, 3), 1 / 3)
    value = pseudo_equalized_odds_difference(np.arange(40) % 2, q, indifferent)
    assert value < 1e-12


def bounds(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


@settings(max_examples=30)
@given(cases())
def test_intervals_hold_their_value_and_depend_on_the_seed_alone(case: Case) -> None:
    answers, q, w = case
    runs = [answers, (answers + 1) % q.shape[1], answers]
    odds = pseudo_odds(runs, q, w, Bootstrap(60, seed=3))
    assert odds == pseudo_odds(runs, q, w, Bootstrap(60, seed=3))
    for run, estimate in zip(runs, odds.runs, strict=True):
        value = pseudo_equalized_odds_difference(run, q, w)
        assert float(estimate) == pytest.approx(value, nan_ok=True)
        assert estimate.n == len(q)
    if odds.runs[0].value is None:
        reason = "no class is perceived with two values"
        assert odds.changes[0] == Estimate(None, len(q), reason=reason)
        return
    for estimate in (*odds.runs, *odds.changes):
        low, high = bounds(estimate)
        assert low <= float(estimate) <= high
    # Nothing changed on these images, but it might on others.
    assert odds.changes[1].value == 0
    low, high = bounds(odds.changes[1])
    assert low < 0 < high


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
    first = pseudo_equalized_odds_difference(before, q, w)
    second = pseudo_equalized_odds_difference(after, q, w)
    truths = np.array([first, second, second - first])
    generator = np.random.default_rng(2)
    held = np.zeros(3)
    for seed in range(100):
        sample = generator.integers(0, len(q), 150)
        runs = [before[sample], after[sample]]
        odds = pseudo_odds(runs, q[sample], w[sample], Bootstrap(200, seed=seed))
        low, high = np.transpose([bounds(e) for e in (*odds.runs, *odds.changes)])
        held += (low <= truths) & (truths <= high)
    # 95 with a standard deviation of 2.2.
    assert held.min() >= 89


def test_intervals_agree_with_resampled_rows_and_narrow_with_n() -> None:
    before, after, q, w = leaning(2000, 0, 0.5)
    generator = np.random.default_rng(5)
    changes = []
    for _ in range(500):
        rows = generator.integers(0, 2000, 2000)
        first = pseudo_equalized_odds_difference(before[rows], q[rows], w[rows])
        second = pseudo_equalized_odds_difference(after[rows], q[rows], w[rows])
        changes.append(second - first)
    odds = pseudo_odds([before, after], q, w, Bootstrap(1000))
    low, high = bounds(odds.changes[0])
    expected = np.quantile(changes, [0.025, 0.975])
    assert (low, high) == pytest.approx(tuple(expected), abs=0.006)
    of_few = pseudo_odds([before[:200], after[:200]], q[:200], w[:200])
    low_of_few, high_of_few = bounds(of_few.changes[0])
    assert high_of_few - low_of_few > 2 * (high - low)


@given(cases())
def test_r_squared_by_hand(case: Case) -> None:
    """Normal equations with the intercept written as a column."""
    _, q, w = case
    u = np.log(np.maximum(q, 1e-30))
    u = u - u.mean(1, keepdims=True)
    total = ((u - u.mean(0)) ** 2).sum()
    value = r_squared(u, w)
    if len(u) <= w.shape[1] or total < 1e-18 * u.size:
        assert math.isnan(value)
        return
    # Directions are either rounding or clearly more.
    sizes = np.linalg.svd(w - w.mean(0), compute_uv=False)
    assume(not ((sizes > 1e-12) & (sizes < 1e-4)).any())
    x = np.column_stack([np.ones(len(w)), w])
    residuals = u - x @ (np.linalg.pinv(x, rcond=1e-8) @ u)
    assert value == pytest.approx(1 - (residuals**2).sum() / total, abs=1e-5)
    assert 0 <= value <= 1


def test_r_squared_of_logits_with_and_without_the_attribute() -> None:
    generator = np.random.default_rng(0)
    w = softmax(generator.normal(size=(3000, 3)))
    assert r_squared(w @ generator.normal(size=(3, 4)) + 7, w) == pytest.approx(1)
    assert r_squared(generator.normal(size=(3000, 4)), w) < 0.01
    assert math.isnan(r_squared(np.zeros((3000, 4)), w))
    # Sums of rounded probabilities are noise and explain nothing.
    rounded = w.astype(np.float32).astype(np.float64)
    logits = generator.normal(size=(8, 2))
    exact = r_squared(logits, w[:8])
    assert r_squared(logits, rounded[:8]) == pytest.approx(exact, abs=1e-4)
    # There are as many coefficients as images.
    assert math.isnan(r_squared(np.eye(3), w[:3]))


@given(st.integers(2, 4), st.integers(2, 5), st.integers(0, 1000))
def test_associations_by_hand(values: int, classes: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(values, 6))
    t = generator.normal(size=(classes, 6))
    associations = metrics.prompt_associations(z, t, 30.0)
    for s, y in np.ndindex(associations.shape):
        expected = 30 * sum((z[s] - z.mean(0)) * (t[y] - t.mean(0)))
        assert associations[s, y] == pytest.approx(expected, abs=1e-9)
    assert associations.sum(0) == pytest.approx(np.zeros(classes), abs=1e-9)
    assert associations.sum(1) == pytest.approx(np.zeros(values), abs=1e-9)


def test_tensors_are_taken_too() -> None:
    answers = torch.tensor([0, 1, 1])
    q = torch.rand(3, 2).softmax(1)
    w = torch.eye(2)[[0, 1, 0]]
    value = pseudo_equalized_odds_difference(answers, q, w)
    again = pseudo_equalized_odds_difference(answers.numpy(), q.numpy(), w.numpy())
    assert value == pytest.approx(again, abs=1e-6)
