"""Groups before and after a method, with p-values of their own."""

from __future__ import annotations

import pytest
from internals import changed_groups, group_sentences
from scipy.stats import binomtest
from verdict_samples import BETTER, CLEAR, answers, made

from fair_tta import audit, compare

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")


def test_p_values_are_corrected_for_all_groups() -> None:
    after = {**CLEAR, ("dog", "out"): (45, 100), ("cat", "in"): (82, 100)}
    document = compare([made(CLEAR), made(after, "M")]).document
    groups = changed_groups(document, document.comparisons[0])
    assert [(group.name, group.before, group.after) for group in groups[:2]] == [
        ("dog / out", 0.2, 0.45),
        ("cat / in", 0.9, 0.82),
    ]
    # The smallest of four p-values counts four times, the next three times
    assert groups[0].p == pytest.approx(4 * binomtest(0, 25).pvalue)
    assert groups[1].p == pytest.approx(3 * binomtest(0, 8).pvalue)
    assert [group.p for group in groups[2:]] == [1.0, 1.0]
    gained, lost = group_sentences(groups)
    assert gained.startswith("dog / out: 20 \N{RIGHTWARDS ARROW} 45 of 100 (25 became")
    assert lost.startswith("cat / in: 90 \N{RIGHTWARDS ARROW} 82 of 100 (0 became")


def test_p_values_do_not_hold_where_images_are_clustered() -> None:
    truth, _, group = answers(CLEAR)
    people = [f"person {i // 4}" for i in range(len(truth))]
    runs = [
        audit(truth, answers(rates)[1], {"place": group}, name=name, clusters=people)
        for name, rates in (("ZeroShot", CLEAR), ("M", BETTER))
    ]
    document = compare(runs).document
    (gained,) = group_sentences(changed_groups(document, document.comparisons[0]))
    assert gained.endswith("80 of 100 (60 became right, 0 wrong)")
