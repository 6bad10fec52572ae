"""The typical gap: against pairs of groups and drawn rates, and what must not change it."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import AnswerTable, RateMetric, _Moments, _rate_blocks

from fair_tta import FairTTAError, audit, compare
from fair_tta.metrics import Bootstrap
from fair_tta.metrics.definitions import METRICS, TYPICAL_GAP


def drawn(
    seed: int,
    groups: int = 3,
    classes: int = 2,
    n: int = 300,
    rates: tuple[float, ...] = (0.6, 0.8),
) -> AnswerTable:
    generator = np.random.default_rng(seed)
    truth, group = generator.integers(0, classes, n), generator.integers(0, groups, n)
    answers = []
    for rate in rates:
        right = generator.random(n) < rate - 0.2 * group / groups
        answers.append(np.where(right, truth, (truth + 1) % classes))
    names: dict[str, tuple[Hashable, ...]] = {"group": tuple(range(groups))}
    return AnswerTable(tuple(range(classes)), names, truth, group, tuple(answers))


def by_pairs(rows: AnswerTable, run: int) -> float:
    """Pair by pair: squared differences minus the variances of both rates."""
    of_classes = []
    for c in range(len(rows.targets)):
        rates = []
        for g in range(len(rows.groups)):
            here = (rows.group_codes == g) & (rows.truth == c)
            if here.any():
                right, n = int((rows.answers[run][here] == c).sum()), int(here.sum())
                smoothed = (right + 1) / (n + 2)
                rates.append((right / n, smoothed * (1 - smoothed) / n))
        pairs = [(a - b) ** 2 - v - w for (a, v), (b, w) in combinations(rates, 2)]
        if pairs:
            of_classes.append(np.mean(pairs))
    return math.sqrt(max(0.0, float(np.mean(of_classes))))


@pytest.mark.parametrize("seed", range(6))
def test_against_pairs_of_groups(seed: int) -> None:
    rows = drawn(seed, groups=2 + seed % 3, classes=2 + seed % 4)
    for run in (0, 1):
        expected = by_pairs(rows, run)
        assert TYPICAL_GAP.estimate(rows, run, None).value == pytest.approx(
            expected, abs=1e-12
        )
    change = TYPICAL_GAP.difference(rows, 0, 1, Bootstrap())
    assert change.value == pytest.approx(
        by_pairs(rows, 1) - by_pairs(rows, 0), abs=1e-12
    )


@pytest.mark.parametrize("clusters", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_moments_are_those_of_drawn_rates(seed: int, clusters: int) -> None:
    """Weights are drawn for each image, or for each cluster, and rates are made of them."""
    rows = drawn(seed, n=240)
    person = np.arange(240) // clusters
    if clusters > 1:
        rows = replace(rows, clusters=person)
    generator, many = np.random.default_rng(seed), 20_000
    weights = generator.standard_normal((many, int(person.max()) + 1))
    units = len(set(person.tolist()))
    factor = math.sqrt(units / (units - 1)) if clusters > 1 else 1.0
    square = np.zeros((2, many))
    for c in range(2):
        rates = []
        for g in range(3):
            here = (rows.group_codes == g) & (rows.truth == c)
            right = np.array(
                [rows.answers[run][here] == c for run in (0, 1)], np.float64
            )
            n, mean = here.sum(), (right.sum(1) + 1) / (here.sum() + 2)
            added = np.array([[1.0, 0.0], [0.0, 1.0]]) - mean
            noise = (right.T - mean).T @ weights[:, person[here]].T * factor
            noise += added.T @ generator.standard_normal((2, many))
            rates.append(mean[:, None] + noise / (n + 2))
        square += np.var(rates, 0, ddof=1)  # twice this, mean over two classes
    one = _Moments.of(_rate_blocks(rows, (1,)), 1)
    change = _Moments.of(_rate_blocks(rows, (0, 1)), -1, 1)
    for of, drawn_squares in ((one, square[1]), (change, square[1] - square[0])):
        variance = of.variance + of.gap_variance
        assert variance == pytest.approx(drawn_squares.var(), rel=0.05)
    third = float(np.mean((square[1] - square[1].mean()) ** 3))
    assert one.third + one.gap_third == pytest.approx(third, rel=0.25)


@st.composite
def audits(draw: Any) -> AnswerTable:
    groups, classes = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    seed, n = draw(st.integers(0, 2**32 - 1)), draw(st.integers(20, 300))
    return drawn(
        seed, groups, classes, n, (draw(st.floats(0.3, 1)), draw(st.floats(0.3, 1)))
    )


@settings(max_examples=40)
@given(audits())
def test_it_lies_between_0_and_1_and_its_interval_around_it(rows: AnswerTable) -> None:
    for run in (0, 1):
        found = TYPICAL_GAP.estimate(rows, run, Bootstrap())
        if found.value is None:
            continue
        assert 0 <= found.value <= 1
        if found.low is None or found.high is None:
            assert "fewer than 5 images" in (found.reason or "")
        else:
            assert 0 <= found.low <= found.value <= found.high <= 1


@settings(max_examples=40)
@given(audits(), st.randoms(use_true_random=False))
def test_names_and_order_of_groups_and_images_change_nothing(
    rows: AnswerTable, shuffle: Any
) -> None:
    groups, order = list(range(len(rows.groups))), list(range(len(rows.truth)))
    shuffle.shuffle(groups)
    shuffle.shuffle(order)
    other = replace(
        rows,
        truth=rows.truth[order],
        group_codes=np.array(groups)[rows.group_codes][order],
        answers=tuple(answers[order] for answers in rows.answers),
    )
    for one, two in (
        [TYPICAL_GAP.estimate(some, 0, Bootstrap()) for some in (rows, other)],
        [TYPICAL_GAP.difference(some, 0, 1, Bootstrap()) for some in (rows, other)],
    ):
        ends = [
            [math.nan if x is None else x for x in (f.value, f.low, f.high)]
            for f in (one, two)
        ]
        assert ends[0] == pytest.approx(ends[1], abs=1e-9, nan_ok=True)


@settings(max_examples=20)
@given(audits(), st.integers(5, 40))
def test_intervals_narrow_with_images(rows: AnswerTable, times: int) -> None:
    many = replace(
        rows,
        truth=np.tile(rows.truth, times),
        group_codes=np.tile(rows.group_codes, times),
        answers=tuple(np.tile(answers, times) for answers in rows.answers),
    )
    for few, more in (
        [TYPICAL_GAP.estimate(some, 0, Bootstrap()) for some in (rows, many)],
        [TYPICAL_GAP.difference(some, 0, 1, Bootstrap()) for some in (rows, many)],
    ):
        if few.low is not None and few.high is not None:
            assert (more.high or 0) - (more.low or 0) < few.high - few.low


def test_equal_groups_give_0_within_noise() -> None:
    values = []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        rows = drawn(seed, n=400)
        answers = np.where(generator.random(400) < 0.7, rows.truth, 1 - rows.truth)
        found = TYPICAL_GAP.estimate(replace(rows, answers=(answers,)), 0, Bootstrap())
        values.append((found.value, found.low))
    assert np.mean([value == 0 for value, _ in values]) > 0.3
    assert np.mean([low == 0 for _, low in values]) >= 0.95


def test_what_is_absent_is_reported_and_what_is_too_little_is_withheld() -> None:
    truth = ["cat", "dog"] * 60
    groups = ["a", "a", "b", "b"] * 30
    answers = ["cat"] * 120
    document = audit(
        truth, answers, groups, values=["a", "b", "c"], name="run"
    ).to_dict()
    found = document["runs"][0]["metrics"]["typical_gap"]
    assert "c" in found["reason"]
    truth, groups, answers = truth[:12], groups[:12], answers[:12]  # 3 of each
    with pytest.warns(match="images"):
        before, after = (
            audit(truth, a, groups, name=n) for a, n in ((answers, "x"), (truth, "y"))
        )
    found = before.to_dict()["runs"][0]["metrics"]["typical_gap"]
    assert found["low"] is None
    assert "fewer than 5 images" in found["reason"]
    change = compare([before, after]).to_dict()["comparisons"][0]["differences"][
        "typical_gap"
    ]
    assert change["low"] is None
    assert change["value"] == 0
    with pytest.warns(match="images"):
        one = audit(truth, answers, ["a"] * 12, name="run").to_dict()
    assert one["runs"][0]["metrics"]["typical_gap"]["value"] is None


def test_nothing_changed_shows_nothing() -> None:
    rows = drawn(0)
    same = TYPICAL_GAP.difference(
        replace(rows, answers=(rows.answers[0],) * 2), 0, 1, Bootstrap()
    )
    assert (same.value, same.low, same.high) == (0, None, None)
    assert same.reason == "no interval, as no answer changed"


def test_several_images_of_a_person_count_as_one() -> None:
    """Each image four times: with clusters the interval is that of one of each."""
    rows = drawn(3, n=2000)
    four = AnswerTable(
        rows.targets,
        rows.values,
        np.repeat(rows.truth, 4),
        np.repeat(rows.group_codes, 4),
        tuple(np.repeat(answers, 4) for answers in rows.answers),
        clusters=np.repeat(np.arange(2000), 4),
    )
    one, same = (
        TYPICAL_GAP.difference(some, 0, 1, Bootstrap()) for some in (rows, four)
    )
    assert (one.value, one.low, one.high) == pytest.approx(
        (same.value, same.low, same.high), abs=2e-3
    )


def test_few_clusters_show_nothing() -> None:
    truth, groups = ["cat", "dog"] * 60, ["a", "a", "b", "b"] * 30
    with pytest.raises(FairTTAError, match="10 or more persons or sources"):
        audit(truth, truth, groups, clusters=["anna"] * 120)
    # a cell of three persons
    persons = [f"{g}{i % 12 // 4 if g == 'a' else i}" for i, g in enumerate(groups)]
    found = audit(truth, ["cat"] * 120, groups, clusters=persons).to_dict()["runs"][0][
        "metrics"
    ]
    assert found["typical_gap"]["low"] is None
    assert "fewer than 5 clusters" in found["typical_gap"]["reason"]


def test_clusters_make_no_interval_narrower() -> None:
    rows = drawn(4, n=600)
    generator = np.random.default_rng(4)
    for persons in (20, 60, 300):
        some = replace(rows, clusters=generator.integers(0, persons, 600))
        for metric in METRICS.values():
            if isinstance(metric, RateMetric) or metric is TYPICAL_GAP:
                alone, with_persons = (
                    metric.difference(columns, 0, 1, Bootstrap())
                    for columns in (rows, some)
                )
                assert (with_persons.low or 0) <= (alone.low or 0) + 1e-12, metric.name
                assert (with_persons.high or 0) >= (alone.high or 0) - 1e-12, (
                    metric.name
                )


def test_every_answer_reversed_shows_nothing() -> None:
    rows = drawn(0)
    back = replace(rows, answers=(rows.answers[0], 1 - rows.answers[0]))
    found = TYPICAL_GAP.difference(back, 0, 1, Bootstrap())
    assert (found.low, found.reason) == (None, "no interval, as every answer changed")
