"""Rates of groups and classes against scikit-learn and fairlearn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from answer_columns import CLASSES, VALUES, Columns, answer_columns
from hypothesis import given, settings

from fair_tta import metrics

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
fairlearn: Any = pytest.importorskip("fairlearn.metrics")
sklearn: Any = pytest.importorskip("sklearn.metrics")


@settings(max_examples=40, deadline=None)
@given(answer_columns(2, 3))
def test_two_classes_equal_fairlearn(columns: Columns) -> None:
    y_true, y_pred, sensitive = columns
    cells = set(zip(y_true, sensitive, strict=True))
    groups = set(sensitive)
    if len(groups) < 2 or len(cells) < 2 * len(groups):
        return  # fairlearn returns 0 for rates that do not exist

    is_dog = [int(t == "dog") for t in y_true], [int(p == "dog") for p in y_pred]
    features = {"sensitive_features": sensitive}
    gaps = metrics.class_gaps(*columns, targets=CLASSES)["dog"]
    odds = metrics.equalized_odds_difference(*columns)
    pairs = [
        (odds, fairlearn.equalized_odds_difference),
        (gaps.true_positive_rate, fairlearn.equal_opportunity_difference),
        (gaps.selection_rate, fairlearn.demographic_parity_difference),
    ]
    for estimate, theirs in pairs:
        assert estimate.value == pytest.approx(theirs(*is_dog, **features))

    frame = fairlearn.MetricFrame(
        metrics={"accuracy": sklearn.accuracy_score, "n": fairlearn.count},
        y_true=y_true,
        y_pred=y_pred,
        **features,
    )
    for group, accuracy in metrics.group_accuracy(*columns).items():
        assert accuracy.value == pytest.approx(frame.by_group["accuracy"][group])
        assert accuracy.n == frame.by_group["n"][group]
    worst = metrics.worst_group_accuracy(*columns, over="sensitive")
    assert worst.value == pytest.approx(frame.group_min()["accuracy"])


@settings(max_examples=40, deadline=None)
@given(answer_columns(3, 2))
def test_rates_equal_scikit_learn(columns: Columns) -> None:
    y_true, y_pred, sensitive = map(np.array, columns)
    accuracy = metrics.accuracy(y_true, y_pred, targets=CLASSES)
    assert accuracy.value == sklearn.accuracy_score(y_true, y_pred)
    table = metrics.group_rates(*columns, targets=CLASSES, values=VALUES)
    for cell, rates in table.items():
        assert isinstance(cell, tuple)
        target, group = cell
        mask = sensitive == group
        if not mask.any():
            for rate in vars(rates).values():
                assert (rate.value, rate.n) == (None, 0)
                assert rate.reason
            continue
        is_target = y_true[mask] == target
        is_answer = y_pred[mask] == target
        confusion = sklearn.confusion_matrix(is_target, is_answer, labels=[False, True])
        (true_negative, false_positive), (false_negative, true_positive) = confusion
        positives = true_positive + false_negative
        negatives = false_positive + true_negative
        for rate, hits, n in (
            (rates.true_positive_rate, true_positive, positives),
            (rates.false_positive_rate, false_positive, negatives),
            (rates.selection_rate, true_positive + false_positive, mask.sum()),
        ):
            assert rate.n == n
            expected = hits / n if n else math.nan
            assert float(rate) == pytest.approx(expected, nan_ok=True)


def test_gaps_of_classes_are_differences_of_rates() -> None:
    generator = np.random.default_rng(3)
    columns = [generator.choice(names, 600) for names in (CLASSES, CLASSES, VALUES)]
    rates = metrics.group_rates(*columns)
    gaps = metrics.class_gaps(*columns)
    for target in CLASSES:
        for kind, gap in vars(gaps[target]).items():
            of_groups = [getattr(rates[(target, s)], kind).value for s in VALUES]
            assert gap.value == pytest.approx(max(of_groups) - min(of_groups))

    true_positive = [float(gap.true_positive_rate) for gap in gaps.values()]
    false_positive = [float(gap.false_positive_rate) for gap in gaps.values()]
    selection = [float(gap.selection_rate) for gap in gaps.values()]
    odds = np.maximum(true_positive, false_positive)
    for metric, gaps_of_metric in (
        (metrics.equalized_odds_difference, odds),
        (metrics.demographic_parity_difference, selection),
        (metrics.equal_opportunity_difference, true_positive),
    ):
        mean_gap = pytest.approx(np.mean(gaps_of_metric))
        assert float(metric(*columns)) == mean_gap


def test_several_attributes_make_intersections() -> None:
    y_true = ["cat"] * 120
    y_pred = ["cat"] * 90 + ["dog"] * 30
    both = {"sex": ["man", "woman"] * 60, "age": ["old"] * 60 + ["young"] * 60}
    groups = metrics.group_accuracy(y_true, y_pred, both, targets=["cat", "dog"])
    assert {group: accuracy.value for group, accuracy in groups.items()} == {
        ("man", "old"): 1,
        ("man", "young"): 0.5,
        ("woman", "old"): 1,
        ("woman", "young"): 0.5,
    }
    assert groups[("man", "old")].n == 30
    cells = metrics.group_accuracy(
        y_true, y_pred, both, over="target and sensitive", targets=["cat", "dog"]
    )
    assert cells[("cat", "man", "young")].value == 0.5
    assert cells[("dog", "man", "young")].reason == "no images: dog / man / young"
