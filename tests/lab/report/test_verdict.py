"""Verdicts and advice are those that the figures bear out.

`tests/messages/report_inputs.py` has the words of each case.
"""

from __future__ import annotations

import pytest
from internals import CONFIRM, Card, audit_cards
from msgspec import structs
from report_samples import Page
from verdict_samples import BETTER, CLEAR, EVEN, FAIRER, made

from fair_tta import compare
from fair_tta.auditing import Audit
from fair_tta.lab.report import html, markdown

CLEAR_500 = {**dict.fromkeys(EVEN, (475, 500)), ("dog", "out"): (250, 500)}

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")


def cards_of(*runs: Audit) -> list[Card]:
    audit = compare(runs) if len(runs) > 1 else runs[0]
    return audit_cards([("", audit.document)])


@pytest.mark.parametrize(
    ("right", "n", "usual"),
    [(7, 10, (8, 10)), (27, 30, (30, 30)), (90, 100, (90, 100))],
)
def test_a_gap_that_is_not_shown_is_not_called_wrong(
    right: int, n: int, usual: tuple[int, int]
) -> None:
    card = cards_of(made({**dict.fromkeys(CLEAR, usual), ("dog", "out"): (right, n)}))[
        0
    ]
    assert (card.heading, card.tone) == ("What is seen", "")
    assert card.details.endswith(" A gap between groups is not shown.")


def test_a_method_without_a_cost_goes_first() -> None:
    mild = made({**CLEAR_500, ("dog", "out"): (330, 500)}, "Free")
    cards = cards_of(made(CLEAR_500), made(FAIRER, "Costs"), mild)
    assert cards[2].text == f"Use Free. {CONFIRM}"


def test_a_method_that_was_saved_is_loaded_with_the_lines_below() -> None:
    document = compare([made(CLEAR), made(BETTER, "M")]).to_dict()
    document["provenance"]["mitigation"] = {
        "chosen": "M",
        "reason": "It narrows the gap.",
        "python": "clf.with_adapter('m.npz')",
    }
    advice = cards_of(Audit.from_dict(document))[-1]
    assert advice.text == f"Use M: load its file with the lines below. {CONFIRM}"
    page = Page(html(document)).text
    assert "It narrows the gap." in page
    assert "clf.with_adapter('m.npz')" in page


def test_what_has_no_interval_is_printed_nowhere() -> None:
    tiny = {**CLEAR, ("dog", "out"): (1, 4)}
    audit = compare([made(tiny), made({**tiny, ("dog", "out"): (3, 4)}, "M")])
    gap = audit.estimate("typical_gap")
    assert gap.low is None
    number = f"{100 * float(gap):.1f}"
    assert float(number) > 10
    for text in (
        Page(html(audit)).text,
        markdown(audit),
        str(audit),
        audit._repr_html_(),
    ):
        assert number not in text


def test_the_sentence_names_the_figures_that_it_rests_on() -> None:
    document = compare([made(CLEAR), made(BETTER, "M")]).document
    (comparison,) = document.comparisons
    odds = comparison.differences.equalized_odds_difference
    worst = comparison.differences.worst_group_accuracy
    unclear = structs.replace(
        comparison.differences,
        equalized_odds_difference=structs.replace(odds, low=-0.3, high=0.1),
        worst_group_accuracy=structs.replace(worst, low=-0.1, high=0.1),
    )
    comparison = structs.replace(comparison, differences=unclear)
    changed = structs.replace(document, comparisons=(comparison,))
    helps = audit_cards([("", changed)])[1]
    assert "Shown on the typical gap; worst group and EOD: cannot tell." in (
        helps.details
    )


def test_several_comparisons_have_wider_intervals() -> None:
    (single,) = compare([made(CLEAR), made(BETTER, "a")]).document.comparisons
    assert single.adjusted is single.differences
    document = compare(
        [made(CLEAR), *(made(BETTER, name) for name in "abcde")]
    ).document
    for comparison in document.comparisons:
        plain = comparison.differences.bias
        corrected = comparison.adjusted.bias
        assert corrected.value == plain.value
        bounds = (corrected.low, plain.low, plain.high, corrected.high)
        assert list(bounds) == sorted(bound for bound in bounds if bound is not None)
    # Runs that are left out afterwards still count
    part = structs.replace(
        document, runs=document.runs[:2], comparisons=document.comparisons[:1]
    )
    assert "corrected for 5 methods" in audit_cards([("", part)])[1].details


def test_no_image_in_any_group_of_a_class() -> None:
    document = made(CLEAR).document
    empty = structs.replace(document.runs[0], groups=())
    (card,) = audit_cards([("", structs.replace(document, runs=(empty,)))])
    assert card.text == "Nothing was measured: no group has images."
