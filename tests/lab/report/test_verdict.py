"""Verdict, certainty, advice: in words that the figures bear out."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs
from report_samples import Page
from verdict_samples import BETTER, CLEAR, EVEN, FAIRER, Rates, answers, made

from fair_tta import Audit, audit, compare
from fair_tta.auditing import Scores
from fair_tta.lab.report import html
from fair_tta.lab.report._first_screen import banners
from fair_tta.lab.report._verdict import (
    audit_cards,
    cards_of_many,
    cells_of,
    in_short,
    worst_shares,
)

WORSE = {**CLEAR, ("cat", "in"): (40, 100)}
GOOD = {**dict.fromkeys(EVEN, (450, 500)), ("dog", "out"): (420, 500)}
CLEAR_500 = {**dict.fromkeys(EVEN, (475, 500)), ("dog", "out"): (250, 500)}

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.SmallGroupWarning")


def test_what_is_wrong_and_how_sure() -> None:
    wrong, sure, todo = audit_cards(made(CLEAR).document)
    assert (wrong.heading, wrong.tone) == ("What is wrong", "bad")
    assert wrong.text == ("Right in 72 of 100 images overall, but in 20 of 100 of dog / out.")
    assert sure.text.startswith("A gap exists: ")
    assert sure.more == "dog / out is the worst group (100 images)."
    assert todo.text == "Compare methods on the same images (option --adapters)."
    assert todo.more == (
        "Label about 146 more images of dog / out to know its accuracy to within 5 points."
    )


def test_what_is_not_sure_is_told() -> None:
    uneven = {**dict.fromkeys(EVEN, (8, 10)), ("dog", "out"): (7, 10)}
    _, sure, _ = audit_cards(made(uneven).document)
    assert sure.text.startswith("A gap is not shown: 0.0 to ")
    assert "Which group is worst is not sure." in sure.text
    assert "of resamples" in sure.more


@pytest.mark.parametrize(("right", "n", "others"), [(0, 1, (475, 500)), (27, 30, (30, 30))])
def test_few_images_do_not_make_a_worst_group_certain(
    right: int, n: int, others: tuple[int, int]
) -> None:
    rates = {**dict.fromkeys(CLEAR, others), ("dog", "out"): (right, n)}
    wrong, sure, _ = audit_cards(made(rates).document)
    assert (wrong.heading, wrong.tone) == ("What is seen", "")
    assert sure.text.startswith("A gap is not shown: ")
    assert "Which group is worst is not sure." in sure.text
    assert "dog / out is the worst in " in sure.more


def test_a_gap_that_is_not_shown_has_no_certain_worst_group() -> None:
    rates = {**dict.fromkeys(CLEAR, (92, 100)), ("dog", "out"): (81, 100)}
    document = made(rates).document
    shares = dict(worst_shares(cells_of(document.runs[0])))
    sure = audit_cards(document)[1]
    assert shares["dog / out"] > 0.95
    assert sure.text.startswith("A gap is not shown: ")
    assert "dog / out is the worst group" not in sure.more


def test_a_method_that_narrows_the_gap_is_advised_with_both_figures() -> None:
    todo = audit_cards(compare([made(CLEAR), made(BETTER, "M")]).document)[2]
    assert todo.text.startswith("Try M: gap \N{MINUS SIGN}45.0 points [")
    assert "], accuracy +15.0 points [+" in todo.text
    assert (todo.more, todo.tone) == ("Confirm it on images that took no part.", "good")


def test_the_change_of_accuracy_is_told_even_if_it_is_not_shown() -> None:
    after = {**dict.fromkeys(EVEN, (447, 500)), ("dog", "out"): (330, 500)}
    todo = audit_cards(compare([made(CLEAR_500), made(after, "M")]).document)[2]
    assert todo.text.startswith("Try M: gap ")
    assert ", accuracy \N{MINUS SIGN}0.2 points [\N{MINUS SIGN}" in todo.text


def test_what_narrows_and_costs_is_told_as_both() -> None:
    both = compare([made(CLEAR_500), made(FAIRER, "M")])
    todo = audit_cards(both.document)[2]
    assert todo.text.startswith("M narrows the gap and costs accuracy: gap \N{MINUS SIGN}")
    assert ", accuracy \N{MINUS SIGN}" in todo.text
    assert todo.tone == ""
    page = Page(html(both)).text
    assert "not shown to narrow" not in page
    assert "narrows the gap, costs accuracy" in page


def test_a_method_without_a_cost_goes_first() -> None:
    runs = [made(CLEAR_500), made(FAIRER, "Costs")]
    mild = {**CLEAR_500, ("dog", "out"): (330, 500)}
    assert audit_cards(compare([*runs, made(mild, "Free")]).document)[2].text.startswith("Try Free")


def test_no_method_helps() -> None:
    document = compare([made(CLEAR), made(WORSE, "Worse")]).document
    assert audit_cards(document)[2].text == "The method tried is not shown to narrow the gap."
    document = compare([made(CLEAR), made(WORSE, "a"), made(CLEAR, "b")]).document
    assert (
        audit_cards(document)[2].text == "None of the 2 methods tried is shown to narrow the gap."
    )


def doubtful(before: Rates, after: Rates) -> Audit:
    """Accuracy falls by an interval that does not allow for eight methods, and by no other."""
    others = [made(before, f"M{k}") for k in range(1, 8)]
    both = compare([made(before), made(after, "M0"), *others])
    first = both.document.comparisons[0]
    plain, told = first.differences.accuracy, first.adjusted.accuracy
    assert plain.high is not None
    assert told.high is not None
    assert plain.high < 0 < told.high
    return both


def test_a_page_has_one_mark_for_one_change() -> None:
    both = doubtful(GOOD, {**GOOD, ("cat", "out"): (444, 500), ("dog", "in"): (447, 500)})
    page = Page(html(both))
    assert "costs accuracy" not in page.text
    rows = [row for table in page.tables.values() for row in table if row[0] == "All images"]
    assert all("not distinguishable" in row[6] for row in rows)
    assert "those of single groups do not" in banners([("", both.document)])[-1]


def test_what_may_cost_accuracy_is_not_advised_without_a_word() -> None:
    after = {**dict.fromkeys(EVEN, (438, 500)), ("dog", "out"): (330, 500)}
    document = doubtful(CLEAR_500, after).document
    todo = audit_cards(document)[2]
    assert todo.text.startswith("M0 narrows the gap, but may cost accuracy: gap ")
    assert "not allowing for the number of methods" in todo.more
    assert todo.tone == ""
    todo = cards_of_many([("a", document), ("b", document)])[2]
    assert todo.text == "M0 narrows the gap on 2 of 2 tasks, but may cost accuracy."
    assert todo.tone == ""


def test_nothing_wrong_is_not_called_wrong() -> None:
    seen = audit_cards(made(dict.fromkeys(CLEAR, (300, 300))).document)[0]
    assert (seen.heading, seen.tone) == ("What is seen", "")
    assert seen.text == "Right in 100 of 100 images overall, and no less often in any group."
    sure = audit_cards(made(dict.fromkeys(CLEAR, (300, 300))).document)[1]
    assert (sure.text, sure.more) == ("A gap is not shown: 0.0 to 1.7 points.", "")
    alike = {**dict.fromkeys(EVEN, (9030, 10000)), ("dog", "out"): (8990, 10000)}
    document = made(alike).document
    assert audit_cards(document)[0].text == (
        "Right in 90 of 100 images overall, and hardly less often in any group."
    )
    assert in_short(document) == "right in 90 of 100"


def test_shares_near_0_and_100_keep_a_digit() -> None:
    near = {**dict.fromkeys(EVEN, (1000, 1000)), ("dog", "out"): (996, 1000)}
    assert audit_cards(made(near).document)[0].text == (
        "Right in 99.9 of 100 images overall, but in 99.6 of 100 of dog / out."
    )
    lost = {**dict.fromkeys(EVEN, (1000, 1000)), ("dog", "out"): (1, 1000)}
    assert "but in 0.1 of 100 of dog / out." in audit_cards(made(lost).document)[0].text


def test_several_comparisons_have_wider_intervals() -> None:
    one = compare([made(CLEAR), made(BETTER, "a")]).document.comparisons[0]
    assert one.corrected is None
    assert one.adjusted is one.differences
    many = compare([made(CLEAR), *(made(BETTER, name) for name in "abcde")]).document
    for comparison in many.comparisons:
        plain, corrected = comparison.differences.bias, comparison.adjusted.bias
        assert corrected.value == plain.value
        assert None not in (plain.low, plain.high, corrected.low, corrected.high)
        assert corrected.low < plain.low < plain.high < corrected.high  # type: ignore[operator]
    assert banners([("", many)])[-1] == (
        "5 methods were compared: intervals and marks of metrics allow for that (Holm), those of "
        "single groups do not."
    )
    part = structs.replace(many, runs=many.runs[:2], comparisons=many.comparisons[:1])
    assert banners([("", part)])[-1].startswith("5 methods were compared, 1 of them here: ")
    old = [structs.replace(c, corrected=None, compared=None) for c in many.comparisons]
    assert banners([("", structs.replace(many, comparisons=tuple(old)))]) == []


def test_a_model_that_guesses_does_not_pass_without_a_word() -> None:
    guess = dict.fromkeys(CLEAR, (50, 100))
    assert (
        "not shown to be better than always giving the commonest answer: 'cat' is right in 50"
        in banners([("", made(guess).document)])[0]
    )
    assert banners([("", made(CLEAR).document)]) == []


def test_a_gap_between_classes_is_not_taken_for_one_between_groups() -> None:
    hard = {place: (95 if place[0] == "cat" else 60, 100) for place in CLEAR}
    document = made(hard).document
    assert audit_cards(document)[1].text.startswith("A gap exists: ")
    (told,) = banners([("", document)])
    assert told.startswith(
        "The gap may lie between classes, as no difference between groups is shown: "
        "equalized-odds difference (EOD) 0.0 points ["
    )
    (told,) = banners([("a", document), ("b", made(CLEAR).document)])
    assert "is shown: a: equalized-odds" in told


def test_groups_that_share_no_class_cannot_be_told_from_classes() -> None:
    document = made({("cat", "in"): (95, 100), ("dog", "out"): (50, 100)}).document
    assert audit_cards(document)[1].text.startswith("A gap exists: ")
    assert banners([("", document)])[0] == (
        "The gap may lie between classes, as no difference between groups is shown: "
        "equalized-odds difference (EOD) not defined."
    )


def test_a_difference_between_groups_is_told_where_the_gap_is_not_shown() -> None:
    rates = {("cat", "in"): (93, 100), ("cat", "out"): (76, 100)}
    rates |= {("dog", "in"): (76, 100), ("dog", "out"): (93, 100)}
    document = made(rates).document
    assert audit_cards(document)[1].text.startswith("A gap is not shown: ")
    (told,) = banners([("", document)])
    assert told.startswith(
        "A difference between groups is shown, though no gap is: "
        "equalized-odds difference (EOD) 17.0 points ["
    )


def test_other_banners() -> None:
    truth, said, group = answers(CLEAR)
    sure = [0.51] * 201 + [0.9] * 199
    scores = Scores(confidence=sure, sensitive_entropy={"place": [0.9] * 400})
    first = audit(truth, said, {"place": group}, name="ZeroShot", scores=scores)
    flipped = ["cat" if label == "dog" else "dog" for label in said]
    other = audit(truth, flipped, {"place": group}, name="Flip", scores=scores)
    told = banners([("", compare([first, other]).document)])
    assert (
        "ZeroShot is hardly sure of any answer: median confidence 51\N{NO-BREAK SPACE}%" in told[0]
    )
    assert any("does not perceive this" in sentence for sentence in told)
    assert any("answers change: Flip 100" in sentence for sentence in told)


def test_who_is_answered_with_a_harmful_class_is_told_first() -> None:
    truth, group = ["man", "man", "thief", "thief"] * 100, ["a", "b"] * 200
    said = ["man", "thief", "thief", "thief"] * 100  # thief: all of b, half of a
    found = audit(truth, said, {"skin": group}, name="M", harmful={"crime": ["thief"]}).document
    (told,) = [text for text in banners([("", found)]) if "crime" in text]
    assert told.replace("\N{NO-BREAK SPACE}", " ").startswith(
        "M answers with a class of the set 'crime': in 100 % of b [98."
    )
    assert " and in 50\N{NO-BREAK SPACE}% of a [43." in told


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
    assert card.text == "Nothing was measured: no group has images."
