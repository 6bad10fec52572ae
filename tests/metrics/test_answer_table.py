"""Answers that are no label: an error if all are, a warning if some are, also of a stream."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fair_tta import metrics
from fair_tta.errors import FairTTAError, UnknownAnswerWarning

TRUTH = ["cat", "dog"] * 80
PLACES = ["land"] * 80 + ["water"] * 80
ANSWERS = ["cat", "dog", "dog", "cat", *TRUTH[4:]]


def stream(answers: Any) -> Any:
    metric_stream = metrics.MetricStream()
    for half in (slice(0, 80), slice(80, None)):
        metric_stream.update(TRUTH[half], answers[half], PLACES[half])
    return metric_stream.compute()


CALLS: list[Callable[[Any], Any]] = [
    lambda answers: metrics.accuracy(TRUTH, answers),
    lambda answers: metrics.equalized_odds_difference(TRUTH, answers, PLACES),
    lambda answers: metrics.typical_gap(TRUTH, answers, PLACES),
    lambda answers: metrics.class_gaps(TRUTH, answers, PLACES),
    lambda answers: metrics.group_accuracy(TRUTH, answers, PLACES),
    lambda answers: metrics.paired_difference(
        metrics.definitions.TYPICAL_GAP, TRUTH, ANSWERS, answers, PLACES
    ),
    stream,
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("cat", "dog", "hint"),
    [
        ("Cat", "Dog", "'Cat': 'cat'"),
        ("a cat", "a dog", "'a dog': 'dog'"),
        ("1", "0", "name all classes with `targets`"),
        ("land", "water", "name all classes with `targets`"),
    ],
)
def test_no_answer_is_a_label(
    call: Callable[[Any], Any], cat: str, dog: str, hint: str
) -> None:
    """The gap of the same answers in capitals was 0.0, with an interval from 0 to 4."""
    answers = [cat if answer == "cat" else dog for answer in ANSWERS]
    with pytest.raises(FairTTAError, match="should be among the classes") as error:
        call(answers)
    assert hint in str(error.value)


@pytest.mark.parametrize("call", CALLS)
def test_answers_that_only_look_like_labels(call: Callable[[Any], Any]) -> None:
    with pytest.raises(FairTTAError, match="should differ visibly"):
        call([f"{answer} " for answer in ANSWERS])


@pytest.mark.parametrize("call", CALLS)
def test_some_answers_are_no_labels(call: Callable[[Any], Any]) -> None:
    answers = np.where(np.array(ANSWERS) == "dog", "Dog", ANSWERS)
    with pytest.warns(UnknownAnswerWarning, match="count as wrong: 'Dog'"):
        call(answers)


def test_a_batch_of_one_class_is_no_reason_to_warn() -> None:
    metric_stream = metrics.MetricStream()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownAnswerWarning)
        metric_stream.update(["cat"] * 40, ["dog"] * 40, ["land"] * 40)
        metric_stream.update(["dog"] * 40, ["dog"] * 40, ["land"] * 40)
        assert metric_stream.compute()["accuracy"].value == 0.5
        assert metrics.accuracy(["cat"], ["dog"], targets=["cat", "dog"]).value == 0
