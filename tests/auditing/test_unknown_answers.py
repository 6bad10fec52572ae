"""Answers that are none of the classes: an error if all are, otherwise counted, named and wrong."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from internals import schema

from fair_tta.auditing import Audit, audit, compare
from fair_tta.errors import FairTTAError, UnknownAnswerWarning
from fair_tta.lab.report import html

jsonschema: Any = pytest.importorskip("jsonschema")

N = 400
RANDOM = np.random.default_rng(0)
TRUTH = RANDOM.choice(["cat", "dog"], N)
PLACE = RANDOM.choice(["land", "water"], N)
IS_HARD = (TRUTH == "cat") & (PLACE == "water")
OTHER = np.where(TRUTH == "cat", "dog", "cat")
ANSWERS = np.where(RANDOM.random(N) < np.where(IS_HARD, 0.5, 0.95), TRUTH, OTHER)
UNSURE = np.where(np.arange(N) < 20, "I cannot tell", ANSWERS)


def audited(answers: Any, **more: Any) -> tuple[Audit, list[str]]:
    """The audit and what it warned about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = audit(TRUTH, answers, PLACE, **more)
    return found, [
        str(one.message) for one in caught if one.category is UnknownAnswerWarning
    ]


@pytest.mark.parametrize("targets", [None, ["cat", "dog"]])
@pytest.mark.parametrize(
    ("written", "is_translated"),
    [
        ({"cat": "Cat", "dog": "Dog"}, True),
        ({"cat": "a cat", "dog": "a dog"}, True),
        ({"cat": "1", "dog": "0"}, False),
        ({"cat": 1, "dog": 0}, False),
    ],
)
def test_answers_in_other_words_are_an_error(
    targets: Any, written: dict[str, Any], is_translated: bool
) -> None:
    with pytest.raises(FairTTAError) as error:
        audit(TRUTH, [written[answer] for answer in ANSWERS], PLACE, targets=targets)
    message = str(error.value)
    for label, answer in written.items():
        assert repr(label) in message
        assert repr(answer) in message
        assert (f"{answer!r}: {label!r}" in message) is is_translated


@pytest.mark.parametrize("targets", [None, ["cat", "dog"]])
def test_some_unknown_answers_are_wrong_and_counted(targets: Any) -> None:
    found, warned = audited(UNSURE, targets=targets, name="mine")
    assert len(warned) == 1
    assert "20 of 400" in warned[0]
    assert "'I cannot tell' (20)" in warned[0]
    assert warned[0] in found.warnings
    assert found.document.data.targets == ("cat", "dog")
    unknown = found.document.runs[0].no_class
    assert unknown is not None
    assert unknown.n == 20
    assert dict(unknown.most_frequent) == {"I cannot tell": 20}
    # each is as wrong as the other class would be
    wrong, no_warning = audited(np.where(np.arange(N) < 20, OTHER, ANSWERS))
    assert no_warning == []
    for metric in (
        "accuracy",
        "balanced_accuracy",
        "worst_group_accuracy",
        "typical_gap",
    ):
        assert found.estimate(metric) == wrong.estimate(metric)
    assert found.to_dataframe()["y_pred: mine"].value_counts()["(no class)"] == 20


def test_they_change_no_mean_over_classes() -> None:
    """A third class without a gap would make the gaps of two classes look a third smaller."""
    rare = np.where(np.arange(N) < 1, "?", ANSWERS)
    found, _ = audited(rare)
    honest, _ = audited(ANSWERS)
    for metric in ("equalized_odds_difference", "equal_opportunity_difference"):
        assert found.estimate(metric).value == pytest.approx(
            honest.estimate(metric).value, abs=0.02
        )
    parity = found.estimate("demographic_parity_difference")
    assert parity.value is None
    assert parity.reason is not None
    assert "no class" in parity.reason


def test_the_document_and_the_page_show_them() -> None:
    found, _ = audited(UNSURE)
    jsonschema.validate(found.to_dict(), schema())
    assert Audit.from_json(found.to_json()) == found
    for group in found.document.runs[0].groups:
        assert [len(row) for row in group.confusion] == [3, 3]
        assert sum(sum(row) for row in group.confusion) == group.n
    page = html(found)
    assert "cat or dog, by sensitive" in page
    assert ">no class</th>" in page


def test_only_the_most_frequent_are_named() -> None:
    answers = [f"text {i}" if i < 50 else answer for i, answer in enumerate(ANSWERS)]
    found, warned = audited(answers)
    unknown = found.document.runs[0].no_class
    assert unknown is not None
    assert unknown.n == 50
    assert len(unknown.most_frequent) == 20
    assert "50 of 400" in warned[0]


@pytest.mark.parametrize("order", [("honest", "unsure"), ("unsure", "honest")])
def test_they_are_compared_with_runs_that_have_none(order: tuple[str, str]) -> None:
    runs = {"honest": ANSWERS, "unsure": UNSURE}
    audits = [
        audited(runs[name], targets=["cat", "dog"], name=name)[0] for name in order
    ]
    both = compare(audits)
    change = both.difference("accuracy", order[1]).value
    expected = [(runs[name] == TRUTH).mean() for name in order]
    assert change == pytest.approx(expected[1] - expected[0])
    assert sum("unsure: 20 of 400" in sentence for sentence in both.warnings) == 1
    assert both.document.data.targets == ("cat", "dog")
    assert {group.target for group in both.document.comparisons[0].groups} == {
        None,
        "cat",
        "dog",
    }


def test_a_class_without_images_is_named_by_targets() -> None:
    answers = np.where(np.arange(N) < 20, "bird", ANSWERS)
    found, warned = audited(answers, targets=["bird", "cat", "dog"])
    assert warned == []
    assert found.document.data.targets == ("bird", "cat", "dog")
