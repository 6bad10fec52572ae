"""What a method does, decided once: gap and accuracy are two facts."""

from __future__ import annotations

import pytest
from internals import CONFIRM, MethodRow, audit_cards, cost_sentence, method_rows
from verdict_samples import BETTER, CLEAR, EVEN, Rates, made

from fair_tta import AssociationCorrection, compare


def row(before: Rates, after: Rates) -> MethodRow:
    return method_rows(compare([made(before), made(after, "M")]).document)[0]


def test_narrows() -> None:
    other = made(BETTER, "Association", AssociationCorrection(), seconds=8.0)
    (found,) = method_rows(compare([made(CLEAR, seconds=4.0), other]).document)
    assert found.verdict == "narrows the gap, helps the worst group, raises accuracy"
    assert found.tone == "good"
    assert found.changed == pytest.approx(60 / 400)
    assert found.cost == pytest.approx(2.0)


def test_the_typical_gap_decides_not_the_gap_to_the_worst_group() -> None:
    """Where one class is hard, accuracy minus worst group falls without a change between groups."""
    before = {(y, s): (900 if y == "cat" else 500, 1000) for y, s in CLEAR}
    after = {(y, s): (900 if y == "cat" else 700, 1000) for y, s in CLEAR}
    found = row(before, after)
    assert (found.comparison.adjusted.bias.high or 0.0) < 0
    assert found.verdict == "helps the worst group, raises accuracy"
    assert found.tone == ""


def test_costs() -> None:
    after = {**CLEAR, ("cat", "in"): (70, 100), ("cat", "out"): (70, 100)}
    found = row(CLEAR, after)
    assert (found.verdict, found.tone) == ("costs accuracy", "bad")
    assert found.cost is None


def test_widens() -> None:
    before = dict.fromkeys(CLEAR, (900, 1000))
    after = {**dict.fromkeys(EVEN, (960, 1000)), ("dog", "out"): (720, 1000)}
    assert row(before, after).verdict == "widens the gap, hurts the worst group"
    assert row(before, after).tone == "bad"


def test_serving_the_better_groups_worse() -> None:
    before = {**dict.fromkeys(EVEN, (475, 500)), ("dog", "out"): (250, 500)}
    found = row(before, {**dict.fromkeys(EVEN, (350, 500)), ("dog", "out"): (250, 500)})
    assert (
        found.verdict
        == "narrows the gap by serving the better groups worse, costs accuracy"
    )
    assert found.tone == ""


def test_nothing_is_shown() -> None:
    found = row(CLEAR, {**CLEAR, ("dog", "out"): (22, 100)})
    assert (found.verdict, found.tone) == ("not shown", "")


def test_what_cannot_be_judged_is_withheld_with_the_reason() -> None:
    found = row(CLEAR, CLEAR)
    assert found.gap_change.value == 0
    assert found.verdict == "no verdict on the gap: no interval, as no answer changed"


def test_cost_is_told_in_zero_shot_calls() -> None:
    runs = [
        made(CLEAR, name, seconds=s)
        for name, s in (("views", 26.3), ("one view", 1.04))
    ]
    document = compare([made(CLEAR, seconds=1.0), *runs]).document
    assert cost_sentence(document) == (
        "Cost in zero-shot calls: 1.0 with one view, 26 with views."
    )
    assert cost_sentence(made(CLEAR).document) == ""


def test_helps_the_worst_group_where_everybody_fares_better() -> None:
    before = dict.fromkeys(EVEN, (700, 1000)) | {("dog", "out"): (400, 1000)}
    after = dict.fromkeys(EVEN, (800, 1000)) | {("dog", "out"): (500, 1000)}
    found = row(before, after)
    assert (found.verdict, found.tone) == ("helps the worst group, raises accuracy", "")
    _, helps, todo = audit_cards(
        [("", compare([made(before), made(after, "M")]).document)]
    )
    assert helps.heading == "What helps"
    assert "M: these 4,000 images cannot tell whether the gap changes (" in helps.text
    assert "Helps the worst group +10.0 points (+" in helps.details
    assert todo.text == f"Consider M for the worst group. {CONFIRM}"


def test_what_helps_the_worst_group_at_the_cost_of_all_is_not_advised() -> None:
    before = dict.fromkeys(EVEN, (900, 1000)) | {("dog", "out"): (400, 1000)}
    after = dict.fromkeys(EVEN, (480, 1000)) | {("dog", "out"): (440, 1000)}
    after |= {("cat", "out"): (990, 1000)}
    _, tried, todo = audit_cards(
        [("", compare([made(before), made(after, "M")]).document)]
    )
    assert tried.heading == "What was tried"
    assert "Helps the worst group +4.0 points" in tried.details
    assert not todo.text.startswith(("Use", "Consider"))
