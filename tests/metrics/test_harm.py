"""Rates of harmful answers against scipy, and harm sets that are misspelt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import paired_bounds

from fair_tta import FairTTAError
from fair_tta.errors import SmallGroupWarning, UnknownAnswerWarning
from fair_tta.metrics import harm_rate, harm_rate_change

stats: Any = pytest.importorskip("scipy.stats")
pytestmark = [
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning"),
    pytest.mark.filterwarnings("ignore::fair_tta.errors.UnknownAnswerWarning"),
]

GROUPS = ["a", "b"] * 50
Rows = list[tuple[str, str, str]]
ROWS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.sampled_from("xyz")),
    min_size=1,
    max_size=60,
)


@given(ROWS)
@settings(max_examples=40, deadline=None)
def test_rates_are_counts_and_intervals_scipys(rows: Rows) -> None:
    answers = [answer for answer, _, _ in rows]
    groups = [group for _, _, group in rows]
    rates = harm_rate(answers, groups, {"a", "b"}, values=["x", "y", "z"])
    assert list(rates) == ["x", "y", "z"]
    for name, rate in rates.items():
        of_group = [answer for answer, _, group in rows if group == name]
        assert rate.n == len(of_group)
        if not of_group:
            assert rate.value is None
            assert rate.reason == f"no images: {name}"
            continue
        harmful = sum(answer in "ab" for answer in of_group)
        assert rate.value == harmful / len(of_group)
        test = stats.binomtest(harmful, len(of_group))
        expected = test.proportion_ci(0.95, "wilson")
        assert (rate.low, rate.high) == pytest.approx(tuple(expected), abs=1e-9)


@given(ROWS)
@settings(max_examples=40, deadline=None)
def test_changes_are_differences_of_rates(rows: Rows) -> None:
    before, after, groups = map(list, zip(*rows, strict=True))
    rates_before = harm_rate(before, groups, ["a"])
    rates_after = harm_rate(after, groups, ["a"])
    for name, change in harm_rate_change(before, after, groups, ["a"]).items():
        difference = float(rates_after[name]) - float(rates_before[name])
        assert float(change) == pytest.approx(difference, abs=1e-12)
        harmful = [(b == "a", a == "a") for b, a, group in rows if group == name]
        losses = harmful.count((True, False))
        gains = harmful.count((False, True))
        loss, gain, images = np.array([losses, gains, len(harmful)], float)
        low, high = paired_bounds(loss, gain, images, 0.95)
        assert (change.low, change.high) == (max(-1, low), min(1, high))


def test_groups_are_intersections_and_small_ones_warn() -> None:
    sensitive = {"race": ["p", "q", "p"], "gender": ["m", "m", "w"]}
    with pytest.warns(SmallGroupWarning, match="Fewer than 30"):
        rates = harm_rate(["thief", "man", "man"], sensitive, ["thief", "criminal"])
    assert rates["p", "m"].value == 1
    assert rates["q", "w"].n == 0


@pytest.mark.parametrize(
    ("answers", "harmful", "meant"),
    [
        (["star", "circle"], "Star", "'star'"),
        ([0, 1], "1", "1"),
        (["0", "1"], 1, "'1'"),
        (["thief", "man"], "thief ", "'thief'"),
    ],
)
def test_a_class_in_another_spelling_is_refused(
    answers: list[Any], harmful: Any, meant: str
) -> None:
    message = f"`harmful` should name classes as .* answers are {meant}"
    with pytest.raises(FairTTAError, match=message):
        harm_rate(answers * 50, GROUPS, [harmful])
    with pytest.raises(FairTTAError, match=message):
        harm_rate_change(answers * 50, answers[:1] * 100, GROUPS, [harmful])


def test_a_class_that_is_never_answered_warns() -> None:
    answers = ["man", "thief"] * 50
    with pytest.warns(UnknownAnswerWarning, match="no answer is 'theif'") as caught:
        rates = harm_rate(answers, GROUPS, ["theif", "thief"])
    assert caught[0].filename == __file__
    assert rates["b"].value == 1
    with pytest.warns(UnknownAnswerWarning, match="no answer is 'theif'") as caught:
        harm_rate_change(answers, answers, GROUPS, ["theif"])
    assert caught[0].filename == __file__
    # A class that only contains an answer is another class.
    with pytest.warns(UnknownAnswerWarning, match="no answer is 'bad man'"):
        rates = harm_rate(answers, GROUPS, ["bad man"])
    assert rates["a"].value == 0
