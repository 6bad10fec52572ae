"""The rule of docs/report.md on constructed audits: what is green, and what it says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    Verdict,
    audit_cards,
    label_cautions,
    recommended_comparison,
    short_verdict,
    verdict_on,
)
from report_samples import Page
from scipy.stats import binomtest
from verdict_samples import Rates, answers, made

from fair_tta import FairTTAError, audit, compare
from fair_tta.auditing import Audit
from fair_tta.errors import SmallGroupWarning
from fair_tta.lab.report import html, markdown

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")

CELLS = [(target, place) for target in ("cat", "dog") for place in ("in", "out")]


def rates_of(n: int, *right: int) -> Rates:
    """So many right of n in each of `CELLS`."""
    return dict(zip(CELLS, [(r, n) for r in right], strict=True))


def both(before: Rates, after: Rates) -> Audit:
    return compare([made(before), made(after, "M")])


def judged(found: Audit) -> Verdict:
    return verdict_on(found.document, found.document.comparisons[0])


def test_green_needs_a_gap_that_falls_and_nothing_else_that_does() -> None:
    found = both(rates_of(200, 180, 180, 180, 60), rates_of(200, 180, 180, 180, 150))
    verdict = judged(found)
    assert verdict.is_shown
    assert verdict.objection is None
    assert recommended_comparison(found.document) is found.document.comparisons[0]
    assert audit_cards([("", found.document)])[1].tone == "good"


def test_a_group_that_falls_is_not_green() -> None:
    """Accuracy, balanced accuracy and the worst group gain; one group falls from 80 to 64."""
    found = both(rates_of(200, 160, 180, 180, 60), rates_of(200, 128, 180, 180, 140))
    verdict = judged(found)
    assert (verdict.typical_gap, verdict.accuracy, verdict.balanced_accuracy) == (
        -1,
        1,
        1,
    )
    assert verdict.falling_groups == ("cat / in",)
    assert not verdict.is_shown
    assert verdict.objection == "significantly costs cat / in"
    _, tried, todo = audit_cards([("", found.document)])
    assert (tried.heading, tried.tone) == ("What was tried", "")
    assert tried.text.startswith("M narrows the gap, but costs cat / in: ")
    assert todo.text == "Look for another method before using M."
    assert todo.details.startswith("Check cat / in: it loses 16 points")
    assert recommended_comparison(found.document) is None


def test_groups_are_judged_together() -> None:
    """What is shown of a group alone is not shown where four are looked at."""
    before, after = rates_of(200, 160, 180, 180, 60), rates_of(200, 154, 180, 180, 150)
    found = both(before, after)
    groups = found.document.comparisons[0].groups
    (fallen,) = [g for g in groups if g.target and g.changes.right_to_wrong]
    assert fallen.corrected is not None
    assert (fallen.difference.high or 0) < 0 < (fallen.corrected.high or 0)
    assert judged(found).is_shown


def test_a_model_at_chance_is_not_green() -> None:
    """The smallest gap of all: answers that do not depend on the image."""
    found = both(rates_of(300, 290, 150, 60, 150), rates_of(300, 151, 152, 150, 150))
    verdict = judged(found)
    assert verdict.typical_gap < 0
    assert not verdict.is_above_chance
    assert not verdict.is_shown
    balanced = both(rates_of(300, 150, 90, 60, 90), rates_of(300, 150, 150, 150, 150))
    assert judged(balanced).costs == []
    assert "is not shown to answer better than chance" in str(
        judged(balanced).objection
    )
    _, tried, todo = audit_cards([("", balanced.document)])
    assert (
        "M narrows the gap, but is not shown to answer better than chance: "
        in tried.text
    )
    assert "at balanced accuracy 50.0" in tried.text
    assert todo.text == "Do not use M: it is not shown to answer better than chance."


def test_small_groups_turn_green_into_looks_smaller() -> None:
    before = {**rates_of(200, 180, 180, 180, 0), ("dog", "out"): (3, 24)}
    after = {**rates_of(200, 180, 180, 180, 0), ("dog", "out"): (20, 24)}
    found = both(before, after)
    verdict = judged(found)
    assert verdict.looks_smaller
    assert not verdict.is_shown
    assert verdict.small_groups == {"dog / out": 24}
    _, tried, todo = audit_cards([("", found.document)])
    assert (tried.heading, tried.tone) == ("What was tried", "")
    assert tried.text.startswith("M makes the gap look smaller: ")
    assert "6 more images of dog / out" in tried.text
    assert "Seen on the typical gap" in tried.details
    assert todo.text == "Add 6 more images of dog / out, and compare again."
    assert short_verdict(found.document) == "M makes the gap look smaller"
    assert recommended_comparison(found.document) is None


def test_nine_groups_of_23_to_26_images_do_not_contradict_themselves() -> None:
    """It once said: not measurable, narrows the gap, use it, figures are uncertain."""
    places = [f"p{i}" for i in range(9)]
    sizes = [23, 24, 25, 26, 24, 23, 25, 26, 24]
    before = {
        ("cat", p): (round(n * s), n)
        for p, n, s in zip(places, sizes, [0.3] * 5 + [0.96] * 4, strict=True)
    }
    after = {
        ("cat", p): (round(n * s), n)
        for p, n, s in zip(places, sizes, [0.8] * 9, strict=True)
    }
    before |= {("dog", p): (90, 100) for p in places}
    after |= {("dog", p): (90, 100) for p in places}
    found = both(before, after)
    assert any("Not measurable" in sign for sign in label_cautions(found.document))
    for text in (Page(html(found)).text, markdown(found)):
        assert "Use M" not in text
        assert "M narrows the gap:" not in text


def test_groups_without_images_are_named_and_do_not_forbid_a_verdict() -> None:
    before = {
        ("cat", "in"): (180, 200),
        ("cat", "out"): (60, 200),
        ("dog", "in"): (180, 200),
    }
    after = {**before, ("cat", "out"): (160, 200)}
    found = both(before, after)
    assert label_cautions(found.document) == [
        "No images of dog / out, so dog is in no gap: nothing is known of them."
    ]
    assert judged(found).is_shown


def test_repeated_images_count_once_for_small_groups() -> None:
    rates = rates_of(200, 180, 180, 180, 60)
    truth, said, group = answers(rates)
    digests = [f"{i // 20}" for i in range(len(truth))]
    found = audit(truth, said, {"place": group}, digests=digests).document
    assert found.runs[0].groups[0].classes[0].images == 10
    assert "few images of cat / in (10), dog / in (10)" in label_cautions(found)[0]


CELL = st.tuples(st.integers(8, 60), st.floats(0, 1), st.floats(0, 1))


@settings(max_examples=40, deadline=None)
@given(st.lists(CELL, min_size=4, max_size=4))
def test_no_first_screen_contradicts_itself(
    cells: list[tuple[int, float, float]],
) -> None:
    before = {
        at: (round(n * share), n)
        for at, (n, share, _) in zip(CELLS, cells, strict=True)
    }
    after = {
        at: (round(n * share), n)
        for at, (n, _, share) in zip(CELLS, cells, strict=True)
    }
    found = both(before, after)
    document = found.document
    _, tried, todo = audit_cards([("", document)])
    is_green = tried.tone == "good"
    assert (
        is_green
        == judged(found).is_shown
        == (recommended_comparison(document) is not None)
    )
    assert is_green == todo.text.startswith("Use M")
    if is_green:
        assert not any("Not measurable" in sign for sign in label_cautions(document))
        assert not re.search(r"costs|hurts|cannot tell whether|uncertain", tried.text)
        assert todo.details == ""
    else:
        assert "M narrows the gap:" not in tried.text
    if "typically differ by" in tried.text:
        assert "balanced accuracy" in tried.text


def test_one_group_only_is_a_warning() -> None:
    rates = {("cat", "in"): (90, 100), ("dog", "in"): (60, 100)}
    with pytest.warns(SmallGroupWarning, match="Only one group has images, in: no gap"):
        found = made(rates)
    assert found.warnings == (
        "Only one group has images, in: no gap between groups can be measured.",
    )
    assert found.warnings[0] in Page(html(found)).text


def test_too_few_different_images_show_no_figure() -> None:
    truth, said, group = answers(dict.fromkeys(CELLS, (6, 9)))
    found = audit(
        truth, said, {"place": group}, digests=[str(i // 6) for i in range(36)]
    )
    (seen, _) = audit_cards([("", found.document)])
    assert seen.text == (
        "No figure is shown: no interval, as there are only 6 different images."
    )
    for text in (str(found), markdown(found), found._repr_html_()):
        assert "66.7" not in text
        assert "67" not in text


def test_a_group_named_before_looking_is_tested_alone() -> None:
    found = both(rates_of(200, 180, 180, 180, 60), rates_of(200, 180, 180, 180, 75))
    named = found.compared_group("M", {"place": "out"}, "dog")
    assert named.changes.mcnemar_p == pytest.approx(binomtest(0, 15).pvalue)
    assert named.corrected is not None
    assert 0 < (named.corrected.low or 0) < (named.difference.low or 0)
    assert found.compared_group("M", {"place": "out"}).changes.n == 400
    with pytest.raises(FairTTAError, match="`run` should be one of"):
        found.compared_group("N", {"place": "out"})
    with pytest.raises(FairTTAError, match=r"such as in, out, cat / in, .* \(got"):
        found.compared_group("M", {"place": "outside"}, "dog")
