"""Marks, and legends that page, card and terminal share."""

from __future__ import annotations

import pytest
from internals import Estimate, legends
from report_samples import sample

from fair_tta.lab.report import html, markdown
from fair_tta.metrics.definitions import METRICS


@pytest.mark.parametrize(
    ("metric", "low", "high", "mark"),
    [
        ("accuracy", 0.01, 0.2, "better"),
        ("accuracy", -0.2, -0.01, "worse"),
        ("bias", -0.2, -0.01, "better"),
        ("bias", 0.01, 0.2, "worse"),
        ("bias", -0.01, 0.2, "unclear"),
        ("bias", 0.0, 0.2, "unclear"),
        ("harm", -0.2, -0.01, "better"),
        ("average_target_confidence", 0.01, 0.2, "higher"),
        ("average_target_confidence", -0.2, -0.1, "lower"),
    ],
)
def test_marks(metric: str, low: float, high: float, mark: str) -> None:
    change = Estimate((low + high) / 2, 10, low, high)
    assert legends.mark_of(metric, change) == mark
    assert mark in legends.MARKS


def test_no_interval_no_mark() -> None:
    assert legends.mark_of("bias", Estimate(0.1, 10)) == "unknown"
    assert legends.mark_of("accuracy", None) == "unknown"


def test_every_metric_of_an_audit_has_words() -> None:
    metrics = sample(n=30).document.runs[0].metrics.by_name()
    assert list(METRICS) == list(metrics)


def test_page_and_card_have_the_same_legend() -> None:
    audit = sample(n=60)
    legend = legends.metric_legend(audit.document)
    assert "allow for all 2 comparisons (Holm)" in legend
    assert legend in html(audit)
    assert legend in markdown(audit)
    assert "comparisons" not in legends.metric_legend(sample(n=60, runs="ab").document)


def test_limits_of_several_audits_come_once() -> None:
    several = sample(n=60).document
    single = sample(n=60, runs=["a"]).document
    by_age = sample(n=60, runs=["a"], sensitive={"age": ["old", "young"]}).document
    names = [name for name, _ in legends.limits_of_all([single, several, by_age])]
    (repeated,) = {name for name in names if names.count(name) > 1}
    assert repeated == "Groups that were not named"
    assert list(dict.fromkeys(names)) == list(legends.limits(several))
