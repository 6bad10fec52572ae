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

ROWS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.sampled_from("xyz")),
    min_size=1,
    max_size=60,
)


@given(ROWS)
@settings(max_examples=40, deadline=None)
def test_rates_are_counts_and_intervals_scipys(
    rows: list[tuple[str, str, str]],
) -> None:
    found = harm_rate(
        [r[0] for r in rows], [r[2] for r in rows], {"a", "b"}, values=["x", "y", "z"]
    )
    assert list(found) == ["x", "y", "z"]
    for name, figure in found.items():
        group = [r for r in rows if r[2] == name]
        assert figure.n == len(group)
        if not group:
            assert figure.value is None
            assert figure.reason == f"no images: {name}"
            continue
        bad = sum(r[0] in "ab" for r in group)
        assert figure.value == bad / len(group)
        ends = stats.binomtest(bad, len(group)).proportion_ci(0.95, "wilson")
        assert (figure.low, figure.high) == pytest.approx(
            (ends.low, ends.high), abs=1e-9
        )


@given(ROWS)
@settings(max_examples=40, deadline=None)
def test_changes_are_differences_of_rates(rows: list[tuple[str, str, str]]) -> None:
    before, after, group = ([r[i] for r in rows] for i in range(3))
    change = harm_rate_change(before, after, group, ["a"])
    first, second = harm_rate(before, group, ["a"]), harm_rate(after, group, ["a"])
    for name, figure in change.items():
        assert float(figure) == pytest.approx(
            float(second[name]) - float(first[name]), abs=1e-12
        )
        some = [(r[0] == "a", r[1] == "a") for r in rows if r[2] == name]
        gone, come = some.count((True, False)), some.count((False, True))
        loss, gain, images = np.array([gone, come, len(some)], float)
        low, high = paired_bounds(loss, gain, images, 0.95)
        assert (figure.low, figure.high) == (max(-1, low), min(1, high))


def test_groups_are_intersections_and_small_ones_warn() -> None:
    sensitive = {"race": ["p", "q", "p"], "gender": ["m", "m", "w"]}
    with pytest.warns(SmallGroupWarning, match="Fewer than 30"):
        found = harm_rate(["thief", "man", "man"], sensitive, ["thief", "criminal"])
    assert found["p", "m"].value == 1
    assert found["q", "w"].n == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], ["x"], "a"), r"`harmful` should be a list of classes \(got 'a'\)"),
        ((["a"], ["x"], []), r"`harmful` should be a list of classes \(got \[\]\)"),
        ((["a"], ["x"], 5), r"`harmful` should be a list of classes \(got 5\)"),
        (([], [], ["a"]), "`y_pred` should have at least one row"),
        ((["a", None], ["x", "y"], ["a"]), "`y_pred` should have no missing values"),
    ],
)
def test_what_is_wrong_is_told(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(FairTTAError, match=message):
        harm_rate(*arguments)


def test_runs_are_of_the_same_images() -> None:
    with pytest.raises(FairTTAError, match="`after` should be as long as `before`, 2"):
        harm_rate_change(["a", "a"], ["a"], ["x", "x"], ["a"])


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
    groups = ["a", "b"] * 50
    with pytest.raises(
        FairTTAError, match=f"`harmful` should name classes as .* answers are {meant}"
    ):
        harm_rate(answers * 50, groups, [harmful])
    with pytest.raises(
        FairTTAError, match=f"`harmful` should name classes as .* answers are {meant}"
    ):
        harm_rate_change(answers * 50, answers[:1] * 100, groups, [harmful])


def test_a_class_that_is_never_answered_warns() -> None:
    answers, groups = ["man", "thief"] * 50, ["a", "b"] * 50
    with pytest.warns(
        UnknownAnswerWarning, match="no answer is 'theif', .* 'man', 'thief'"
    ) as told:
        found = harm_rate(answers, groups, ["theif", "thief"])
    assert told[0].filename == __file__
    assert found["b"].value == 1
    with pytest.warns(UnknownAnswerWarning, match="no answer is 'theif'") as told:
        harm_rate_change(answers, answers, groups, ["theif"])
    assert told[0].filename == __file__


def test_a_class_that_only_contains_an_answer_is_another() -> None:
    with pytest.warns(UnknownAnswerWarning, match="no answer is 'bad man'"):
        found = harm_rate(["man", "woman"] * 50, ["a", "b"] * 50, ["bad man"])
    assert found["a"].value == 0
