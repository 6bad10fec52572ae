"""Functions that are made from definitions: as audits have them, and with clusters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from internals import RateMetric, accuracy_by_group, pseudo_odds

from fair_tta import metrics
from fair_tta.auditing import Scores, audit
from fair_tta.errors import FairTTAError
from fair_tta.metrics import Bootstrap, definitions

GENERATOR = np.random.default_rng(0)
N = 400
TRUTH = (np.arange(N) % 2).astype(str)
GROUP = (np.arange(N) // 2 % 2).astype(str)
PERSON = np.arange(N) // 8
HARD = GENERATOR.random(N // 8)[PERSON] < 0.3  # answers to images of a person are alike
ANSWERS = np.where(HARD & (GROUP == "1"), "0", TRUTH)
SURE = GENERATOR.uniform(0.5, 1, N)
ENTROPY = GENERATOR.uniform(0, 1, N)


def by_function(name: str, **options: Any) -> metrics.Estimate:
    """The figure of a definition from its public function."""
    if name == "average_target_confidence":
        return metrics.average_target_confidence(entropies=ENTROPY, **options)
    if name == "expected_calibration_error":
        return metrics.expected_calibration_error(TRUTH, ANSWERS, SURE, **options)
    if name.endswith("_s"):
        options["over"] = "sensitive"
    function = getattr(metrics, name.removesuffix("_s"))
    estimate: metrics.Estimate = function(TRUTH, ANSWERS, GROUP, **options)
    return estimate


@pytest.mark.parametrize("clusters", [None, PERSON], ids=["independent", "clusters"])
@pytest.mark.parametrize("name", definitions.METRICS)
def test_a_function_gives_what_an_audit_gives(name: str, clusters: Any) -> None:
    scores = Scores(confidence=SURE, entropy=ENTROPY)
    audited = audit(TRUTH, ANSWERS, GROUP, scores=scores, clusters=clusters)
    estimate = by_function(name, clusters=clusters)
    assert estimate == audited.estimate(name)
    assert estimate.low is not None
    without = by_function(name, clusters=clusters, interval=None)
    assert (without.value, without.low, without.high) == (estimate.value, None, None)


def figures(clusters: Any) -> list[metrics.Estimate]:
    """One of each function that gives figures by group or a change."""
    case = TRUTH, ANSWERS, GROUP
    alike = np.where(HARD, "0", "1")
    balanced = definitions.BALANCED_ACCURACY
    return [
        metrics.group_accuracy(*case, clusters=clusters)["1"],
        metrics.group_rates(*case, clusters=clusters)["1", "1"].true_positive_rate,
        metrics.class_gaps(*case, clusters=clusters)["1"].true_positive_rate,
        metrics.harm_rate(alike, GROUP, ["0"], clusters=clusters)["1"],
        metrics.harm_rate_change(alike, TRUTH, GROUP, ["0"], clusters=clusters)["1"],
        metrics.paired_difference(
            balanced, TRUTH, ANSWERS, TRUTH, GROUP, clusters=clusters
        ),
    ]


def width(figure: metrics.Estimate) -> float:
    assert figure.low is not None
    assert figure.high is not None
    return figure.high - figure.low


def test_figures_by_group_and_changes_take_clusters_too() -> None:
    for independent, of_persons in zip(figures(None), figures(PERSON), strict=True):
        assert independent.value == of_persons.value
        assert width(of_persons) > width(independent)


def test_few_clusters_are_refused() -> None:
    nine_persons = np.arange(N) % 9
    for name in definitions.METRICS:
        with pytest.raises(FairTTAError, match="10 or more persons"):
            by_function(name, clusters=nine_persons)
    with pytest.raises(FairTTAError, match="as long as `y_true`, 400"):
        metrics.accuracy(TRUTH, ANSWERS, clusters=nine_persons[:9])


def test_a_metric_whose_images_are_resampled_takes_no_clusters() -> None:
    mean_accuracy = RateMetric(
        "mean_accuracy", accuracy_by_group, lambda rates: rates.mean(-1)
    )
    case = mean_accuracy, TRUTH, ANSWERS, TRUTH, GROUP
    assert metrics.paired_difference(*case).low is not None
    with pytest.raises(
        FairTTAError, match=r"`clusters` should be None .*\(got 'mean_accuracy'\)"
    ):
        metrics.paired_difference(*case, clusters=PERSON)


def test_calls_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'sensitive'"):
        metrics.bias(["a"], ["a"])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'over'"):
        metrics.typical_gap(["a"], ["a"], ["s"], over="sensitive")  # type: ignore[call-arg]


def test_the_interval_of_bias_is_not_accuracy_minus_that_of_the_worst_group() -> None:
    """As its documentation says."""
    worst = metrics.worst_group_accuracy(TRUTH, ANSWERS, GROUP)
    accuracy = metrics.accuracy(TRUTH, ANSWERS)
    bias = metrics.bias(TRUTH, ANSWERS, GROUP)
    assert worst.low is not None
    assert bias.high is not None
    assert bias.high < float(accuracy) - worst.low - 0.005


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_an_interval_is_a_bootstrap_or_a_level_in_every_function() -> None:
    columns = TRUTH, ANSWERS, GROUP
    beliefs = [[0.9, 0.1], [0.2, 0.8]] * (N // 2)
    functions: list[Callable[..., Any]] = [
        *(partial(by_function, name) for name in definitions.METRICS),
        partial(metrics.class_gaps, *columns),
        partial(metrics.group_accuracy, *columns),
        partial(metrics.group_rates, *columns),
        partial(metrics.average_sensitive_indifference, entropies=ENTROPY),
        partial(metrics.harm_rate, ANSWERS, GROUP, ["0"]),
        partial(metrics.harm_rate_change, TRUTH, ANSWERS, GROUP, ["0"]),
        partial(pseudo_odds, [[0, 1] * (N // 2)], beliefs, beliefs),
    ]
    for function in functions:
        estimate = function(interval=0.9)
        assert estimate == function(interval=Bootstrap(level=0.9)), function
        assert estimate != function(interval=0.99), function
        with pytest.raises(FairTTAError, match="should be a Bootstrap or a level"):
            function(interval="0.9")
        with pytest.raises(FairTTAError, match="`level` should lie between 0 and 1"):
            function(interval=2)


def test_without_an_interval_groups_have_only_values() -> None:
    columns = TRUTH, ANSWERS, GROUP
    rates = metrics.group_rates(*columns, interval=None)["1", "1"]
    gaps = metrics.class_gaps(*columns, interval=None)["1"]
    accuracy = metrics.group_accuracy(*columns, interval=None)["1"]
    harm = metrics.harm_rate(ANSWERS, GROUP, ["0"], interval=None)["1"]
    estimates = [*vars(rates).values(), *vars(gaps).values(), accuracy, harm]
    assert all(estimate.value is not None for estimate in estimates)
    assert all(estimate.low is None for estimate in estimates)
