"""Thresholds: what fails, what does not, and what cannot be judged."""

from __future__ import annotations

import math

import pytest
from internals import METRIC_ALIASES, judge_threshold, read_thresholds
from verdict_samples import CLEAR, made

from fair_tta.errors import FairTTAError
from fair_tta.metrics.definitions import METRICS

RUNS = ["ZeroShot"]


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
def test_what_is_read(text: str, metric: str, sign: str, points: float) -> None:
    (found,) = read_thresholds([text], "tpt", ["tpt"])
    assert (found.metric, found.sign, found.points, found.run) == (
        metric,
        sign,
        points,
        "tpt",
    )


@pytest.mark.parametrize(
    "text", ["", "wga", "wga < ", "< 3", "wga < -1", "wga < 101", "gap > 1"]
)
def test_what_cannot_be_meant(text: str) -> None:
    with pytest.raises(FairTTAError, match="threshold"):
        read_thresholds([text], "tpt", ["tpt"])


def test_a_share_is_not_taken_for_points() -> None:
    with pytest.raises(
        FairTTAError, match=r"write 90 if 0\.9 is a share, or '0\.9 %' if it is not"
    ):
        read_thresholds(["accuracy<0.9"], "tpt", ["tpt"])


def test_short_names_are_of_metrics() -> None:
    assert set(METRIC_ALIASES.values()) < set(METRICS)


def test_the_whole_interval_has_to_lie_beyond() -> None:
    document = made(CLEAR).document
    for name, figure in document.runs[0].metrics.by_name().items():
        if figure.low is None or figure.high is None:
            continue
        low, high = (
            math.floor(1000 * figure.low) / 10,
            math.ceil(1000 * figure.high) / 10,
        )
        cases = [
            (">", low - 0.1, "failed"), (">", high, "passed"), (">", (low + high) / 2, "undecided"),
            ("<", high + 0.1, "failed"), ("<", low, "passed"), ("<", (low + high) / 2, "undecided"),
        ]  # fmt: skip
        for sign, points, outcome in cases:
            if 0 <= points <= 100 and low < high:
                (rule,) = read_thresholds(
                    [f"{name} {sign} {points:.2f}"], "ZeroShot", RUNS
                )
                assert judge_threshold(rule, document).outcome == outcome, (
                    rule,
                    figure,
                )


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_what_has_no_interval_is_not_judged() -> None:
    few = {**CLEAR, ("dog", "out"): (0, 2)}
    one = {cell: rates for cell, rates in CLEAR.items() if cell[1] == "in"}
    for rates in (few, one):
        document = made(rates).document
        (rule,) = read_thresholds(["typical_gap > 0"], "ZeroShot", RUNS)
        assert document.runs[0].metrics.typical_gap.low is None
        assert judge_threshold(rule, document).outcome == "not judged"
    (rule,) = read_thresholds(["ece > 0"], "ZeroShot", RUNS)
    assert judge_threshold(rule, document).outcome == "not judged", (
        "no scores were recorded"
    )
