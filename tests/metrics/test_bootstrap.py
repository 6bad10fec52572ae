"""Intervals: they cover, narrow with n, agree with resampled rows, and do not hide small groups."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
from internals import rates_module as _rates

from fair_tta import metrics
from fair_tta.errors import FairTTAError, SmallGroupWarning
from fair_tta.metrics import Bootstrap, Estimate, definitions


def noisy(
    accuracy: Floats, sizes: Ints, seed: int, runs: int = 1, groups: int = 2
) -> tuple[Ints, Ints, list[Ints]]:
    """Two classes; each (group, class) cell is right with its own probability."""
    generator = np.random.default_rng(seed)
    cell = np.repeat(np.arange(accuracy.size), sizes)
    group, truth = cell // 2, cell % 2
    answers = [
        np.where(generator.random(len(cell)) < accuracy.ravel()[cell], truth, 1 - truth)
        for _ in range(runs)
    ]
    return truth, group, answers


def ends(figure: Estimate) -> tuple[float, float]:
    assert figure.low is not None
    assert figure.high is not None
    return figure.low, figure.high


def width(figure: Estimate) -> float:
    low, high = ends(figure)
    return high - low


@pytest.mark.parametrize("accuracy", [[[0.8, 0.8]] * 4, [[0.9, 0.85], [0.8, 0.4]]])
def test_intervals_cover_the_truth(accuracy: Any) -> None:
    """Also where all groups are equal, where quantiles of resampled gaps never reach 0."""
    rates = np.array(accuracy)
    sizes = np.full(rates.size, 50)
    sizes[-1] = 20
    true = np.zeros((len(rates), 2, 2))
    for c in range(2):
        true[:, c, c] = rates[:, c] * sizes.reshape(-1, 2)[:, c]
        true[:, c, 1 - c] = (1 - rates[:, c]) * sizes.reshape(-1, 2)[:, c]
    some = [
        definitions.ACCURACY,
        definitions.EQUALIZED_ODDS,
        definitions.EQUAL_OPPORTUNITY,
        definitions.DEMOGRAPHIC_PARITY,
    ]
    trials = 120
    covered = np.zeros(len(some) + 3)
    for seed in range(trials):
        truth, group, answers = noisy(rates, sizes, seed, runs=2)
        rows = read_answer_table(truth, answers, group, None, None)
        closed = [definitions.WORST_GROUP_ACCURACY, definitions.BIAS]
        found = [metric.estimate(rows, 0, Bootstrap()) for metric in (*some, *closed)]
        found.append(
            definitions.WORST_GROUP_ACCURACY.difference(rows, 0, 1, Bootstrap())
        )
        expected = [float(metric(true)) for metric in some]
        expected += [float(m(true)) for m in closed]
        expected.append(0.0)
        for i, (figure, value) in enumerate(zip(found, expected, strict=True)):
            low, high = ends(figure)
            assert low <= float(figure) <= high
            covered[i] += low - 1e-9 <= value <= high + 1e-9
    # 0.95 of 120 is 114 with a standard deviation of 2.4
    assert covered.min() >= 107


def test_agrees_with_resampled_rows() -> None:
    """User-defined metrics: quantiles, and the noise of gaps, from a bootstrap that draws rows."""
    truth, group, (answers,) = noisy(
        np.array([[0.9, 0.7], [0.8, 0.6]]), np.array([150] * 4), 0
    )
    how = Bootstrap(4000)
    mean = RateMetric("own", _rates.overall_accuracy, lambda rates: rates)
    gap = replace(definitions.EQUALIZED_ODDS, intervals=None)
    rows = read_answer_table(truth, [answers], group, None, None)
    generator = np.random.default_rng(1)
    strata = [np.flatnonzero(2 * group + truth == k) for k in range(4)]
    observed = gap.rates(rows.counts().astype(float))
    means, noises = [], []
    for _ in range(3000):
        drawn = np.concatenate([generator.choice(s, len(s)) for s in strata])
        again = AnswerTable(
            (0, 1), rows.values, truth[drawn], group[drawn], (answers[drawn],)
        )
        counts = again.counts().astype(float)
        means.append(mean(counts))
        noises.append(gap.combine(gap.rates(counts) - observed))
    assert ends(mean.estimate(rows, 0, how)) == pytest.approx(
        np.quantile(means, [0.025, 0.975]), abs=0.005
    )
    value = float(gap.estimate(rows, 0, None))
    reach = np.quantile(noises, 0.95)
    found = ends(gap.estimate(rows, 0, how))
    assert found == pytest.approx([max(0, value - reach), value + reach], abs=0.006)


def test_a_user_defined_metric_agrees_with_resampled_rows_and_is_narrower_than_unpaired() -> (
    None
):
    truth, group, (before,) = noisy(
        np.array([[0.9, 0.7], [0.8, 0.6]]), np.array([150] * 4), 0
    )
    after = np.where(np.random.default_rng(5).random(600) < 0.1, truth, before)
    own = RateMetric("own", _rates.accuracy_by_group, lambda rates: rates.mean(-1))
    rows = read_answer_table(truth, [before, after], group, None, None)
    found = own.difference(rows, 0, 1, Bootstrap(4000))
    generator = np.random.default_rng(1)
    strata = [np.flatnonzero(2 * group + truth == k) for k in range(4)]
    values = []
    for _ in range(3000):
        drawn = np.concatenate([generator.choice(s, len(s)) for s in strata])
        resampled = AnswerTable(
            (0, 1),
            rows.values,
            truth[drawn],
            group[drawn],
            (before[drawn], after[drawn]),
        )
        values.append(float(own(resampled.counts(1)) - own(resampled.counts(0))))
    assert found.value == pytest.approx(
        float(own(rows.counts(1)) - own(rows.counts(0)))
    )
    assert ends(found) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.01)
    alone = metrics.accuracy(truth, after, group, interval=Bootstrap())
    assert width(found) < 0.7 * width(alone)
    same = own.difference(rows, 0, 0, Bootstrap(4000))
    assert width(same) > 0.001  # nothing changed here: that is no certainty


def test_intervals_narrow_with_n() -> None:
    small = noisy(np.array([[0.9, 0.7], [0.8, 0.6]]), np.array([100] * 4), 0)
    truth, group, (answers,) = small
    large = np.tile(truth, 16), np.tile(group, 16), np.tile(answers, 16)
    how = Bootstrap()
    of: list[Callable[[Ints, Ints, Ints], Estimate]] = [
        lambda t, g, a: metrics.accuracy(t, a, g, interval=how),
        lambda t, g, a: metrics.equalized_odds_difference(t, a, g, interval=how),
        lambda t, g, a: metrics.worst_group_accuracy(t, a, g),
        lambda t, g, a: metrics.bias(t, a, g),
        lambda t, g, a: metrics.class_gaps(t, a, g, interval=how)[0].true_positive_rate,
        lambda t, g, a: metrics.group_accuracy(t, a, g)[0],
    ]
    for metric in of:
        narrow, wide = metric(*large), metric(truth, group, answers)
        assert narrow.value == pytest.approx(wide.value)
        assert width(narrow) == pytest.approx(width(wide) / 4, rel=0.35)


def test_a_group_of_one_warns_and_its_interval_is_wide() -> None:
    truth, group, (answers,) = noisy(
        np.array([[0.9, 0.9], [0.9, 0.9]]), np.array([200] * 4), 0
    )
    truth, group, answers = (
        np.append(c, x) for c, x in ((truth, 1), (group, 2), (answers, 1))
    )
    with pytest.warns(
        SmallGroupWarning, match=r"Fewer than 30 images.*: 1 / 2 \(n = 1\)\."
    ) as seen:
        odds = metrics.equalized_odds_difference(
            truth, answers, group, interval=Bootstrap()
        )
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert width(odds) > 0.5
    assert odds.reason == "left out, no images: 0 / 2"
    with pytest.warns(SmallGroupWarning):
        figure = metrics.group_accuracy(truth, answers, group)[2]
    assert width(figure) > 0.7
    with pytest.warns(SmallGroupWarning):
        lowest = metrics.worst_group_accuracy(truth, answers, group)
    assert ends(lowest)[0] < 0.2  # it may be that group


def test_all_wrong_is_not_certain() -> None:
    truth = np.repeat([0, 1], 10)
    with pytest.warns(SmallGroupWarning):
        lowest = metrics.worst_group_accuracy(
            truth, np.zeros(20, int), np.zeros(20, int)
        )
    assert lowest.value == 0
    assert ends(lowest)[1] > 0.3


def test_nothing_changed_is_no_certainty() -> None:
    truth, group, (answers,) = noisy(
        np.array([[0.9, 0.7], [0.8, 0.6]]), np.array([50] * 4), 0
    )
    found = metrics.paired_difference(definitions.BIAS, truth, answers, answers, group)
    low, high = ends(found)
    assert low < float(found) == 0 < high


def test_a_metric_of_ones_own() -> None:
    truth, group, (answers,) = noisy(
        np.array([[0.9, 0.7], [0.8, 0.6]]), np.array([50] * 4), 0
    )
    error = RateMetric(
        "error", lambda c: 1 - _rates.overall_accuracy(c), lambda rates: rates
    )
    how = Bootstrap(500)
    found = metrics.paired_difference(error, truth, answers, truth, group, interval=how)
    accuracy = float(metrics.accuracy(truth, answers))
    assert float(found) == pytest.approx(accuracy - 1)


def test_strata_of_sensitive_values_only() -> None:
    own = RateMetric("own", _rates.overall_accuracy, lambda rates: rates)
    truth, group, (answers,) = noisy(
        np.array([[0.9, 0.5], [0.9, 0.5]]), np.array([100] * 4), 0
    )
    rows = read_answer_table(truth, [answers], group, None, None)
    fixed = own.estimate(rows, 0, Bootstrap())
    free = own.estimate(rows, 0, Bootstrap(strata="sensitive"))
    assert width(free) > 1.05 * width(
        fixed
    )  # classes vary in number, and differ in accuracy
    gaps = RateMetric(
        "gaps", _rates.true_positive_rates, _rates.gap_between_groups, is_gap=True
    )
    sparse = np.array([0] * 40 + [1])
    rows = read_answer_table(sparse, [sparse], np.array([0, 1] * 20 + [0]), None, None)
    low, _ = resampled_bounds(gaps, rows.counts(), Bootstrap(strata="sensitive"))
    assert np.isnan(low[1])  # resamples without class 1 have no rate for it


def test_strata_of_a_metric_of_ones_own() -> None:
    own = RateMetric("accuracy", _rates.overall_accuracy, lambda rates: rates)
    truth, before = (
        np.array([0, 1] * 200),
        np.ones(400, int),
    )  # class 0 gains, class 1 stays
    fixed, free = (
        metrics.paired_difference(
            own, truth, before, truth, before, interval=Bootstrap(strata=s)
        )
        for s in GroupBy
    )
    assert fixed.value == free.value == 0.5
    assert width(fixed) < 0.04
    assert width(free) == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 400), rel=0.1)


def test_the_seed_decides() -> None:
    truth, group, (answers,) = noisy(
        np.array([[0.9, 0.7], [0.8, 0.6]]), np.array([50] * 4), 0
    )
    rows = read_answer_table(truth, [answers], group, None, None)
    own = RateMetric("own", _rates.accuracy_by_group, lambda rates: rates.mean(-1))
    one, same, other = (
        own.estimate(rows, 0, Bootstrap(300, seed)) for seed in (1, 1, 2)
    )
    assert one == same != other


def test_ten_thousand_resamples_are_quick() -> None:
    generator = np.random.default_rng(0)
    truth, group = generator.integers(0, 2, 20_000), generator.integers(0, 14, 20_000)
    runs = [
        np.where(generator.random(20_000) < a, truth, 1 - truth) for a in (0.8, 0.85)
    ]
    start = time.process_time()  # of this process, however busy the machine is
    how = Bootstrap(10_000)
    metrics.equalized_odds_difference(truth, runs[0], group, interval=how)
    metrics.paired_difference(
        definitions.EQUALIZED_ODDS, truth, runs[0], runs[1], group, interval=how
    )
    assert time.process_time() - start < 10


def test_many_classes_fit_in_memory() -> None:
    generator = np.random.default_rng(0)
    truth, group = generator.integers(0, 60, 5000), generator.integers(0, 2, 5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        found = metrics.paired_difference(
            definitions.EQUALIZED_ODDS,
            truth,
            truth,
            59 - truth,
            group,
            interval=Bootstrap(600),
        )
    assert found.low is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resamples": 0}, "`resamples` should be an integer >= 1 (got 0)."),
        ({"seed": -1}, "`seed` should be an integer >= 0 (got -1)."),
        ({"level": 1.0}, "`level` should lie between 0 and 1 (got 1.0)."),
        ({"level": "a"}, "`level` should lie between 0 and 1 (got 'a')."),
        (
            {"strata": "s"},
            "`strata` should be 'target and sensitive' or 'sensitive' (got 's').",
        ),
    ],
)
def test_errors(arguments: Any, message: str) -> None:
    with pytest.raises(FairTTAError) as error:
        Bootstrap(**arguments)
    assert str(error.value) == message
