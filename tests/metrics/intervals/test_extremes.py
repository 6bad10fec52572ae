"""Intervals of changes: against a computation by hand, properties, and how often they hold."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Hashable
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import NormalDist
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    AnswerTable,
    Estimate,
    MaxMinInterval,
    MetricDefinition,
    RateMetric,
    mean_estimate,
)

from fair_tta.metrics import Bootstrap, definitions

FIGURES = (
    definitions.ACCURACY,
    definitions.BALANCED_ACCURACY,
    definitions.WORST_GROUP_ACCURACY,
    definitions.WORST_GROUP_ACCURACY_S,
    definitions.BIAS,
    definitions.BIAS_S,
    definitions.EQUALIZED_ODDS,
    definitions.EQUAL_OPPORTUNITY,
    definitions.DEMOGRAPHIC_PARITY,
    definitions.TYPICAL_GAP,
)
CLOSED_FORMS = (
    definitions.ACCURACY,
    definitions.BALANCED_ACCURACY,
    definitions.TYPICAL_GAP,
)


def changes(table: AnswerTable, level: float = 0.95) -> list[Estimate]:
    return [
        figure.difference(table, 0, 1, Bootstrap(level=level)) for figure in FIGURES
    ]


def table_of(groups: int, classes: int, *columns: Any) -> AnswerTable:
    truth, group, *answers = columns
    names: dict[str, tuple[Hashable, ...]] = {"group": tuple(range(groups))}
    return AnswerTable(tuple(range(classes)), names, truth, group, tuple(answers))


def drawn(seed: int, groups: int = 3, classes: int = 2, n: int = 90) -> AnswerTable:
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, classes, n)
    group = generator.integers(0, groups, n)
    answers = []
    for accuracy in (0.5, 0.7):
        is_known = generator.random(n) < accuracy
        answers.append(np.where(is_known, truth, generator.integers(0, classes, n)))
    return table_of(groups, classes, truth, group, *answers)


def bounds_by_hand(table: AnswerTable) -> dict[str, tuple[float, float]]:
    """WGA, bias and EOD of two classes by the formulas of the max-min interval, form by form.

    Cells are drawn from their covariance matrices, with their own random numbers.
    """
    generator = np.random.default_rng(1)
    n: dict[tuple[int, int], int] = {}
    mean: dict[tuple[int, int], Any] = {}
    noise: dict[tuple[int, int], Any] = {}
    for cell in product(range(len(table.groups)), range(2)):
        g, c = cell
        images = np.flatnonzero((table.group_codes == g) & (table.truth == c))
        if len(images):
            right = np.array([answers[images] == c for answers in table.answers]).T
            x = np.concatenate([right, [[1.0, 0.0], [0.0, 1.0]]])
            n[cell] = len(images)
            mean[cell] = x.mean(0)
            covariance = (x.T @ x / len(x) - np.outer(mean[cell], mean[cell])) / len(x)
            half = generator.multivariate_normal(
                [0, 0], covariance, 10_000, method="eigh"
            )
            noise[cell] = np.concatenate([half, -half])

    cells = list(n)
    total = sum(n.values())
    smoothed_accuracy: Any = 0.0
    for g in {g for g, _ in cells}:  # two images are added to a group, not to its cells
        of_group = [cell for cell in cells if cell[0] == g]
        size = sum(n[cell] for cell in of_group)
        hits = sum(mean[cell] * (n[cell] + 2) - 1 for cell in of_group)
        smoothed_accuracy += (hits + 1) / (size + 2) * size / total
    accuracy_noise = sum(noise[cell] * n[cell] for cell in cells) / total
    pairs = [(a, b) for a in cells for b in cells if a[1] == b[1] and a != b]
    forms: dict[str, list[tuple[Any, Any]]] = {
        "worst_group_accuracy": [(-mean[cell], -noise[cell]) for cell in cells],
        "bias": [
            (smoothed_accuracy - mean[cell], accuracy_noise - noise[cell])
            for cell in cells
        ],
        "equalized_odds_difference": [
            (mean[a] - mean[b], noise[a] - noise[b]) for a, b in pairs
        ],
    }
    bounds = {}
    for name, figure_forms in forms.items():
        t = np.array([form for form, _ in figure_forms])
        z = np.array([form_noise for _, form_noise in figure_forms])
        low = -upper_end_by_hand(t[:, ::-1], z[..., ::-1])
        high = upper_end_by_hand(t, z)
        bounds[name] = (low, high)
        if name == "worst_group_accuracy":  # its forms are minus the accuracies
            bounds[name] = (-high, -low)
    return bounds


def upper_end_by_hand(t: Any, z: Any, error: float = 0.025) -> float:
    """See docs/statistics.md; t is ``[forms, 2]`` and z ``[forms, draws, 2]``."""
    t_before, t_after = t.T
    z_before, z_after = z[..., 0], z[..., 1]
    forms = range(len(t))
    top = int(np.argmax(t_before))
    quantile = NormalDist().inv_cdf(1 - 0.1 * error / (len(t) - 1))
    slack = []
    for i in forms:
        deviation = np.std(z_before[top] - z_before[i])
        slack.append(max(0.0, t_before[top] - t_before[i] - quantile * deviation))
    largest = np.max([z_before[i] - slack[i] for i in forms], 0)
    ends = []
    for j in forms:
        from_largest = z_after[j] - largest + largest.mean()
        from_itself = z_after[j] - z_before[j] + slack[j]
        b = np.std(from_itself)
        a = np.clip(np.std(from_largest) / b, 0.85, 1.25) * np.std(from_largest)
        joint = np.minimum(from_largest / a, from_itself / b)
        k = -np.quantile(joint, 0.9 * error)
        end_from_largest = t_after[j] - max(t_before) + largest.mean() + k * a
        ends.append(min(end_from_largest, t_after[j] - t_before[j] + k * b))
    return float(max(ends))


def overtaken(seed: int, n: int = 800) -> AnswerTable:
    """The clearly worst of three groups improves, and another group becomes the worst."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 2, n)
    group = generator.integers(0, 3, n)
    answers = []
    for accuracies in ([0.3, 0.9, 0.8], [0.9, 0.5, 0.8]):
        is_right = generator.random(n) < np.array(accuracies)[group]
        answers.append(np.where(is_right, truth, 1 - truth))
    return table_of(3, 2, truth, group, *answers)


@pytest.mark.parametrize(
    "table",
    [drawn(seed, 2 + seed % 4, n=200 + 60 * (seed % 5)) for seed in range(8)]
    + [overtaken(seed) for seed in range(2)],
)
def test_against_the_formulas(table: AnswerTable) -> None:
    estimates = {
        figure.name: estimate
        for figure, estimate in zip(FIGURES, changes(table), strict=True)
    }
    for name, (low, high) in bounds_by_hand(table).items():
        change = estimates[name]
        expected = min(low, float(change)), max(high, float(change))
        tolerance = 0.06 * (high - low)
        assert (change.low, change.high) == pytest.approx(expected, abs=tolerance), name


@pytest.mark.parametrize("seed", range(6))
def test_several_methods_are_judged_together(seed: int) -> None:
    """Wider than each alone, at most as wide as by Bonferroni."""
    table = drawn(seed, n=600)
    generator = np.random.default_rng(seed)
    better = [
        np.where(generator.random(600) < 0.1, table.truth, table.answers[0])
        for _ in range(3)
    ]
    table = replace(table, answers=(*table.answers, *better))
    for figure in FIGURES:
        if not isinstance(figure, RateMetric) or figure.intervals is None:
            continue
        change = figure.intervals.change
        if not isinstance(change, MaxMinInterval):
            continue
        for run, (low, high) in enumerate(change.joint_bounds(table, 0.95), start=1):
            low_alone, high_alone = change(table, 0, run, 0.95)
            low_bonferroni, high_bonferroni = change(table, 0, run, 1 - 0.05 / 4)
            tolerance = 0.1 * (high_alone - low_alone)  # other draws
            assert low_bonferroni - tolerance <= low <= low_alone + tolerance
            assert high_alone - tolerance <= high <= high_bonferroni + tolerance


@st.composite
def audits(draw: Any) -> AnswerTable:
    groups = draw(st.integers(1, 4))
    classes = draw(st.integers(2, 4))
    n = draw(st.integers(1, 60))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    truth = generator.integers(0, classes, n)
    group = generator.integers(0, groups, n)
    before = generator.integers(0, classes, n)
    after = generator.integers(0, classes, n)
    if draw(st.booleans()):  # hardly anything changes
        after = np.where(generator.random(n) < 0.9, before, after)
    return table_of(groups, classes, truth, group, before, after)


def may_have_no_width(figure: MetricDefinition, table: AnswerTable) -> bool:
    """Accuracy minus that of the only group is 0."""
    if figure is definitions.BIAS:
        return len(np.unique(table.cell_codes)) == 1
    return figure is definitions.BIAS_S and len(np.unique(table.group_codes)) == 1


def tolerance_of(figure: MetricDefinition, low: float, high: float) -> float:
    """Other draws change a max-min interval."""
    return 1e-9 if figure in CLOSED_FORMS else 1e-9 + 0.15 * (high - low)


@settings(max_examples=40)
@given(audits(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_an_interval_has_a_width_holds_the_estimate_and_turns_with_the_runs(
    table: AnswerTable, level: float
) -> None:
    turned = replace(table, answers=table.answers[::-1])
    there = changes(table, level)
    back_again = changes(turned, level)
    for figure, change, back in zip(FIGURES, there, back_again, strict=True):
        if change.value is None or (change.reason or "").startswith("no interval"):
            assert (change.low, change.high) == (None, None)
            continue
        assert change.low is not None
        assert change.high is not None
        assert -1 <= change.low <= change.value + 1e-12
        assert change.value - 1e-12 <= change.high <= 1
        if not may_have_no_width(figure, table):
            assert change.high - change.low > 1e-6, figure.name
        tolerance = tolerance_of(figure, change.low, change.high)
        assert back.low == pytest.approx(-change.high, abs=tolerance)
        assert back.high == pytest.approx(-change.low, abs=tolerance)


@settings(max_examples=40)
@given(audits(), st.randoms(use_true_random=False))
def test_names_and_order_of_groups_do_not_matter(
    table: AnswerTable, shuffle: Any
) -> None:
    new_group = np.arange(len(table.groups))
    new_class = np.arange(len(table.targets))
    shuffle.shuffle(new_group)
    shuffle.shuffle(new_class)
    renamed = replace(
        table,
        truth=new_class[table.truth],
        group_codes=new_group[table.group_codes],
        answers=tuple(new_class[answers] for answers in table.answers),
    )
    for figure, change, same in zip(
        FIGURES, changes(table), changes(renamed), strict=True
    ):
        if change.value is not None:
            assert change.value == pytest.approx(same.value, abs=1e-12)
        if change.low is not None and change.high is not None:
            tolerance = tolerance_of(figure, change.low, change.high)
            expected = pytest.approx((same.low, same.high), abs=tolerance)
            assert (change.low, change.high) == expected


def test_a_higher_level_is_wider_and_more_images_are_narrower() -> None:
    table = drawn(0, n=200)
    many = replace(
        table,
        truth=np.tile(table.truth, 16),
        group_codes=np.tile(table.group_codes, 16),
        answers=tuple(np.tile(answers, 16) for answers in table.answers),
    )
    for estimates in zip(
        changes(table, 0.8), changes(table, 0.99), changes(many, 0.99), strict=True
    ):
        narrow, wide, narrow_of_many = (
            (estimate.high or 0) - (estimate.low or 0) for estimate in estimates
        )
        assert narrow < wide
        assert narrow_of_many < 0.7 * wide


def test_a_gap_that_closes_is_shown() -> None:
    """One of four cells of 1000 catches up with the others, .3 to .9."""
    right_before = np.ones((4, 1000), bool)
    right_before[:, :100] = False
    right_before[0, :700] = False
    right_after = right_before.copy()
    right_after[0, 100:700] = True
    truth = np.repeat([0, 1, 0, 1], 1000)
    group = np.repeat([0, 0, 1, 1], 1000)
    before, after = (
        np.where(right.ravel(), truth, 1 - truth)
        for right in (right_before, right_after)
    )
    estimates = changes(table_of(2, 2, truth, group, before, after))
    for figure, change in zip(FIGURES, estimates, strict=True):
        if figure.name.startswith("worst_group_accuracy"):
            assert (change.low or 0) > 0.2
        elif figure.better < 0:
            assert (change.high or 0) < -0.05, figure.name


@pytest.mark.parametrize(
    ("n", "shape"),
    [
        *((n, (0.2, 2.0)) for n in (3, 5, 10, 30)),
        *((5, shape) for shape in ((0.5, 2.0), (0.3, 1.0), (5.0, 1.0), (1.0, 1.0))),
    ],
)
def test_means_hold_on_few_images(n: int, shape: tuple[float, float]) -> None:
    """Entropies of one run, and their changes: skewed, as those of confident models are."""
    generator = np.random.default_rng(0)
    true_mean = shape[0] / sum(shape)
    held = np.zeros(2)
    for _ in range(1000):
        entropies = generator.beta(*shape, n)
        moved = entropies * generator.choice([-1.0, 1.0], n, p=[0.2, 0.8])
        mean = mean_estimate(entropies, 0.95)
        change = mean_estimate(moved, 0.95, least=-1.0)
        held[0] += (mean.low or 0) <= true_mean <= (mean.high or 0)
        held[1] += (change.low or 0) <= 0.6 * true_mean <= (change.high or 0)
    assert held.min() >= 930


@pytest.fixture(scope="module")
def coverage() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_intervals_hold_where_there_is_an_effect(coverage: ModuleType) -> None:
    """The designs in which quantiles of resampled differences held in 35 to 80 of 100 audits.

    ``python benchmarks/coverage.py`` tries more of them with more audits.
    """
    names = (
        "four of 60, one drops .12",
        "four of 250, one drops .06",
        "one of 8 drops unseen",
        "cells of 5, one drops .25",
        "three classes, two confused",
        "worst catches up, gap closes",
    )
    for design in coverage.designs():
        if design.name in names:
            for name, tally in coverage.simulate(design, audits=50).items():
                # 0.95 of 50 is 47.5 with a standard deviation of 1.5
                assert tally.holds >= 43 / 50, (design.name, name)
                assert tally.narrowest > 0


def test_effects_are_shown(coverage: ModuleType) -> None:
    figures = {"typical gap": definitions.TYPICAL_GAP}
    for design in coverage.designs():
        bar = coverage.MIN_TYPICAL_GAP_SHOWN.get(design.name)
        if bar is not None:
            tallies = coverage.simulate(design, audits=50, figures=figures)
            tally = tallies["typical gap"]
            assert tally.shows(1) >= bar - 0.1
            assert tally.oracle >= tally.shows(1) - 0.1
