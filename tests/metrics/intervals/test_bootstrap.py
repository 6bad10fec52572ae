"""Resampled intervals agree with resampled rows; all intervals narrow with n and hold the truth."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from internals import (
    AnswerTable,
    Floats,
    GroupBy,
    Ints,
    RateMetric,
    read_answer_table,
    resampled_bounds,
)
from internals import rates_module as rates

from fair_tta import metrics
from fair_tta.errors import SmallGroupWarning
from fair_tta.metrics import Bootstrap, Estimate, definitions

RATES = np.array([[0.9, 0.7], [0.8, 0.6]])
ACCURACY = RateMetric("own accuracy", rates.overall_accuracy, lambda accuracy: accuracy)
MEAN_OF_GROUPS = RateMetric("own", rates.accuracy_by_group, lambda r: r.mean(-1))
RESAMPLED_ODDS = replace(definitions.EQUALIZED_ODDS, intervals=None)


def noisy(
    accuracy: Floats, sizes: int | Ints, seed: int = 0, runs: int = 1
) -> tuple[Ints, Ints, list[Ints]]:
    """Two classes; each (group, class) cell is right with its own probability."""
    generator = np.random.default_rng(seed)
    cell = np.repeat(np.arange(accuracy.size), sizes)
    truth = cell % 2
    answers = []
    for _ in range(runs):
        is_right = generator.random(len(cell)) < accuracy.ravel()[cell]
        answers.append(np.where(is_right, truth, 1 - truth))
    return truth, cell // 2, answers


def bounds(figure: Estimate) -> tuple[float, float]:
    assert figure.low is not None
    assert figure.high is not None
    return figure.low, figure.high


def width(figure: Estimate) -> float:
    low, high = bounds(figure)
    return high - low


@pytest.mark.parametrize("accuracy", [[[0.8, 0.8]] * 4, [[0.9, 0.85], [0.8, 0.4]]])
def test_intervals_cover_the_truth(accuracy: list[list[float]]) -> None:
    """Also where all groups are equal, where quantiles of resampled gaps never reach 0."""
    cell_rates = np.array(accuracy)
    sizes = np.full(cell_rates.size, 50)
    sizes[-1] = 20
    expected_counts = np.zeros((len(cell_rates), 2, 2))
    for c in range(2):
        n = sizes.reshape(-1, 2)[:, c]
        expected_counts[:, c, c] = cell_rates[:, c] * n
        expected_counts[:, c, 1 - c] = (1 - cell_rates[:, c]) * n
    figures = [
        definitions.ACCURACY,
        definitions.EQUALIZED_ODDS,
        definitions.EQUAL_OPPORTUNITY,
        definitions.DEMOGRAPHIC_PARITY,
        definitions.WORST_GROUP_ACCURACY,
        definitions.BIAS,
    ]
    truths = [float(figure(expected_counts)) for figure in figures]
    covered = np.zeros(len(figures) + 1)
    for seed in range(120):
        truth, group, answers = noisy(cell_rates, sizes, seed, runs=2)
        table = read_answer_table(truth, answers, group, None, None)
        estimates = [figure.estimate(table, 0, Bootstrap()) for figure in figures]
        worst = definitions.WORST_GROUP_ACCURACY
        estimates.append(worst.difference(table, 0, 1, Bootstrap()))
        for i, (estimate, true_value) in enumerate(
            zip(estimates, [*truths, 0.0], strict=True)
        ):
            low, high = bounds(estimate)
            assert low <= float(estimate) <= high
            covered[i] += low - 1e-9 <= true_value <= high + 1e-9
    # 0.95 of 120 is 114 with a standard deviation of 2.4
    assert covered.min() >= 107


def test_resampled_tables_agree_with_resampled_rows() -> None:
    """Figures of a run, a change, and the noise of a gap, from a bootstrap that draws rows."""
    truth, group, (before,) = noisy(RATES, 150)
    after = np.where(np.random.default_rng(5).random(600) < 0.1, truth, before)
    table = read_answer_table(truth, [before, after], group, None, None)
    generator = np.random.default_rng(1)
    strata = [np.flatnonzero(2 * group + truth == cell) for cell in range(4)]
    observed_rates = RESAMPLED_ODDS.rates(table.counts().astype(float))
    accuracies, changes, gap_noises = [], [], []
    for _ in range(3000):
        drawn = np.concatenate([generator.choice(rows, len(rows)) for rows in strata])
        resampled = AnswerTable(
            (0, 1),
            table.values,
            truth[drawn],
            group[drawn],
            (before[drawn], after[drawn]),
        )
        counts_before, counts_after = resampled.counts(0), resampled.counts(1)
        accuracies.append(ACCURACY(counts_before))
        changes.append(MEAN_OF_GROUPS(counts_after) - MEAN_OF_GROUPS(counts_before))
        noise = RESAMPLED_ODDS.rates(counts_before.astype(float)) - observed_rates
        gap_noises.append(RESAMPLED_ODDS.combine(noise))

    settings = Bootstrap(4000)
    accuracy = ACCURACY.estimate(table, 0, settings)
    quantiles = np.quantile(accuracies, [0.025, 0.975])
    assert bounds(accuracy) == pytest.approx(quantiles, abs=0.005)
    change = MEAN_OF_GROUPS.difference(table, 0, 1, settings)
    quantiles = np.quantile(changes, [0.025, 0.975])
    assert bounds(change) == pytest.approx(quantiles, abs=0.01)
    gap = RESAMPLED_ODDS.estimate(table, 0, settings)
    margin = np.quantile(gap_noises, 0.95)
    expected = max(0, float(gap) - margin), float(gap) + margin
    assert bounds(gap) == pytest.approx(expected, abs=0.006)

    unpaired = metrics.accuracy(truth, after, group, interval=Bootstrap())
    assert width(change) < 0.7 * width(unpaired)
    unchanged = MEAN_OF_GROUPS.difference(table, 0, 0, settings)
    assert width(unchanged) > 0.001, "no change is not certain"


def test_intervals_narrow_with_n() -> None:
    truth, group, (answers,) = noisy(RATES, 100)
    many = np.tile(truth, 16), np.tile(group, 16), np.tile(answers, 16)
    figures: list[Callable[[Ints, Ints, Ints], Estimate]] = [
        lambda t, g, a: metrics.accuracy(t, a, g),
        lambda t, g, a: metrics.equalized_odds_difference(t, a, g),
        lambda t, g, a: metrics.worst_group_accuracy(t, a, g),
        lambda t, g, a: metrics.bias(t, a, g),
        lambda t, g, a: metrics.class_gaps(t, a, g)[0].true_positive_rate,
        lambda t, g, a: metrics.group_accuracy(t, a, g)[0],
    ]
    for figure in figures:
        narrow = figure(*many)
        wide = figure(truth, group, answers)
        assert narrow.value == pytest.approx(wide.value)
        assert width(narrow) == pytest.approx(width(wide) / 4, rel=0.35)


def test_a_group_of_one_warns_and_its_interval_is_wide() -> None:
    truth, group, (answers,) = noisy(np.full((2, 2), 0.9), 200)
    truth = np.append(truth, 1)
    group = np.append(group, 2)
    answers = np.append(answers, 1)
    with pytest.warns(SmallGroupWarning, match=r": 1 / 2 \(n = 1\)\.") as caught:
        odds = metrics.equalized_odds_difference(truth, answers, group)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert width(odds) > 0.5
    assert odds.reason == "left out, no images: 0 / 2"
    with pytest.warns(SmallGroupWarning):
        assert width(metrics.group_accuracy(truth, answers, group)[2]) > 0.7
    with pytest.warns(SmallGroupWarning):
        worst = metrics.worst_group_accuracy(truth, answers, group)
    assert bounds(worst)[0] < 0.2, "it may be that group"


def test_strata_of_sensitive_values_only() -> None:
    truth, group, (answers,) = noisy(np.array([[0.9, 0.5], [0.9, 0.5]]), 100)
    table = read_answer_table(truth, [answers], group, None, None)
    fixed = ACCURACY.estimate(table, 0, Bootstrap())
    free = ACCURACY.estimate(table, 0, Bootstrap(strata="sensitive"))
    assert width(free) > 1.05 * width(fixed), "classes of different accuracy vary in n"

    gap = RateMetric(
        "gap", rates.true_positive_rates, rates.gap_between_groups, is_gap=True
    )
    truth = np.array([0] * 40 + [1])
    group = np.array([0, 1] * 20 + [0])
    table = read_answer_table(truth, [truth], group, None, None)
    low, _ = resampled_bounds(gap, table.counts(), Bootstrap(strata="sensitive"))
    assert np.isnan(low[1]), "resamples without class 1 have no rate of it"


def test_strata_of_a_change() -> None:
    """Class 0 gains, class 1 stays."""
    truth = np.array([0, 1] * 200)
    before = np.ones(400, int)
    fixed, free = (
        metrics.paired_difference(
            ACCURACY, truth, before, truth, before, interval=Bootstrap(strata=strata)
        )
        for strata in GroupBy
    )
    assert fixed.value == free.value == 0.5
    assert width(fixed) < 0.04
    assert width(free) == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 400), rel=0.1)


def test_the_seed_decides() -> None:
    truth, group, answers = noisy(RATES, 50)
    table = read_answer_table(truth, answers, group, None, None)
    first, same, other = (
        MEAN_OF_GROUPS.estimate(table, 0, Bootstrap(300, seed)) for seed in (1, 1, 2)
    )
    assert first == same != other


def test_ten_thousand_resamples_are_quick() -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 2, 20_000)
    group = generator.integers(0, 14, 20_000)
    before, after = (
        np.where(generator.random(20_000) < accuracy, truth, 1 - truth)
        for accuracy in (0.8, 0.85)
    )
    table = read_answer_table(truth, [before, after], group, None, None)
    start = time.process_time()  # of this process, however busy the machine is
    RESAMPLED_ODDS.estimate(table, 0, Bootstrap(10_000))
    RESAMPLED_ODDS.difference(table, 0, 1, Bootstrap(10_000))
    assert time.process_time() - start < 10


def test_many_classes_fit_in_memory() -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 60, 5000)
    group = generator.integers(0, 2, 5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        change = metrics.paired_difference(
            definitions.EQUALIZED_ODDS, truth, truth, 59 - truth, group
        )
    assert change.low is not None
