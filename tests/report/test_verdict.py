"""Verdict, certainty, advice: in words that the figures bear out."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from fair_tta import AssociationCorrection, Scores, audit, compare
from fair_tta.report.banners import audit_banners, banners_of_many
from fair_tta.report.verdict import (
    audit_cards,
    cells_of,
    cost_sentence,
    method_rows,
    worst_shares,
)
from verdict_samples import BETTER, CLEAR, EVEN, answers, made

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.SmallGroupWarning")


def test_what_is_wrong_and_how_sure() -> None:
    wrong, sure, todo = audit_cards(made(CLEAR).document)
    assert wrong.text == ("Right in 72 of 100 pictures overall, but in 20 of 100 of dog / out.")
    assert sure.text.startswith("A gap exists: ")
    assert sure.more == "dog / out is the worst group (100 pictures)."
    assert "--adapters" in todo.text
    assert "Label about 146 more pictures of dog / out" in todo.more


def test_what_is_not_sure_is_told() -> None:
    even = dict.fromkeys(CLEAR, (8, 10))
    _, sure, _ = audit_cards(made(even).document)
    assert sure.text.startswith("A gap is not shown: 0.0 to ")
    assert "Which group is worst is not sure." in sure.text
    assert "of resamples" in sure.more


def test_a_method_that_narrows_the_gap_is_advised() -> None:
    other = made(BETTER, "Association", AssociationCorrection(), seconds=8.0)
    document = compare([made(CLEAR, seconds=4.0), other]).document
    (row,) = method_rows(document)
    assert (row.says, row.tone) == ("narrows the gap", "good")
    assert row.changed == pytest.approx(60 / 400)
    assert row.cost == pytest.approx(2.0)
    todo = audit_cards(document)[2]
    assert todo.text.startswith("Switch to Association: gap ")
    assert todo.tone == "good"


def test_cost_is_told_in_zero_shot_calls() -> None:
    runs = [made(CLEAR, name, seconds=s) for name, s in (("views", 26.3), ("one view", 1.04))]
    document = compare([made(CLEAR, seconds=1.0), *runs]).document
    assert cost_sentence(document) == (
        "Cost of a zero-shot call: 1.0 times with one view, 26 times with views."
    )
    assert cost_sentence(made(CLEAR).document) == ""


def test_what_costs_accuracy_or_widens_is_not_advised() -> None:
    worse = {**CLEAR, ("cat", "in"): (40, 100)}
    document = compare([made(CLEAR), made(worse, "Worse", None)]).document
    (row,) = method_rows(document)
    assert (row.says, row.cost) == ("costs accuracy", None)
    assert audit_cards(document)[2].text == "The method tried is not shown to narrow the gap."
    before = dict.fromkeys(CLEAR, (900, 1000))
    after = {**dict.fromkeys(EVEN, (960, 1000)), ("dog", "out"): (720, 1000)}
    document = compare([made(before), made(after, "Wider")]).document
    assert method_rows(document)[0].says == "widens the gap"


def test_several_comparisons_have_wider_intervals() -> None:
    one = compare([made(CLEAR), made(BETTER, "a")]).document.comparisons[0]
    assert one.corrected is None
    assert one.told is one.differences
    many = compare([made(CLEAR), *(made(BETTER, name) for name in "abcde")]).document
    for comparison in many.comparisons:
        plain, corrected = comparison.differences.bias, comparison.told.bias
        assert corrected.value == plain.value
        assert None not in (plain.low, plain.high, corrected.low, corrected.high)
        assert corrected.low < plain.low < plain.high < corrected.high  # type: ignore[operator]
    assert "5 methods were compared" in audit_banners(many)[-1]


def test_a_model_that_guesses_does_not_pass_without_a_word() -> None:
    guess = dict.fromkeys(CLEAR, (50, 100))
    assert (
        "not shown to be better than always answering 'cat'"
        in audit_banners(made(guess).document)[0]
    )
    assert audit_banners(made(CLEAR).document) == []


def test_other_banners() -> None:
    truth, said, group = answers(CLEAR)
    sure = [0.51] * 201 + [0.9] * 199
    scores = Scores(confidence=sure, sensitive_entropy={"place": [0.9] * 400})
    first = audit(truth, said, {"place": group}, name="ZeroShot", scores=scores)
    flipped = ["cat" if label == "dog" else "dog" for label in said]
    other = audit(truth, flipped, {"place": group}, name="Flip", scores=scores)
    told = audit_banners(compare([first, other]).document)
    assert (
        "ZeroShot is hardly sure of any answer: median confidence 51\N{NO-BREAK SPACE}%" in told[0]
    )
    assert any("does not perceive place" in sentence for sentence in told)
    assert any("Flip changes 100" in sentence for sentence in told)


def test_who_is_answered_with_a_harmful_class_is_told_first() -> None:
    truth, group = ["man", "man", "thief", "thief"] * 100, ["a", "b"] * 200
    said = ["man", "thief", "thief", "thief"] * 100  # thief: all of b, half of a
    found = audit(truth, said, {"skin": group}, name="M", harmful={"crime": ["thief"]}).document
    (told,) = [text for text in audit_banners(found) if "crime" in text]
    assert told.replace("\N{NO-BREAK SPACE}", " ").startswith(
        "M answers with a class of the set 'crime' in 100 % of b [98."
    )
    assert " and in 50\N{NO-BREAK SPACE}% of a [43." in told
    assert any(text == f"faces: {told}" for text in banners_of_many([("faces", found)]))


def test_shares_of_the_worst_are_probabilities() -> None:
    cells = cells_of(made(CLEAR).document.runs[0])
    shares = worst_shares(cells)
    assert sum(share for _, share in shares) == pytest.approx(1)
    assert shares[0] == ("dog / out", 1.0)
    tied = cells_of(made(dict.fromkeys(CLEAR, (80, 100))).document.runs[0])
    assert np.ptp([share for _, share in worst_shares(tied)]) < 0.1


def test_no_image_in_any_group_of_a_class() -> None:
    document = made(CLEAR).document
    empty = structs.replace(document.runs[0], groups=())
    (card,) = audit_cards(structs.replace(document, runs=(empty,)))
    assert card.text == "Nothing can be said: no group has images."
