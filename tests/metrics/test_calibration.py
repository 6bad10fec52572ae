"""Calibration error: against explicit loops, without jumps, and with intervals that hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import Floats, Scores, calibration_error, read_answer_table

from fair_tta import metrics
from fair_tta.metrics import Bootstrap, Estimate

QUICK = Bootstrap(200)
BINS = 15
Images = list[tuple[bool, float]]

# What bins are sensitive to: edges and centres, the ends, and ties.
confidences = st.one_of(
    st.integers(0, BINS).map(lambda k: k / BINS),
    st.integers(0, BINS - 1).map(lambda k: (k + 0.5) / BINS),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.floats(0, 1),
)
images = st.lists(st.tuples(st.booleans(), confidences), min_size=1, max_size=40)


def error_of(is_correct: Any, confidence: Any, interval: Bootstrap) -> Estimate:
    answers = ["a" if correct else "b" for correct in is_correct]
    return metrics.expected_calibration_error(
        ["a"] * len(answers), answers, confidence, interval=interval
    )


def numbers(estimate: Estimate) -> tuple[float, float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return float(estimate), estimate.low, estimate.high


def share_in_bin(confidence: float, b: int) -> float:
    """Return 1 at the centre of the bin, 0 at the next centres."""
    centre = (b + 0.5) / BINS
    is_below_first = b == 0 and confidence <= centre
    is_above_last = b == BINS - 1 and confidence >= centre
    if is_below_first or is_above_last:
        return 1.0
    return max(0.0, 1 - abs(confidence - centre) * BINS)


def bin_shares(confidence: Floats) -> Floats:
    return np.array([[share_in_bin(p, b) for b in range(BINS)] for p in confidence])


@given(images)
def test_calibration_error_by_hand(pairs: Images) -> None:
    expected = 0.0
    for b in range(BINS):
        misses = [share_in_bin(p, b) * (correct - p) for correct, p in pairs]
        expected += abs(sum(misses)) / len(pairs)
    is_correct, confidence = map(np.array, zip(*pairs, strict=True))
    estimate = error_of(is_correct, confidence, QUICK)
    assert estimate.value == pytest.approx(expected, abs=1e-9)
    assert estimate.n == len(pairs)
    # Between the error of all images together and that of each by itself.
    miss = is_correct - confidence
    assert abs(miss.mean()) - 1e-9 <= float(estimate) <= np.abs(miss).mean() + 1e-9


@settings(max_examples=40)
@given(images, st.data())
def test_a_last_digit_changes_a_last_digit(pairs: Images, data: st.DataObject) -> None:
    """The value moves by at most ``2 bins + 1`` times as much, 3.1e-7; the ends about as much."""
    is_correct, confidence = map(np.array, zip(*pairs, strict=True))
    move = st.sampled_from([-1e-8, 0.0, 1e-8])
    of_each = st.lists(move, min_size=len(pairs), max_size=len(pairs))
    moves = np.array(data.draw(st.one_of(of_each, move)))
    moved = np.clip(confidence + moves, 0, 1)
    before = numbers(error_of(is_correct, confidence, QUICK))
    after = numbers(error_of(is_correct, moved, QUICK))
    assert after == pytest.approx(before, abs=1e-6, rel=0)


@pytest.mark.parametrize("n", [1, 2, 50])
@pytest.mark.parametrize("confidence", [0.0, 0.4, 0.5, 2 / 3, 1.0])
def test_one_confidence_for_all_images(confidence: float, n: int) -> None:
    is_correct = [i % 2 == 0 for i in range(n)]
    value, low, high = numbers(error_of(is_correct, [confidence] * n, QUICK))
    assert value == pytest.approx(abs(np.mean(is_correct) - confidence))
    assert 0 <= low <= value <= high <= 1


def test_the_interval_depends_on_no_order_and_on_no_choice_of_eigenvectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processors turn eigenvectors as they like, and rotate those of equal eigenvalues."""
    generator = np.random.default_rng(0)
    # Some bins are empty: the eigenvalue 0 several times.
    confidence = generator.uniform(0.3, 0.8, 200)
    is_correct = generator.random(200) < confidence
    expected = pytest.approx(numbers(error_of(is_correct, confidence, QUICK)), 1e-6)
    order = generator.permutation(200)
    reordered = error_of(is_correct[order], confidence[order], QUICK)
    assert numbers(reordered) == expected
    eigh = np.linalg.eigh

    def turned(matrix: Any) -> Any:
        values, vectors = eigh(matrix)
        vectors = vectors * generator.choice([-1, 1], len(values))
        is_zero = values < 1e-12
        zeros = int(is_zero.sum())
        assert zeros > 1
        rotation, _ = np.linalg.qr(generator.standard_normal((zeros, zeros)))
        vectors[:, is_zero] = vectors[:, is_zero] @ rotation
        return values, vectors

    monkeypatch.setattr(np.linalg, "eigh", turned)
    assert numbers(error_of(is_correct, confidence, QUICK)) == expected


def test_the_width_is_that_of_resampled_images() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.3, 0.9, 800)
    is_correct = generator.random(800) < confidence**2
    value, low, high = numbers(error_of(is_correct, confidence, Bootstrap(4000)))
    errors = bin_shares(confidence) * (is_correct - confidence)[:, None]
    resampled = generator.multinomial(800, [1 / 800] * 800, size=4000) @ errors / 800
    noise = np.abs(resampled - errors.mean(0)).sum(1)
    margin = float(np.quantile(noise, 0.95))
    assert (value - low, high - value) == pytest.approx((margin, margin), rel=0.05)


def test_many_calibrated_images_have_an_error_near_zero() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.random(200_000)
    is_correct = generator.random(200_000) < confidence
    value, low, high = numbers(error_of(is_correct, confidence, QUICK))
    assert low == 0
    assert value <= high < 0.02


Draw = Callable[[np.random.Generator, int], Floats]


@pytest.mark.parametrize("n", [5, 20, 200])
@pytest.mark.parametrize(
    ("draw", "accuracy"),
    [
        (lambda g, n: g.uniform(0.4, 0.9, n), lambda p: p),
        (lambda g, n: g.uniform(0.4, 0.9, n), lambda p: p - 0.1),
        (lambda g, n: g.beta(8, 2, n), lambda p: p),
        (lambda g, n: g.beta(20, 1, n), lambda p: p),
        (lambda g, n: g.beta(20, 1, n), lambda p: p**3),
        (lambda g, n: np.full(n, 0.99), lambda p: p),
        (lambda g, n: np.full(n, 0.99), lambda p: p - 0.1),
        (lambda g, n: g.integers(8, 16, n) / 15, np.ones_like),
    ],
)
def test_intervals_hold_the_error_of_infinitely_many_images(
    draw: Draw, accuracy: Callable[[Floats], Floats], n: int
) -> None:
    """Nominal 95 %. Of 150 trials 134 (89 %) are three standard errors below that."""
    generator = np.random.default_rng(n)
    population = draw(generator, 20_000)
    misses = accuracy(population) - population
    truth = np.abs((bin_shares(population) * misses[:, None]).mean(0)).sum()
    covered = 0
    for seed in range(150):
        confidence = draw(generator, n)
        is_correct = generator.random(n) < accuracy(confidence)
        estimate = error_of(is_correct, confidence, Bootstrap(200, seed))
        _, low, high = numbers(estimate)
        assert high > low
        covered += low <= truth + 1e-9 and truth - 1e-9 <= high
    assert covered >= 134


def test_groups() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.4, 0.9, 500)
    answers = np.where(generator.random(500) < confidence, "a", "b")
    groups = ["x"] * 250 + ["y"] * 250
    values = ["x", "y", "z"]
    table = read_answer_table(["a"] * 500, [answers], groups, ["a", "b"], values)
    table = replace(table, scores=(Scores(confidence=confidence),))
    first, _, empty = [calibration_error(table, 0, QUICK, g) for g in range(3)]
    assert first == error_of(answers[:250] == "a", confidence[:250], QUICK)
    assert empty.reason == "no images"
    # One image shows nothing.
    one_image = error_of([True], [0.7], QUICK)
    assert numbers(one_image) == pytest.approx((0.3, 0, 1))


def test_scores_may_be_tensors_in_a_list_or_come_one_by_one() -> None:
    tensors = [torch.tensor(0.5, requires_grad=True)] * 2
    for values in (tensors, iter([0.5, 0.5])):
        assert np.all(Scores(confidence=values)._checked(2).confidence == 0.5)
