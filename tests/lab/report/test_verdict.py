"""Verdicts and advice: in words that the figures bear out."""

from __future__ import annotations

import re

import pytest
from internals import (
    Card,
    audit_banners,
    audit_cards,
    changed_groups,
    first_screen,
    group_sentences,
    print_verdict,
    short_verdict,
)
from msgspec import structs
from report_samples import Page
from scipy.stats import binomtest
from verdict_samples import BETTER, CLEAR, EVEN, FAIRER, answers, made

from fair_tta import audit, compare
from fair_tta.auditing import Audit, Scores
from fair_tta.lab.report import html, markdown

GOOD = {**dict.fromkeys(EVEN, (450, 500)), ("dog", "out"): (420, 500)}
CLEAR_500 = {**dict.fromkeys(EVEN, (475, 500)), ("dog", "out"): (250, 500)}

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")


def cards_of(*runs: Audit) -> list[Card]:
    """Those of one audit or of a comparison, with plain spaces and signs."""
    found = compare(runs) if len(runs) > 1 else runs[0]
    plain = str.maketrans({"\N{NO-BREAK SPACE}": " ", "\N{MINUS SIGN}": "-"})
    return [
        Card(*(text.translate(plain) for text in card))
        for card in audit_cards([("", found.document)])
    ]


def test_what_is_wrong() -> None:
    wrong, todo = cards_of(made(CLEAR))
    assert (wrong.heading, wrong.tone) == ("What is wrong", "bad")
    assert wrong.text == "Right on 72 of 100 images, but on 20 of 100 of dog / out."
    assert re.fullmatch(
        r"Two groups of a class typically differ by 49\.\d points \(95 % CI [\d.]+ to [\d.]+\), at "
        r"balanced accuracy 72\.5\.",
        wrong.details,
    )
    assert todo.text == "Compare methods on the same images (option --adapters)."


@pytest.mark.parametrize(
    ("right", "n", "others"), [(7, 10, (8, 10)), (27, 30, (30, 30))]
)
def test_what_is_not_shown_is_not_called_wrong(
    right: int, n: int, others: tuple[int, int]
) -> None:
    rates = {**dict.fromkeys(CLEAR, others), ("dog", "out"): (right, n)}
    wrong = cards_of(made(rates))[0]
    assert (wrong.heading, wrong.tone) == ("What is seen", "")
    assert wrong.details.endswith(" A gap between groups is not shown.")


def test_a_method_that_narrows_the_gap_is_advised_with_its_figures() -> None:
    both = compare([made(CLEAR), made(BETTER, "M")])
    _, helps, todo = cards_of(both)
    assert (helps.heading, helps.tone) == ("What helps", "good")
    assert re.fullmatch(
        r"M narrows the gap: two groups of a class typically differ by [\d.]+ points, "
        r"before by 49\.\d, at balanced accuracy 87\.5, before 72\.5\.",
        helps.text,
    )
    assert re.match(
        r"95 % CI of the change -[\d.]+ to -[\d.]+\. Shown on the typical gap, the worst group and "
        r"EOD\. Helps the worst group \+60",
        helps.details,
    )
    assert "raises accuracy +15.0 points (+" in helps.details
    assert todo.text == "Use M. Confirm it on images that took no part."
    assert short_verdict(both.document) == "M narrows the gap"


def test_what_chance_explains_is_not_called_closed() -> None:
    even = dict.fromkeys(CLEAR, (90, 100))
    text = cards_of(made(CLEAR), made(even, "M"))[1].text
    assert "typically differ by no more than chance explains, before by 49" in text


def test_serving_the_better_groups_worse_is_said_and_not_advised() -> None:
    both = compare([made(CLEAR_500), made(FAIRER, "M")])
    _, helps, todo = cards_of(both)
    assert helps.text.startswith(
        "M narrows the gap by serving the better groups worse: "
    )
    assert "costs accuracy -" in helps.details
    assert helps.tone == ""
    assert todo.text == "Look for another method before using M."
    assert todo.details.startswith(
        "Check cat / in, cat / out, dog / in: they lose 15 points"
    )
    assert (
        "M narrows the gap by serving the better groups worse" in Page(html(both)).text
    )


def test_a_method_without_a_cost_goes_first() -> None:
    mild = made({**CLEAR_500, ("dog", "out"): (330, 500)}, "Free")
    found = cards_of(made(CLEAR_500), made(FAIRER, "Costs"), mild)
    assert found[2].text.startswith("Use Free.")
    assert "corrected for 2 methods" in found[1].details


def test_what_these_images_cannot_tell_is_said_without_a_promise() -> None:
    both = compare(
        [made(CLEAR), made({**CLEAR, ("dog", "out"): (23, 100)}, "M")]
    ).document
    _, tried, todo = audit_cards([("", both)])
    assert tried.heading == "What was tried"
    assert "M: these 400 images cannot tell whether the gap changes (" in tried.text
    assert tried.text.endswith("at balanced accuracy 73.2, before 72.5.")
    assert "would need" not in tried.details
    assert todo.text == "Try other methods, or more images."
    assert short_verdict(both) == "these 400 images cannot tell whether the gap narrows"


def test_what_has_no_interval_is_not_printed() -> None:
    tiny = {**CLEAR, ("dog", "out"): (1, 4)}
    both = compare([made(tiny), made({**tiny, ("dog", "out"): (3, 4)}, "M")])
    wrong, tried, _ = cards_of(both)
    reason = "no interval, as fewer than 5 images are of: dog / out"
    assert wrong.details == f"Typical gap n/a ({reason})."
    assert tried.text == f"M: no verdict on the gap, {reason}."
    assert short_verdict(both.document) == "no verdict on the gap"
    gap = both.estimate("typical_gap")
    assert float(gap) > 0.1
    assert gap.low is None
    assert f"{100 * float(gap):.1f}" not in Page(html(both)).text
    assert f"{100 * float(gap):.1f}" not in markdown(both)
    assert f"{100 * float(gap):.1f}" not in str(both)
    assert f"{100 * float(gap):.1f}" not in both._repr_html_()


def test_groups_that_gained_and_lost_most_with_counts() -> None:
    after = {**CLEAR, ("dog", "out"): (45, 100), ("cat", "in"): (82, 100)}
    document = compare([made(CLEAR), made(after, "M")]).document
    groups = changed_groups(document, document.comparisons[0])
    assert [(g.name, g.before, g.after) for g in groups[:2]] == [
        ("dog / out", 0.2, 0.45), ("cat / in", 0.9, 0.82),
    ]  # fmt: skip
    lost = binomtest(0, 8).pvalue
    assert groups[0].p == pytest.approx(4 * binomtest(0, 25).pvalue)
    assert groups[1].p == pytest.approx(3 * lost)
    assert [g.p for g in groups[2:]] == [1.0, 1.0]
    gained, worse = (
        text.replace("\N{NO-BREAK SPACE}", " ") for text in group_sentences(groups)
    )
    assert gained == (
        "dog / out: 20 \N{RIGHTWARDS ARROW} 45 of 100 (25 became right, 0 wrong; p < 0.0001, "
        "< 0.0001 after correction for 4 groups)"
    )
    assert worse.endswith(
        f"(0 became right, 8 wrong; p = {lost:.2g}, {3 * lost:.2g} after correction for 4 groups)"
    )


def test_p_values_do_not_hold_where_images_are_clustered() -> None:
    truth, _, group = answers(CLEAR)
    people = [f"person {i // 4}" for i in range(len(truth))]
    runs = [
        audit(truth, answers(rates)[1], {"place": group}, name=name, clusters=people)
        for name, rates in (("ZeroShot", CLEAR), ("M", BETTER))
    ]
    document = compare(runs).document
    (gained,) = group_sentences(changed_groups(document, document.comparisons[0]))
    assert gained == (
        "dog / out: 20 \N{RIGHTWARDS ARROW} 80 of 100 (60 became right, 0 wrong)"
    )


def test_the_terminal_draws_it_in_80_columns_and_plain_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "a group with quite a long name, in two parts, such as these"
    rates = {("cat", long): (20, 100), ("cat", "short"): (90, 100)}
    rates |= {("dog", long): (90, 100), ("dog", "short"): (90, 100)}
    after = {**rates, ("cat", long): (80, 100), ("dog", "short"): (84, 100)}
    document = compare([made(rates), made(after, "M")]).document
    print_verdict([("", document)])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isascii() and len(line) <= 80 for line in lines)
    first = lines.index("Each group before (o) and after (*) M") + 1
    assert re.fullmatch(
        r"cat / a group.* 100 \|o-+\* +\|  20 -> 80  \+60 / -0", lines[first]
    )
    (short,) = [line for line in lines if line.startswith("dog / short  ")]
    assert re.fullmatch(r"dog / short +100 \| +\*-?o *\|  90 -> 84  \+0 / -6", short)
    assert re.fullmatch(r" +20 +100", lines[first + 4])
    print_verdict([("", made(rates).document)])  # nothing to draw


def test_the_figure_has_each_group_before_and_after() -> None:
    both = compare([made(CLEAR), made(BETTER, "M")])
    figure = first_screen([("", both.document)]).chart
    assert figure is not None
    assert (
        figure.heading
        == "Each group before (\N{WHITE CIRCLE}) and after (\N{BLACK CIRCLE}) M"
    )
    first = figure.rows[0]
    assert (first.name, first.n, first.before, first.after) == (
        "dog / out",
        100,
        0.2,
        0.8,
    )
    assert (first.details, first.tone) == ("+60 / \N{MINUS SIGN}0", "good")
    assert {row.tone for row in figure.rows[1:]} == {""}
    page = Page(html(both)).text
    assert (
        page.index("What is wrong")
        < page.index("Each group before")
        < page.index("All methods")
    )
    assert "Right answers in percent" in Page(html(made(CLEAR))).text


def test_the_sentence_names_the_figure_that_it_rests_on() -> None:
    document = compare([made(CLEAR), made(BETTER, "M")]).document
    every = "Shown on the typical gap, the worst group and EOD."
    assert every in audit_cards([("", document)])[1].details
    c = document.comparisons[0]
    wide = structs.replace(c.differences.equalized_odds_difference, low=-0.3, high=0.1)
    lost = structs.replace(c.differences.worst_group_accuracy, low=-0.1, high=0.1)
    changes = structs.replace(
        c.differences, equalized_odds_difference=wide, worst_group_accuracy=lost
    )
    c = structs.replace(c, differences=changes)
    helps = audit_cards([("", structs.replace(document, comparisons=(c,)))])[1]
    assert (
        "Shown on the typical gap; worst group and EOD: cannot tell." in helps.details
    )


def test_nothing_wrong_is_not_called_wrong() -> None:
    seen = cards_of(made(dict.fromkeys(CLEAR, (300, 300))))[0]
    assert (seen.heading, seen.tone) == ("What is seen", "")
    assert seen.text == "Right on 100 of 100 images, no less often in any group."
    alike = {**dict.fromkeys(EVEN, (9030, 10000)), ("dog", "out"): (8990, 10000)}
    assert cards_of(made(alike))[0].text == (
        "Right on 90 of 100 images, hardly less often in any group."
    )


def test_shares_near_0_and_100_keep_a_digit() -> None:
    near = {**dict.fromkeys(EVEN, (1000, 1000)), ("dog", "out"): (996, 1000)}
    assert cards_of(made(near))[0].text == (
        "Right on 99.9 of 100 images, but on 99.6 of 100 of dog / out."
    )
    lost = {**dict.fromkeys(EVEN, (1000, 1000)), ("dog", "out"): (1, 1000)}
    assert "but on 0.1 of 100 of dog / out." in cards_of(made(lost))[0].text


def test_several_comparisons_have_wider_intervals() -> None:
    one = compare([made(CLEAR), made(BETTER, "a")]).document.comparisons[0]
    assert one.corrected is None
    assert one.adjusted is one.differences
    many = compare([made(CLEAR), *(made(BETTER, name) for name in "abcde")]).document
    for comparison in many.comparisons:
        plain, corrected = comparison.differences.bias, comparison.adjusted.bias
        assert corrected.value == plain.value
        assert None not in (plain.low, plain.high, corrected.low, corrected.high)
        assert corrected.low <= plain.low <= plain.high <= corrected.high  # type: ignore[operator]
    part = structs.replace(many, runs=many.runs[:2], comparisons=many.comparisons[:1])
    assert "corrected for 5 methods" in audit_cards([("", part)])[1].details


def test_a_model_that_guesses_does_not_pass_without_a_word() -> None:
    guess = dict.fromkeys(CLEAR, (50, 100))
    assert (
        "not shown to be better than always giving the commonest answer: 'cat' is right in 50"
        in audit_banners([("", made(guess).document)])[0]
    )
    assert audit_banners([("", made(CLEAR).document)]) == []


def test_a_gap_between_classes_is_not_taken_for_one_between_groups() -> None:
    hard = {place: (95 if place[0] == "cat" else 60, 100) for place in CLEAR}
    document = made(hard).document
    (told,) = audit_banners([("", document)])
    assert told.startswith(
        "The worst group may be a matter of its class: no gap between groups is shown: "
        "typical gap 0.0 points ["
    )
    (told,) = audit_banners([("a", document), ("b", made(CLEAR).document)])
    assert "is shown: a: typical gap" in told


def test_other_banners() -> None:
    truth, said, group = answers(CLEAR)
    sure = [0.51] * 201 + [0.9] * 199
    scores = Scores(confidence=sure, sensitive_entropy={"place": [0.9] * 400})
    first = audit(truth, said, {"place": group}, name="ZeroShot", scores=scores)
    flipped = ["cat" if label == "dog" else "dog" for label in said]
    other = audit(truth, flipped, {"place": group}, name="Flip", scores=scores)
    told = audit_banners([("", compare([first, other]).document)])
    assert (
        "ZeroShot is hardly sure of any answer: median confidence 51\N{NO-BREAK SPACE}%"
        in told[0]
    )
    assert any("answers change: Flip 100" in sentence for sentence in told)


def test_who_is_answered_with_a_harmful_class_is_told_first() -> None:
    truth, group = ["man", "man", "thief", "thief"] * 100, ["a", "b"] * 200
    said = ["man", "thief", "thief", "thief"] * 100  # thief: all of b, half of a
    found = audit(
        truth, said, {"skin": group}, name="M", harmful={"crime": ["thief"]}
    ).document
    (told,) = [text for text in audit_banners([("", found)]) if "crime" in text]
    assert told.replace("\N{NO-BREAK SPACE}", " ").startswith(
        "M answers with a class of the set 'crime': in 100 % of b [98."
    )
    assert " and in 50\N{NO-BREAK SPACE}% of a [43." in told


def test_no_image_in_any_group_of_a_class() -> None:
    document = made(CLEAR).document
    empty = structs.replace(document.runs[0], groups=())
    (card,) = audit_cards([("", structs.replace(document, runs=(empty,)))])
    assert card.text == "Nothing was measured: no group has images."
