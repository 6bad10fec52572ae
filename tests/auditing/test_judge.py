"""The rule of docs/report.md on constructed audits, and thresholds."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    METRIC_ALIASES,
    Verdict,
    audit_cards,
    judge_threshold,
    label_cautions,
    read_thresholds,
    recommended_comparison,
    short_verdict,
    verdict_on,
)
from report_samples import Page
from scipy.stats import binomtest
from verdict_samples import BETTER, CLEAR, EVEN, Rates, answers, made

from fair_tta import FairTTAError, audit, compare
from fair_tta.auditing import Audit
from fair_tta.errors import SmallGroupWarning
from fair_tta.lab.report import html, markdown
from fair_tta.metrics.definitions import METRICS

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")

CELLS = [(target, value) for target in ("cat", "dog") for value in ("in", "out")]


def rates_of(n: int, *right: int) -> Rates:
    """Return so many right answers of n in each of `CELLS`."""
    return {cell: (count, n) for cell, count in zip(CELLS, right, strict=True)}


def compare_rates(before: Rates, after: Rates) -> Audit:
    return compare([made(before), made(after, "M")])


def compare_right(n: int, before: list[int], after: list[int]) -> Audit:
    """Compare so many right answers of n in each of `CELLS`."""
    return compare_rates(rates_of(n, *before), rates_of(n, *after))


def judged(compared: Audit) -> Verdict:
    return verdict_on(compared.document, compared.document.comparisons[0])


def test_green_needs_a_gap_that_falls_and_nothing_else_that_does() -> None:
    compared = compare_right(200, [180, 180, 180, 60], [180, 180, 180, 150])
    verdict = judged(compared)
    assert verdict.is_shown
    assert verdict.objection is None
    assert recommended_comparison(compared.document) is compared.document.comparisons[0]
    assert audit_cards([("", compared.document)])[1].tone == "good"


def test_a_group_that_falls_is_not_green() -> None:
    """Accuracy, balanced accuracy and the worst group gain; one group falls from 80 to 64."""
    compared = compare_right(200, [160, 180, 180, 60], [128, 180, 180, 140])
    verdict = judged(compared)
    assert verdict.typical_gap == -1
    assert verdict.accuracy == verdict.balanced_accuracy == 1
    assert verdict.falling_groups == ("cat / in",)
    assert not verdict.is_shown
    assert verdict.objection == "significantly costs cat / in"
    _, tried, todo = audit_cards([("", compared.document)])
    assert (tried.heading, tried.tone) == ("What was tried", "")
    assert tried.text.startswith("M narrows the gap, but costs cat / in: ")
    assert todo.text == "Look for another method before using M."
    assert todo.details.startswith("Check cat / in: it loses 16 points")
    assert recommended_comparison(compared.document) is None


def test_groups_are_judged_together() -> None:
    """What is shown of a group alone is not shown where four are looked at."""
    before = rates_of(200, 160, 180, 180, 60)
    after = rates_of(200, 154, 180, 180, 150)
    compared = compare_rates(before, after)
    groups = compared.document.comparisons[0].groups
    (fallen,) = [g for g in groups if g.target and g.changes.right_to_wrong]
    assert fallen.corrected is not None
    assert (fallen.difference.high or 0) < 0 < (fallen.corrected.high or 0)
    assert judged(compared).is_shown


def test_a_model_at_chance_is_not_green() -> None:
    """The smallest gap of all: answers that do not depend on the image."""
    compared = compare_right(300, [290, 150, 60, 150], [151, 152, 150, 150])
    verdict = judged(compared)
    assert verdict.typical_gap < 0
    assert not verdict.is_above_chance
    assert not verdict.is_shown
    balanced = compare_right(300, [150, 90, 60, 90], [150, 150, 150, 150])
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
    compared = compare_rates(before, after)
    verdict = judged(compared)
    assert verdict.looks_smaller
    assert not verdict.is_shown
    assert verdict.small_groups == {"dog / out": 24}
    _, tried, todo = audit_cards([("", compared.document)])
    assert (tried.heading, tried.tone) == ("What was tried", "")
    assert tried.text.startswith("M makes the gap look smaller: ")
    assert "6 more images of dog / out" in tried.text
    assert "Seen on the typical gap" in tried.details
    assert todo.text == "Add 6 more images of dog / out, and compare again."
    assert short_verdict(compared.document) == "M makes the gap look smaller"
    assert recommended_comparison(compared.document) is None


def test_nine_groups_of_23_to_26_images_do_not_contradict_themselves() -> None:
    """It once said: not measurable, narrows the gap, use it, figures are uncertain."""
    place_names = [f"p{i}" for i in range(9)]
    sizes = [23, 24, 25, 26, 24, 23, 25, 26, 24]
    shares = [0.3] * 5 + [0.96] * 4
    before = {}
    after = {}
    for name, n, share in zip(place_names, sizes, shares, strict=True):
        before["cat", name] = (round(n * share), n)
        after["cat", name] = (round(n * 0.8), n)
        before["dog", name] = after["dog", name] = (90, 100)
    compared = compare_rates(before, after)
    assert any(
        "Not measurable" in caution for caution in label_cautions(compared.document)
    )
    for text in (Page(html(compared)).text, markdown(compared)):
        assert "Use M" not in text
        assert "M narrows the gap:" not in text


def test_groups_without_images_are_named_and_do_not_forbid_a_verdict() -> None:
    before = {
        ("cat", "in"): (180, 200),
        ("cat", "out"): (60, 200),
        ("dog", "in"): (180, 200),
    }
    after = {**before, ("cat", "out"): (160, 200)}
    compared = compare_rates(before, after)
    assert label_cautions(compared.document) == [
        "No images of dog / out, so dog is in no gap: nothing is known of them."
    ]
    assert judged(compared).is_shown


def test_repeated_images_count_once_for_small_groups() -> None:
    rates = rates_of(200, 180, 180, 180, 60)
    truth, answered, group = answers(rates)
    digests = [f"{i // 20}" for i in range(len(truth))]
    compared = audit(truth, answered, {"place": group}, digests=digests).document
    assert compared.runs[0].groups[0].classes[0].images == 10
    assert "few images of cat / in (10), dog / in (10)" in label_cautions(compared)[0]


CELL = st.tuples(st.integers(8, 60), st.floats(0, 1), st.floats(0, 1))


@settings(max_examples=40, deadline=None)
@given(st.lists(CELL, min_size=4, max_size=4))
def test_no_first_screen_contradicts_itself(
    cells: list[tuple[int, float, float]],
) -> None:
    before = {}
    after = {}
    for cell, (n, share_before, share_after) in zip(CELLS, cells, strict=True):
        before[cell] = (round(n * share_before), n)
        after[cell] = (round(n * share_after), n)
    compared = compare_rates(before, after)
    document = compared.document
    _, tried, todo = audit_cards([("", document)])
    is_green = tried.tone == "good"
    assert is_green == judged(compared).is_shown
    assert is_green == (recommended_comparison(document) is not None)
    assert is_green == todo.text.startswith("Use M")
    if is_green:
        assert not any(
            "Not measurable" in caution for caution in label_cautions(document)
        )
        assert not re.search(r"costs|hurts|cannot tell whether|uncertain", tried.text)
        assert todo.details == ""
    else:
        assert "M narrows the gap:" not in tried.text
    if "typically differ by" in tried.text:
        assert "balanced accuracy" in tried.text


def test_one_group_only_is_a_warning() -> None:
    rates = {("cat", "in"): (90, 100), ("dog", "in"): (60, 100)}
    with pytest.warns(SmallGroupWarning, match="Only one group has images, in: no gap"):
        compared = made(rates)
    assert compared.warnings == (
        "Only one group has images, in: no gap between groups can be measured.",
    )
    assert compared.warnings[0] in Page(html(compared)).text


def test_too_few_different_images_show_no_figure() -> None:
    truth, answered, group = answers(dict.fromkeys(CELLS, (6, 9)))
    compared = audit(
        truth, answered, {"place": group}, digests=[str(i // 6) for i in range(36)]
    )
    (first_card, _) = audit_cards([("", compared.document)])
    assert first_card.text == (
        "No figure is shown: no interval, as there are only 6 different images."
    )
    for text in (str(compared), markdown(compared), compared._repr_html_()):
        assert "66.7" not in text
        assert "67" not in text


def test_a_group_named_before_looking_is_tested_alone() -> None:
    compared = compare_right(200, [180, 180, 180, 60], [180, 180, 180, 75])
    group = compared.compared_group("M", {"place": "out"}, "dog")
    assert group.changes.mcnemar_p == pytest.approx(binomtest(0, 15).pvalue)
    assert group.corrected is not None
    assert 0 < (group.corrected.low or 0) < (group.difference.low or 0)
    assert compared.compared_group("M", {"place": "out"}).changes.n == 400


HALFWAY = {**EVEN, ("dog", "out"): (50, 100)}
LEVELLED_DOWN: Rates = dict.fromkeys(CLEAR, (22, 100))


@pytest.mark.parametrize(
    ("methods", "chosen"),
    [
        ({"a": HALFWAY, "b": BETTER}, "b"),
        ({"a": BETTER, "b": HALFWAY}, "a"),
        ({"a": CLEAR}, None),
        ({"a": LEVELLED_DOWN}, None),
        ({"a": LEVELLED_DOWN, "b": HALFWAY}, "b"),
        ({}, None),
    ],
)
def test_the_lowest_gap_that_costs_nothing_is_recommended(
    methods: dict[str, Rates], chosen: str | None
) -> None:
    audits = [made(CLEAR), *(made(rates, name) for name, rates in methods.items())]
    comparison = recommended_comparison(compare(audits).document)
    assert (comparison and comparison.run) == chosen


def test_objections() -> None:
    audits = [made(CLEAR), made(CLEAR, "same"), made(LEVELLED_DOWN, "down")]
    document = compare(audits).document
    first, second = document.comparisons
    unchanged = verdict_on(document, first)
    lower = verdict_on(document, second)
    assert unchanged.objection == "does not significantly narrow the gap"
    assert lower.objection == (
        "significantly costs balanced accuracy, accuracy, and is not shown to answer better than "
        "chance (balanced accuracy)"
    )


@pytest.mark.parametrize(
    ("text", "metric", "sign", "points"),
    [
        ("typical_gap > 10", "typical_gap", ">", 10),
        ("Typical gap>10.5 %", "typical_gap", ">", 10.5),
        ("wga<60", "worst_group_accuracy", "<", 60),
        ("typical_gap > 0.5 %", "typical_gap", ">", 0.5),
        ("equal-opportunity > 0", "equal_opportunity_difference", ">", 0),
    ],
)
def test_thresholds_are_read(text: str, metric: str, sign: str, points: float) -> None:
    (threshold,) = read_thresholds([text], "tpt", ["tpt"])
    assert (threshold.metric, threshold.sign) == (metric, sign)
    assert (threshold.points, threshold.run) == (points, "tpt")


@pytest.mark.parametrize("text", ["", "wga < ", "< 3", "wga < -1"])
def test_other_texts_are_no_thresholds(text: str) -> None:
    with pytest.raises(FairTTAError, match="threshold"):
        read_thresholds([text], "tpt", ["tpt"])


def test_short_names_are_of_metrics() -> None:
    assert set(METRIC_ALIASES.values()) < set(METRICS)


def test_the_whole_interval_has_to_lie_beyond_a_threshold() -> None:
    document = made(CLEAR).document
    judged_metrics = 0
    for name, estimate in document.runs[0].metrics.by_name().items():
        if estimate.low is None or estimate.high is None:
            continue
        low = math.floor(1000 * estimate.low) / 10
        high = math.ceil(1000 * estimate.high) / 10
        middle = (low + high) / 2
        outcomes = {
            f"> {low - 0.1:.2f}": "failed",
            f"> {high:.2f}": "passed",
            f"> {middle:.2f}": "undecided",
            f"< {high + 0.1:.2f}": "failed",
            f"< {low:.2f}": "passed",
            f"< {middle:.2f}": "undecided",
        }
        if 1 < low < high < 99:
            judged_metrics += 1
            for limit, outcome in outcomes.items():
                [rule] = read_thresholds([f"{name} {limit}"], "ZeroShot", ["ZeroShot"])
                assert judge_threshold(rule, document).outcome == outcome, rule
    assert judged_metrics > 5


def test_without_an_interval_a_threshold_is_not_judged() -> None:
    small_group = {**CLEAR, ("dog", "out"): (0, 2)}
    one_group = {cell: rates for cell, rates in CLEAR.items() if cell[1] == "in"}
    for rates, text in (
        (small_group, "typical_gap > 0"),
        (one_group, "typical_gap > 0"),
        (CLEAR, "ece > 0"),
    ):
        [rule] = read_thresholds([text], "ZeroShot", ["ZeroShot"])
        assert judge_threshold(rule, made(rates).document).outcome == "not judged"
