"""Inputs of metrics: columns, names, scores and settings that are refused or warned about."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from internals import (
    RateMetric,
    Scores,
    gap_between_groups,
    pseudo_rates,
    r_squared,
    selection_rates,
)

from fair_tta import audit, metrics

HALVES = [[0.5, 0.5]] * 2
NAMES = ["cat", "dog"] * 40
ANSWERS = ["cat"] * 80
PLACES = ["in"] * 40 + ["out"] * 40


def bias(
    y_true: Any = ("a",), y_pred: Any = ("a",), sensitive: Any = ("s",), **options: Any
) -> object:
    return metrics.bias(y_true, y_pred, sensitive, **options)


def paired(metric: Any, **options: Any) -> object:
    columns = ["a", "b"], ["a", "b"], ["a", "b"], ["x", "y"]
    return metrics.paired_difference(metric, *columns, **options)


def gap_reason(metric: str, *columns: Any, **options: Any) -> str:
    return str(getattr(metrics, metric)(*columns, **options).reason)


def table(*columns: Any, **options: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(*columns, **options)


def update(*batches: Any) -> None:
    stream = metrics.MetricStream(targets=["cat", "dog"])
    for batch in batches:
        stream.update(*batch)


# A column of one value per image

CASES: dict[str, Any] = {
    "no rows": lambda _: bias([], [], []),
    "a text instead of a column": lambda _: bias("ab"),
    "a number instead of a column": lambda _: bias(3),
    "an array without dimensions": lambda _: bias(np.array(3)),
    "a column of lists": lambda _: bias([["a"]]),
    "a set instead of a column": lambda _: metrics.accuracy({"a", "b"}, ["a", "b"]),
    "a table instead of a column": lambda _: metrics.accuracy(
        table({"label": NAMES}), ANSWERS
    ),
    "columns of different lengths": lambda _: bias(y_pred=["a", "b"]),
    "a sensitive column that is too short": lambda _: bias(sensitive={"sex": []}),
    "a missing label": lambda _: bias(["a", None], ["a", "b"], ["s", "s"]),
    "a sensitive value that is NaN": lambda _: bias(sensitive=[math.nan]),
    "the text of a missing value": lambda _: audit(
        NAMES, ANSWERS, ["nan", *PLACES[1:]]
    ),
    "no attribute": lambda _: bias(sensitive={}),
    "an attribute that is a number": lambda _: bias(sensitive={1: ["s"]}),
    "two columns of one name": lambda _: audit(
        NAMES, ANSWERS, table([["x", "y"]] * 80, columns=[1, "1"])
    ),
    "few clusters": lambda _: metrics.accuracy(
        NAMES, NAMES, clusters=[row % 9 for row in range(80)]
    ),
}

# Names of classes and values

CASES |= {
    "an answer that is not in targets": lambda _: bias(
        y_pred=["b"], targets=["a", "c"]
    ),
    "a value that is not in values": lambda _: bias(values=["t"]),
    "targets that repeat": lambda _: bias(targets=["a", "a"]),
    "values of one of two attributes": lambda _: bias(
        sensitive={"x": ["s"], "y": ["s"]}, values=["s"]
    ),
    "values of another attribute": lambda _: bias(
        sensitive={"x": ["s"]}, values={"z": ["s"]}
    ),
    "labels that are numbers and answers that are text": lambda _: metrics.accuracy(
        [1, 0], ["1", "0"]
    ),
    "names that look alike": lambda _: bias(["a"] * 2, ["a"] * 2, ["man", "man\u200b"]),
    "a number and its text": lambda _: bias(["a"] * 2, ["a"] * 2, [1, "1"]),
    "no answer is a label but some translate": lambda _: metrics.accuracy(
        NAMES, ["a cat", "a dog"] * 40
    ),
    "no answer is a label": lambda _: metrics.accuracy(NAMES, ["1", "0"] * 40),
    "some answers are no label": lambda _: metrics.accuracy(
        NAMES, [*NAMES[:-1], "Dog"]
    ),
    "over a group that does not exist": lambda _: bias(over="s"),
}

# Gaps that are not defined

CASES |= {
    "a gap of one group": lambda _: gap_reason(
        "equalized_odds_difference", ["a", "b"], ["a", "a"], ["man", "man"]
    ),
    "a gap of one group and an empty one": lambda _: gap_reason(
        "equalized_odds_difference",
        ["a", "b"],
        ["a", "a"],
        ["man", "man"],
        values=["man", "woman"],
    ),
    "a gap of one class": lambda _: gap_reason(
        "equalized_odds_difference", ["a"] * 80, ["a"] * 80, PLACES
    ),
    "a gap of groups without a common class": lambda _: gap_reason(
        "equal_opportunity_difference", PLACES, PLACES, PLACES
    ),
    "few images of a group": lambda _: metrics.group_accuracy(
        ["a"] * 40, ["a"] * 40, ["x"] * 3 + ["y"] * 37
    ),
}

# Metrics and intervals

CASES |= {
    "a metric by its name": lambda _: paired("accuracy"),
    "a metric of each class": lambda _: paired(
        RateMetric("selection_rate_gaps", selection_rates, gap_between_groups)
    ),
    "a paired difference without an interval": lambda _: paired(
        metrics.definitions.ACCURACY, interval=None
    ),
    "a resampled metric with clusters": lambda _: paired(
        RateMetric("mine", selection_rates, gap_between_groups), clusters=[0, 1]
    ),
    "an interval that is a text": lambda _: bias(interval="0.9"),
    "a level above 1": lambda _: bias(interval=2),
}

# Scores of images

CASES |= {
    "no entropies": lambda _: metrics.average_target_confidence(),
    "probabilities that do not sum to 1": lambda _: metrics.average_target_confidence(
        probabilities=[[0.5, 0.6]]
    ),
    "probabilities of one class": lambda _: metrics.average_target_confidence(
        probabilities=[[1.0]]
    ),
    "probabilities in one dimension": lambda _: metrics.average_target_confidence(
        probabilities=[1.0]
    ),
    "entropies in two dimensions": lambda _: metrics.average_target_confidence(
        entropies=np.ones((1, 2))
    ),
    "entropies that are text": lambda _: metrics.average_target_confidence(
        entropies=["much"]
    ),
    "entropies above 1": lambda _: metrics.average_target_confidence(entropies=[1.5]),
    "confidences that are too many": lambda _: metrics.expected_calibration_error(
        ["a"], ["a"], [0.5, 0.5]
    ),
    "scores of attributes without names": lambda _: Scores.from_probabilities(
        HALVES,
        HALVES,  # type: ignore[arg-type]
    ),
    "beliefs of other images": lambda _: pseudo_rates([0, 1], HALVES, HALVES[:1]),
    "beliefs of no images": lambda _: pseudo_rates(
        [], np.zeros((0, 2)), np.zeros((0, 2))
    ),
    "an answer beyond the classes": lambda _: pseudo_rates([0, 2], HALVES, HALVES),
    "an answer that is a fraction": lambda _: pseudo_rates([0.5, 0], HALVES, HALVES),
    "logits that are infinite": lambda _: r_squared([[0.0, math.inf]] * 2, HALVES),
    "prompts of different dimensions": lambda _: metrics.prompt_associations(
        [[1, 0]], [[1, 0, 0]], 1
    ),
}

# Harmful classes

CASES |= {
    "a harm set that is a text": lambda _: metrics.harm_rate(["a"], ["x"], "a"),
    "a harm set that is empty": lambda _: metrics.harm_rate(["a"], ["x"], []),
    "no answers": lambda _: metrics.harm_rate([], [], ["a"]),
    "runs of different lengths": lambda _: metrics.harm_rate_change(
        ["a", "a"], ["a"], ["x", "x"], ["a"]
    ),
    "a harmful class in another spelling": lambda _: metrics.harm_rate(
        ["star", "circle"] * 40, PLACES, ["Star"]
    ),
    "a harmful class that is never answered": lambda _: metrics.harm_rate(
        ["man", "thief"] * 40, PLACES, ["theif", "thief"]
    ),
}

# Streams

CASES |= {
    "a stream without rows": lambda _: metrics.MetricStream().compute(),
    "a batch with another class": lambda _: update((["cat"], ["cow"], ["in"])),
    "a batch with other attributes": lambda _: update(
        (["cat"], ["cat"], {"place": ["in"]}), (["cat"], ["cat"], ["in"])
    ),
}

# Costs and counts

CASES |= {
    "a negative time": lambda _: audit(NAMES, NAMES, PLACES, seconds=-1.0),
    "a time that is not a number": lambda _: audit(
        NAMES, NAMES, PLACES, seconds=math.nan
    ),
    "a negative number of changes": lambda _: metrics.mcnemar(-1, 9),
    "a fraction of a change": lambda _: metrics.mcnemar(9, 0.5),  # type: ignore[arg-type]
}
