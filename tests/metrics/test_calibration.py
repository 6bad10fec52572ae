"""Calibration error: against explicit loops, without jumps, and with intervals that hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    Scores,
    calibration_error,
    estimate_calibration_error,
    read_answer_table,
)

from fair_tta import FairTPTClassifier, audit, metrics
from fair_tta.errors import FairTTAError
from fair_tta.metrics import Bootstrap, Estimate
from fair_tta.miniature import BIRDS

QUICK = Bootstrap(200)

# What bins are sensitive to: edges and centres of fifteen, the ends, and ties.
confidences = st.one_of(
    st.integers(0, 15).map(lambda k: k / 15),
    st.integers(0, 14).map(lambda k: (k + 0.5) / 15),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.floats(0, 1),
)
images = st.lists(st.tuples(st.booleans(), confidences), min_size=1, max_size=40)


def error(right: Any, sure: Any, interval: Bootstrap | None = None) -> Estimate:
    answers = ["a" if r else "b" for r in right]
    return metrics.expected_calibration_error(
        ["a"] * len(answers), answers, sure, interval=interval
    )


def ends(found: Estimate) -> tuple[float, float, float]:
    assert found.low is not None
    assert found.high is not None
    return float(found), found.low, found.high


def share(sure: float, b: int, bins: int) -> float:
    """How much of an image lies in bin b: all at its centre, nothing at the next ones."""
    centre = (b + 0.5) / bins
    if (b == 0 and sure <= centre) or (b == bins - 1 and sure >= centre):
        return 1.0  # outside of the outermost centres there is only one bin
    return max(0.0, 1 - abs(sure - centre) * bins)


def by_hand(right: list[bool], sure: list[float], bins: int) -> float:
    total = 0.0
    for b in range(bins):
        weights = [share(s, b, bins) for s in sure]
        if sum(weights) > 0:
            pairs = list(zip(weights, right, sure, strict=True))
            accuracy = sum(w * r for w, r, _ in pairs) / sum(weights)
            confidence = sum(w * s for w, _, s in pairs) / sum(weights)
            total += sum(weights) / len(right) * abs(accuracy - confidence)
    return total


@given(images)
def test_calibration_error_by_hand(pairs: list[tuple[bool, float]]) -> None:
    right, sure = [r for r, _ in pairs], [s for _, s in pairs]
    found = estimate_calibration_error(np.array(right), np.array(sure), QUICK)
    assert found.value == pytest.approx(by_hand(right, sure, 15), abs=1e-9)
    assert error(right, sure).value == pytest.approx(by_hand(right, sure, 15), abs=1e-9)
    assert found.n == len(right)
    # between the error of all images together and that of each on its own
    off = np.array(right) - np.array(sure)
    assert abs(off.mean()) - 1e-9 <= found.value <= np.abs(off).mean() + 1e-9


@settings(max_examples=40)
@given(images, st.data())
def test_a_last_digit_changes_a_last_digit(
    pairs: list[tuple[bool, float]], data: st.DataObject
) -> None:
    """The value moves by at most ``2 bins + 1`` times as much, 3.1e-7; the ends about as much."""
    right, sure = [r for r, _ in pairs], np.array([s for _, s in pairs])
    some = st.sampled_from([-1e-8, 0.0, 1e-8])
    moves = st.lists(some, min_size=len(right), max_size=len(right))
    moved = np.clip(sure + np.array(data.draw(st.one_of(moves, some))), 0, 1)
    before, after = (ends(error(right, s, interval=QUICK)) for s in (sure, moved))
    assert after == pytest.approx(before, abs=1e-6, rel=0)


@pytest.mark.parametrize("n", [1, 2, 50])
@pytest.mark.parametrize("sure", [0.0, 0.4, 0.5, 2 / 3, 0.8, 1.0])
def test_all_equally_sure(sure: float, n: int) -> None:
    right = [i % 2 == 0 for i in range(n)]
    value, low, high = ends(error(right, [sure] * n, interval=QUICK))
    assert value == pytest.approx(abs(np.mean(right) - sure))
    assert 0 <= low <= value <= high <= 1
    for near in (sure - 1e-8, sure + 1e-8):
        moved = ends(error(right, [min(max(near, 0.0), 1.0)] * n, interval=QUICK))
        assert moved == pytest.approx((value, low, high), abs=1e-6, rel=0)


def test_the_interval_depends_on_no_order_and_on_no_choice_of_eigenvectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processors turn eigenvectors as they like, and rotate those of equal eigenvalues."""
    generator = np.random.default_rng(0)
    sure = generator.uniform(
        0.3, 0.8, 200
    )  # some bins are empty: eigenvalue 0, several times
    right = generator.random(200) < sure
    expected = ends(error(right, sure, interval=QUICK))
    order = generator.permutation(200)
    assert ends(error(right[order], sure[order], interval=QUICK)) == pytest.approx(
        expected, 1e-6
    )
    eigh = np.linalg.eigh

    def turned(matrix: Any) -> Any:
        squares, axes = eigh(matrix)
        axes = axes * generator.choice([-1, 1], len(squares))
        equal = squares < 1e-12
        assert equal.sum() > 1
        rotation = np.linalg.qr(generator.standard_normal((equal.sum(), equal.sum())))[
            0
        ]
        axes[:, equal] = axes[:, equal] @ rotation
        return squares, axes

    monkeypatch.setattr(np.linalg, "eigh", turned)
    assert ends(error(right, sure, interval=QUICK)) == pytest.approx(expected, 1e-6)


def test_the_width_is_that_of_resampled_images() -> None:
    generator = np.random.default_rng(0)
    sure = generator.uniform(0.3, 0.9, 800)
    right = generator.random(800) < sure**2
    value, low, high = ends(error(right, sure, interval=Bootstrap(4000)))
    weights = np.array([[share(s, b, 15) for b in range(15)] for s in sure])
    errors = weights * (right - sure)[:, None]
    drawn = generator.multinomial(800, [1 / 800] * 800, size=4000) @ errors / 800
    reach = float(np.quantile(np.abs(drawn - errors.mean(0)).sum(1), 0.95))
    assert (value - low, high - value) == pytest.approx((reach, reach), rel=0.05)


def test_many_calibrated_images_have_an_error_near_zero() -> None:
    generator = np.random.default_rng(0)
    sure = generator.random(200_000)
    value, low, high = ends(
        error(generator.random(200_000) < sure, sure, interval=QUICK)
    )
    assert low == 0
    assert value <= high < 0.02


def all_right(sure: Any) -> Any:
    return np.ones_like(sure)


@pytest.mark.parametrize("n", [5, 20, 200])
@pytest.mark.parametrize(
    ("draw", "accuracy"),
    [
        (lambda g, n: g.uniform(0.4, 0.9, n), lambda s: s),
        (lambda g, n: g.uniform(0.4, 0.9, n), lambda s: s - 0.1),
        (lambda g, n: g.beta(8, 2, n), lambda s: s),
        (lambda g, n: g.beta(20, 1, n), lambda s: s),
        (lambda g, n: g.beta(20, 1, n), lambda s: s**3),
        (lambda g, n: np.full(n, 0.99), lambda s: s),
        (lambda g, n: np.full(n, 0.99), lambda s: s - 0.1),
        (lambda g, n: g.integers(8, 16, n) / 15, all_right),
    ],
)
def test_intervals_hold_the_error_of_infinitely_many_images(
    draw: Any, accuracy: Any, n: int
) -> None:
    """Nominal 95 %. Of 150 trials 134 (89 %) are three standard errors below that."""
    generator = np.random.default_rng(n)
    many = draw(generator, 20_000)
    weights = np.maximum(
        0, 1 - np.abs(np.clip(many * 15 - 0.5, 0, 14)[:, None] - np.arange(15))
    )
    truth = np.abs((weights * (accuracy(many) - many)[:, None]).mean(0)).sum()
    covered = 0
    for seed in range(150):
        sure = draw(generator, n)
        right = generator.random(n) < accuracy(sure)
        _, low, high = ends(error(right, sure, interval=Bootstrap(200, seed)))
        assert high > low
        covered += low <= truth + 1e-9 and truth - 1e-9 <= high
    assert covered >= 134


def test_groups() -> None:
    generator = np.random.default_rng(0)
    sure = generator.uniform(0.4, 0.9, 500)
    answers = np.where(generator.random(500) < sure, "a", "b")
    group = ["x"] * 250 + ["y"] * 250
    columns = read_answer_table(
        ["a"] * 500, [answers], group, ["a", "b"], ["x", "y", "z"]
    )
    columns = replace(columns, scores=(Scores(confidence=sure),))
    by_group = [calibration_error(columns, 0, QUICK, g) for g in range(3)]
    assert by_group[0] == error(answers[:250] == "a", sure[:250], interval=QUICK)
    assert by_group[2].reason == "no images"
    lone = error([True], [0.7], interval=QUICK)
    assert ends(lone) == pytest.approx((0.3, 0, 1))  # one image says nothing


def test_scores_may_be_tensors_in_a_list_or_come_one_by_one() -> None:
    grown = [torch.tensor(0.5, requires_grad=True)] * 2
    for values in (grown, iter([0.5, 0.5])):
        assert np.all(Scores(confidence=values)._checked(2).confidence == 0.5)


@pytest.mark.parametrize("counts", [(-1, 9), (9, -1), (0.5, 9), (float("nan"), 9)])
def test_a_negative_or_fractional_count_has_no_p_value(counts: Any) -> None:
    with pytest.raises(FairTTAError, match="integer >= 0"):
        metrics.mcnemar(*counts)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), [1.0]])
def test_an_audit_takes_no_negative_time(seconds: Any) -> None:
    with pytest.raises(FairTTAError, match="`seconds` should be a number >= 0"):
        audit(["a", "b"], ["a", "b"], ["x", "y"], seconds=seconds)


def test_an_attribute_without_a_name_is_not_the_target() -> None:
    values = {"": BIRDS.sensitive["background"]}
    clf = FairTPTClassifier(
        "miniature", BIRDS.targets, values, BIRDS.template, adapter="zero-shot"
    )
    assert set(clf.predict(BIRDS.draw(1)[0].image).probabilities) == set(BIRDS.targets)
