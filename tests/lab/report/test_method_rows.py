"""What a method does, decided once: gap and accuracy are two facts."""

from __future__ import annotations

import pytest
from verdict_samples import BETTER, CLEAR, EVEN, FAIRER, Rates, made

from fair_tta import AssociationCorrection, compare
from fair_tta.lab.report._verdict import CONFIRM, MethodRow, audit_cards, cost_sentence, method_rows


def row(before: Rates, after: Rates) -> MethodRow:
    return method_rows(compare([made(before), made(after, "M")]).document)[0]


def test_narrows() -> None:
    other = made(BETTER, "Association", AssociationCorrection(), seconds=8.0)
    (found,) = method_rows(compare([made(CLEAR, seconds=4.0), other]).document)
    assert (found.verdict, found.tone, found.gap_tone) == (
        "narrows the gap, raises accuracy",
        "good",
        "good",
    )
    assert found.changed == pytest.approx(60 / 400)
    assert found.cost == pytest.approx(2.0)
    assert not found.may_cost


def test_costs() -> None:
    found = row(CLEAR, {**CLEAR, ("cat", "in"): (40, 100)})
    assert (found.verdict, found.tone, found.gap_tone) == ("costs accuracy", "bad", "")
    assert found.cost is None


def test_more_right_answers_are_not_called_nothing() -> None:
    found = row(CLEAR, {**CLEAR, ("cat", "in"): (100, 100), ("dog", "out"): (22, 100)})
    assert (found.verdict, found.tone, found.gap_tone) == ("raises accuracy", "", "")


def test_widens() -> None:
    before = dict.fromkeys(CLEAR, (900, 1000))
    after = {**dict.fromkeys(EVEN, (960, 1000)), ("dog", "out"): (720, 1000)}
    found = row(before, after)
    assert (found.verdict, found.tone, found.gap_tone) == ("widens the gap", "bad", "bad")


def test_narrows_and_costs() -> None:
    before = {**dict.fromkeys(EVEN, (475, 500)), ("dog", "out"): (250, 500)}
    found = row(before, FAIRER)
    assert (found.verdict, found.tone) == ("narrows the gap, costs accuracy", "")
    assert found.gap_tone == "good"


def test_widens_and_costs() -> None:
    after = {**dict.fromkeys(EVEN, (900, 1000)), ("dog", "out"): (500, 1000)}
    found = row(dict.fromkeys(CLEAR, (900, 1000)), after)
    assert (found.verdict, found.tone) == ("widens the gap, costs accuracy", "bad")


def test_nothing_is_shown() -> None:
    found = row(CLEAR, CLEAR)
    assert (found.verdict, found.tone, found.gap_tone) == ("not shown", "", "")


def test_cost_is_told_in_zero_shot_calls() -> None:
    runs = [made(CLEAR, name, seconds=s) for name, s in (("views", 26.3), ("one view", 1.04))]
    document = compare([made(CLEAR, seconds=1.0), *runs]).document
    assert cost_sentence(document) == ("Cost in zero-shot calls: 1.0 with one view, 26 with views.")
    assert cost_sentence(made(CLEAR).document) == ""


def test_helps_the_worst_group_where_everybody_fares_better() -> None:
    before = dict.fromkeys(EVEN, (700, 1000)) | {("dog", "out"): (400, 1000)}
    after = dict.fromkeys(EVEN, (800, 1000)) | {("dog", "out"): (500, 1000)}
    found = row(before, after)
    assert (found.narrows, found.helps) == (False, True)
    assert (found.verdict, found.tone) == ("helps the worst group, raises accuracy", "")
    document = compare([made(before), made(after, "M")]).document
    card = audit_cards(document)[2]
    assert card.text.startswith(
        "The method tried is not shown to narrow the gap. M helps the worst group: +10.0 points [+"
    )
    assert card.more == CONFIRM
