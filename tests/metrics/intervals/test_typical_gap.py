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

from fair_tta import audit, compare
from fair_tta.metrics import Bootstrap, Estimate
from fair_tta.metrics.definitions import METRICS, TYPICAL_GAP


def drawn(
    seed: int,
    groups: int = 3,
    classes: int = 2,
    n: int = 300,
    accuracies: tuple[float, ...] = (0.6, 0.8),
) -> AnswerTable:
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, classes, n)
    group = generator.integers(0, groups, n)
    answers = []
    for accuracy in accuracies:
        is_right = generator.random(n) < accuracy - 0.2 * group / groups
        answers.append(np.where(is_right, truth, (truth + 1) % classes))
    names: dict[str, tuple[Hashable, ...]] = {"group": tuple(range(groups))}
    return AnswerTable(tuple(range(classes)), names, truth, group, tuple(answers))


def repeated(table: AnswerTable, times: int) -> AnswerTable:
    return replace(
        table,
        truth=np.repeat(table.truth, times),
        group_codes=np.repeat(table.group_codes, times),
        answers=tuple(np.repeat(answers, times) for answers in table.answers),
    )


def gap_and_change(table: AnswerTable) -> tuple[Estimate, Estimate]:
    gap = TYPICAL_GAP.estimate(table, 0, Bootstrap())
    return gap, TYPICAL_GAP.difference(table, 0, 1, Bootstrap())


def gap_by_pairs(table: AnswerTable, run: int) -> float:
    """Pair by pair: squared differences minus the variances of both rates."""
    class_means = []
    for c in range(len(table.targets)):
        rates = []
        for g in range(len(table.groups)):
            images = (table.group_codes == g) & (table.truth == c)
            if images.any():
                right = int((table.answers[run][images] == c).sum())
                n = int(images.sum())
                smoothed = (right + 1) / (n + 2)
                rates.append((right / n, smoothed * (1 - smoothed) / n))
        squares = [(a - b) ** 2 - v - w for (a, v), (b, w) in combinations(rates, 2)]
        if squares:
            class_means.append(np.mean(squares))
    return math.sqrt(max(0.0, float(np.mean(class_means))))


@pytest.mark.parametrize("seed", range(6))
def test_against_pairs_of_groups(seed: int) -> None:
    table = drawn(seed, groups=2 + seed % 3, classes=2 + seed % 4)
    before = gap_by_pairs(table, 0)
    after = gap_by_pairs(table, 1)
    gap, change = gap_and_change(table)
    assert gap.value == pytest.approx(before, abs=1e-12)
    assert change.value == pytest.approx(after - before, abs=1e-12)


@pytest.mark.parametrize("images_per_cluster", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_moments_are_those_of_drawn_rates(seed: int, images_per_cluster: int) -> None:
    """Weights are drawn for each image, or for each cluster, and rates are made of them."""
    draws = 20_000
    table = drawn(seed, n=240)
    cluster = np.arange(240) // images_per_cluster
    clusters = len(np.unique(cluster))
    factor = 1.0
    if images_per_cluster > 1:
        table = replace(table, clusters=cluster)
        factor = math.sqrt(clusters / (clusters - 1))
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((draws, clusters))
    squares = np.zeros((2, draws))
    for c in range(2):
        rates = []
        for g in range(3):
            images = (table.group_codes == g) & (table.truth == c)
            right = np.array([answers[images] == c for answers in table.answers], float)
            n = images.sum()
            mean = (right.sum(1) + 1) / (n + 2)
            noise = (right.T - mean).T @ weights[:, cluster[images]].T * factor
            added = np.array([[1.0, 0.0], [0.0, 1.0]]) - mean
            noise += added.T @ generator.standard_normal((2, draws))
            rates.append(mean[:, None] + noise / (n + 2))
        squares += np.var(rates, 0, ddof=1)  # twice this, mean over two classes
    of_run = _Moments.of(_rate_blocks(table, (1,)), 1)
    of_change = _Moments.of(_rate_blocks(table, (0, 1)), -1, 1)
    for moments, square in ((of_run, squares[1]), (of_change, squares[1] - squares[0])):
        variance = moments.variance + moments.gap_variance
        assert variance == pytest.approx(square.var(), rel=0.05)
    third = float(np.mean((squares[1] - squares[1].mean()) ** 3))
    assert of_run.third + of_run.gap_third == pytest.approx(third, rel=0.25)


@st.composite
def audits(draw: Any) -> AnswerTable:
    return drawn(
        seed=draw(st.integers(0, 2**32 - 1)),
        groups=draw(st.integers(2, 4)),
        classes=draw(st.integers(2, 4)),
        n=draw(st.integers(20, 300)),
        accuracies=(draw(st.floats(0.3, 1)), draw(st.floats(0.3, 1))),
    )


@settings(max_examples=40)
@given(audits())
def test_it_lies_between_0_and_1_and_its_interval_around_it(table: AnswerTable) -> None:
    for run in (0, 1):
        gap = TYPICAL_GAP.estimate(table, run, Bootstrap())
        if gap.value is None:
            continue
        assert 0 <= gap.value <= 1
        if gap.low is None or gap.high is None:
            assert "fewer than 5 images" in (gap.reason or "")
        else:
            assert 0 <= gap.low <= gap.value <= gap.high <= 1


@settings(max_examples=40)
@given(audits(), st.randoms(use_true_random=False))
def test_names_and_order_of_groups_and_images_change_nothing(
    table: AnswerTable, shuffle: Any
) -> None:
    new_group = np.arange(len(table.groups))
    order = np.arange(len(table.truth))
    shuffle.shuffle(new_group)
    shuffle.shuffle(order)
    shuffled = replace(
        table,
        truth=table.truth[order],
        group_codes=new_group[table.group_codes][order],
        answers=tuple(answers[order] for answers in table.answers),
    )
    for estimate, same in zip(
        gap_and_change(table), gap_and_change(shuffled), strict=True
    ):
        for number, same_number in (
            (estimate.value, same.value),
            (estimate.low, same.low),
            (estimate.high, same.high),
        ):
            assert number == pytest.approx(same_number, abs=1e-9)


@settings(max_examples=20)
@given(audits(), st.integers(5, 40))
def test_intervals_narrow_with_images(table: AnswerTable, times: int) -> None:
    for few, many in zip(
        gap_and_change(table), gap_and_change(repeated(table, times)), strict=True
    ):
        if few.low is not None and few.high is not None:
            assert (many.high or 0) - (many.low or 0) < few.high - few.low


def test_equal_groups_give_0_within_noise() -> None:
    gaps = []
    for seed in range(200):
        table = drawn(seed, n=400)
        is_right = np.random.default_rng(seed).random(400) < 0.7
        answers = np.where(is_right, table.truth, 1 - table.truth)
        equal = replace(table, answers=(answers,))
        gaps.append(TYPICAL_GAP.estimate(equal, 0, Bootstrap()))
    assert np.mean([gap.value == 0 for gap in gaps]) > 0.3
    assert np.mean([gap.low == 0 for gap in gaps]) >= 0.95


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_absent_groups_are_reported_and_small_cells_withhold_the_interval() -> None:
    truth = ["cat", "dog"] * 60
    groups = ["a", "a", "b", "b"] * 30
    answers = ["cat"] * 120
    absent = audit(truth, answers, groups, values=["a", "b", "c"], name="run")
    assert "c" in (absent.document.runs[0].metrics.typical_gap.reason or "")
    truth, groups, answers = truth[:12], groups[:12], answers[:12]  # 3 of each
    before = audit(truth, answers, groups, name="before")
    after = audit(truth, truth, groups, name="after")
    one_group = audit(truth, answers, ["a"] * 12, name="run")
    gap = before.document.runs[0].metrics.typical_gap
    assert gap.low is None
    assert "fewer than 5 images" in (gap.reason or "")
    change = compare([before, after]).difference("typical_gap", "after")
    assert (change.value, change.low) == (0, None)
    assert one_group.document.runs[0].metrics.typical_gap.value is None


@pytest.mark.parametrize(
    ("is_reversed", "reason"),
    [
        (False, "no interval, as no answer changed"),
        (True, "no interval, as every answer changed"),
    ],
)
def test_changes_that_show_nothing(is_reversed: bool, reason: str) -> None:
    table = drawn(0)
    before = table.answers[0]
    after = 1 - before if is_reversed else before
    unclear = replace(table, answers=(before, after))
    change = TYPICAL_GAP.difference(unclear, 0, 1, Bootstrap())
    assert (change.low, change.high, change.reason) == (None, None, reason)
    assert change.value == pytest.approx(0, abs=1e-12)


def test_several_images_of_a_person_count_as_one() -> None:
    """Each image four times: with clusters the interval is that of one of each."""
    table = drawn(3, n=2000)
    four_times = replace(repeated(table, 4), clusters=np.repeat(np.arange(2000), 4))
    _, once = gap_and_change(table)
    _, clustered = gap_and_change(four_times)
    expected = clustered.value, clustered.low, clustered.high
    assert (once.value, once.low, once.high) == pytest.approx(expected, abs=2e-3)


def test_a_cell_of_few_clusters_withholds_the_interval() -> None:
    truth = ["cat", "dog"] * 60
    groups = ["a", "a", "b", "b"] * 30
    # three persons in group a, and each image of group b is of another one
    persons = [f"{g}{i % 12 // 4 if g == 'a' else i}" for i, g in enumerate(groups)]
    clustered = audit(truth, ["cat"] * 120, groups, clusters=persons)
    gap = clustered.document.runs[0].metrics.typical_gap
    assert gap.low is None
    assert "fewer than 5 clusters" in (gap.reason or "")


@pytest.mark.parametrize("persons", [20, 60, 300])
def test_clusters_make_no_interval_narrower(persons: int) -> None:
    table = drawn(4, n=600)
    person = np.random.default_rng(persons).integers(0, persons, 600)
    clustered = replace(table, clusters=person)
    for metric in METRICS.values():
        if isinstance(metric, RateMetric) or metric is TYPICAL_GAP:
            change = metric.difference(table, 0, 1, Bootstrap())
            wider = metric.difference(clustered, 0, 1, Bootstrap())
            assert (wider.low or 0) <= (change.low or 0) + 1e-12, metric.name
            assert (wider.high or 0) >= (change.high or 0) - 1e-12, metric.name
