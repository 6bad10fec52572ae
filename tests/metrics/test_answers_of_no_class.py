"""Answers that are no label: an error if all are, a warning if some are, also of a stream."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fair_tta import metrics
from fair_tta.errors import FairTTAError, UnknownAnswerWarning

TRUTH = ["cat", "dog"] * 80
PLACE = ["land"] * 80 + ["water"] * 80
ANSWERS = ["cat", "dog", "dog", "cat", *TRUTH[4:]]
WITH_PLACES = {
    name: getattr(metrics, name)
    for name in (
        "worst_group_accuracy", "equalized_odds_difference", "equal_opportunity_difference",
        "demographic_parity_difference", "typical_gap", "bias", "class_gaps", "group_accuracy",
    )
}  # fmt: skip


def with_places(call: Any, answers: Any) -> Any:
    return call(TRUTH, answers, sensitive=PLACE)


def stream(truth: Any, answers: Any, sensitive: Any) -> Any:
    found = metrics.MetricStream()
    for half in (slice(0, 80), slice(80, None)):
        found.update(truth[half], answers[half], sensitive[half])
    return found.compute()


CALLS: dict[str, Callable[[Any], Any]] = {
    **{name: partial(with_places, call) for name, call in WITH_PLACES.items()},
    "accuracy": lambda answers: metrics.accuracy(TRUTH, answers),
    "stream": lambda answers: stream(TRUTH, answers, PLACE),
    "paired": lambda answers: metrics.paired_difference(
        metrics.definitions.TYPICAL_GAP, TRUTH, ANSWERS, answers, sensitive=PLACE
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("written", "translation"),
    [
        ({"cat": "Cat", "dog": "Dog"}, "'Cat': 'cat'"),
        ({"cat": "a cat", "dog": "a dog"}, "'a dog': 'dog'"),
        ({"cat": "1", "dog": "0"}, "name all classes with `targets`"),
        ({"cat": "land", "dog": "water"}, "name all classes with `targets`"),
    ],
)
def test_no_answer_is_a_label(
    name: str, written: dict[str, str], translation: str
) -> None:
    """The gap of the same answers in capitals was 0.0, with an interval from 0 to 4."""
    answers = [written[answer] for answer in ANSWERS]
    with pytest.raises(
        FairTTAError, match="`y_pred` should be among the classes"
    ) as error:
        CALLS[name](answers)
    assert translation in str(error.value)


@pytest.mark.parametrize("name", CALLS)
def test_answers_that_only_look_like_labels(name: str) -> None:
    with pytest.raises(FairTTAError, match="should differ in what can be seen"):
        CALLS[name]([f"{answer} " for answer in ANSWERS])


@pytest.mark.parametrize("name", CALLS)
def test_some_answers_are_no_labels(name: str) -> None:
    with pytest.warns(
        UnknownAnswerWarning, match=r"'Dog'.*count as wrong|wrong: 'Dog'"
    ) as caught:
        CALLS[name](np.where(np.array(ANSWERS) == "dog", "Dog", ANSWERS))
    assert any(warning.category is UnknownAnswerWarning for warning in caught)


def test_a_batch_of_one_class_is_no_reason_to_warn() -> None:
    found = metrics.MetricStream()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownAnswerWarning)
        found.update(["cat"] * 40, ["dog"] * 40, ["land"] * 40)
        found.update(["dog"] * 40, ["dog"] * 40, ["land"] * 40)
        assert found.compute()["accuracy"].value == 0.5
        assert metrics.accuracy(["cat"], ["dog"], targets=["cat", "dog"]).value == 0
