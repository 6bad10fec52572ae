"""The verdict on a method is decided once: gap and accuracy are two facts.

`tests/messages/report_inputs.py` has the words of each verdict.
"""

from __future__ import annotations

import pytest
from internals import MethodRow, cost_sentence, method_rows, methods_on_tasks
from verdict_samples import BETTER, CLEAR, EVEN, Rates, made

from fair_tta import AssociationCorrection, compare


def row(before: Rates, after: Rates) -> MethodRow:
    return method_rows(compare([made(before), made(after, "M")]).document)[0]


def test_a_row_has_the_figures_of_the_comparison() -> None:
    association = made(BETTER, "Association", AssociationCorrection(), seconds=8.0)
    (method,) = method_rows(compare([made(CLEAR, seconds=4.0), association]).document)
    assert method.verdict == "narrows the gap, helps the worst group, raises accuracy"
    assert method.tone == "good"
    assert method.changed == pytest.approx(60 / 400)
    assert method.cost == pytest.approx(2.0)


def test_the_typical_gap_decides_not_the_gap_to_the_worst_group() -> None:
    """Accuracy minus worst group may fall where no gap between groups changes."""
    before = {cell: (900 if cell[0] == "cat" else 500, 1000) for cell in CLEAR}
    after = {cell: (900 if cell[0] == "cat" else 700, 1000) for cell in CLEAR}
    method = row(before, after)
    assert (method.comparison.adjusted.bias.high or 0.0) < 0
    assert method.verdict == "helps the worst group, raises accuracy"
    assert method.tone == ""


@pytest.mark.parametrize(
    ("after", "tone"),
    [
        (BETTER, "good"),
        (CLEAR, ""),
        (CLEAR | {("dog", "out"): (22, 100)}, ""),
        (CLEAR | {("cat", "in"): (70, 100), ("cat", "out"): (70, 100)}, "bad"),
        ({**dict.fromkeys(EVEN, (60, 100)), ("dog", "out"): (20, 100)}, ""),
    ],
)
def test_only_a_narrower_gap_without_harm_is_green(after: Rates, tone: str) -> None:
    assert row(CLEAR, after).tone == tone


def test_costs_are_multiples_of_zero_shot() -> None:
    runs = [
        made(CLEAR, name, seconds=seconds)
        for name, seconds in (("views", 26.3), ("one view", 1.04), ("shared", 0.5))
    ]
    document = compare([made(CLEAR, seconds=1.0), *runs]).document
    assert cost_sentence(document) == (
        "Cost in zero-shot calls: 1.0 with one view, 26 with views."
    )
    assert cost_sentence(made(CLEAR).document) == ""


def test_only_tasks_on_which_a_method_ran_count() -> None:
    small_gap = dict.fromkeys(CLEAR, (90, 100)) | {("dog", "out"): (60, 100)}
    narrowed = compare([made(CLEAR), made(BETTER, "M")]).document
    neither = compare([made(small_gap), made(small_gap, "N")]).document
    best, second = methods_on_tasks([("T1", narrowed), ("T2", neither)])
    assert (best.name, best.not_run, best.n_shown) == ("M", ("T2",), 1)
    assert best.verdict.endswith("raises accuracy in 1 of 1")
    assert (second.name, second.not_run, second.n_shown) == ("N", ("T1",), 0)


def test_means_over_tasks() -> None:
    small_gap = dict.fromkeys(CLEAR, (90, 100)) | {("dog", "out"): (60, 100)}
    first = compare([made(CLEAR), made(BETTER, "M")]).document
    second = compare([made(small_gap), made(small_gap, "M")]).document
    (method,) = methods_on_tasks([("a", first), ("b", second)])
    assert method.balanced_values == "77.5 \N{RIGHTWARDS ARROW} 85.0"
    assert method.cost is None
    assert (method.n_narrowed, method.n_shown, method.n_harmed) == (1, 1, 0)
