"""Which of the methods that were compared is recommended."""

from __future__ import annotations

import pytest
from internals import recommended_comparison, verdict_on
from verdict_samples import BETTER, CLEAR, EVEN, Rates, made

from fair_tta.auditing import compare

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
def test_the_lowest_gap_that_costs_nothing(
    methods: dict[str, Rates], chosen: str | None
) -> None:
    audits = [made(CLEAR), *(made(rates, name) for name, rates in methods.items())]
    document = compare(audits).document
    found = recommended_comparison(document)
    assert (found and found.run) == chosen


def test_an_objection_says_why() -> None:
    audits = [made(CLEAR), made(CLEAR, "same"), made(LEVELLED_DOWN, "down")]
    document = compare(audits).document
    same, down = (
        verdict_on(document, comparison) for comparison in document.comparisons
    )
    assert same.objection == "does not significantly narrow the gap"
    assert down.objection == (
        "significantly costs balanced accuracy, accuracy, and is not shown to answer better than "
        "chance (balanced accuracy)"
    )
