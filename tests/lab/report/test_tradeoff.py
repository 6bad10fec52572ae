"""Runs that differ in one number only, and the image of what it trades."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from internals import MAX_SWEEPS, TRADED, sweeps, tradeoff_charts
from report_samples import Page

from fair_tta import (
    AssociationCorrection,
    FairTPT,
    FixedRate,
    LogitBalance,
    OrthCali,
    ZeroShot,
)
from fair_tta.auditing import Audit, audit, compare
from fair_tta.lab.report import html
from fair_tta.metrics import Bootstrap

generator = np.random.default_rng(0)
TRUTH, GROUP = generator.integers(0, 2, (2, 400))


def made(adapters: dict[str, Any]) -> Audit:
    audits = []
    for i, (name, adapter) in enumerate(adapters.items()):
        answers = np.where(generator.random(400) < 0.7 + 0.02 * i, TRUTH, 1 - TRUTH)
        audits.append(
            audit(
                TRUTH,
                answers,
                GROUP,
                name=name,
                adapter=adapter,
                interval=Bootstrap(50),
            )
        )
    return compare(audits)


@pytest.fixture(scope="module")
def swept() -> Audit:
    return made(
        {
            "zero-shot": ZeroShot(),
            "keep 1": LogitBalance(keep_prior=1),
            "keep 0": LogitBalance(keep_prior=0.0),
            "keep half": LogitBalance(keep_prior=0.5),
            "other": OrthCali(),
        }
    )


def test_settings_of_one_method_are_found(swept: Audit) -> None:
    (sweep,) = sweeps(swept.document)
    assert (sweep.method, sweep.setting) == ("LogitBalance", "keep_prior")
    assert {value: run.name for value, run in sweep.runs.items()} == {
        0.0: "keep 0", 0.5: "keep half", 1.0: "keep 1",
    }  # fmt: skip
    assert list(sweep.runs) == [0.0, 0.5, 1.0]


def test_two_numbers_words_and_other_methods_do_not_make_one() -> None:
    document = made(
        {
            "a": LogitBalance(strength=1.0, keep_prior=0.5),
            "b": LogitBalance(strength=2.0, keep_prior=0.6),
            "c": AssociationCorrection(strength=1.0),
            "d": FairTPT(lam=float("inf")),
            "f": FairTPT(lam=1.0),
            "e": None,
        }
    ).document
    assert sweeps(document) == []


def test_nested_settings_and_grids() -> None:
    rates = {f"{x}": FairTPT(rate=FixedRate(x)) for x in (1e-4, 1e-3, 1e-2)}
    (sweep,) = sweeps(made(rates).document)
    assert sweep.setting == "rate.lr"
    grid = {
        f"{s} {k}": LogitBalance(strength=s, keep_prior=k)
        for s in (0.5, 1.0, 1.5)
        for k in (0.0, 1.0)
    }
    found = sweeps(made(grid).document)
    assert [len(sweep.runs) for sweep in found] == [3, 3, 2, 2, 2]
    assert len(found) <= MAX_SWEEPS


def test_the_chart_says_all_its_numbers(swept: Audit) -> None:
    document = swept.document
    (sweep,) = sweeps(document)
    charts = tradeoff_charts(sweep, document.runs[0])
    for metric, (_, chart) in zip(TRADED, charts, strict=True):
        for run in [document.runs[0], *sweep.runs.values()]:
            value = run.metrics.by_name()[metric].value
            assert value is not None
            assert f"{100 * value:.1f}" in chart
        assert chart.index("zero-shot: ") < chart.index("keep_prior = 0: ")
    inside = tradeoff_charts(sweep, next(iter(sweep.runs.values())))
    assert "zero-shot" not in inside[0][1]
    page = Page(html(swept))
    assert "audit-tradeoff-1" in page.ids
    assert "What keep_prior of LogitBalance trades" in page.text


def test_more_than_can_be_drawn_is_told() -> None:
    grid = {
        f"{s} {k}": LogitBalance(strength=s, keep_prior=k)
        for s in (0.5, 1.0, 1.5, 2.0)
        for k in (0.0, 0.3, 0.6, 1.0)
    }
    page = Page(html(made(grid)))
    assert "2 more series of settings" in page.text
    assert f"audit-tradeoff-{MAX_SWEEPS}" in page.ids
    assert f"audit-tradeoff-{MAX_SWEEPS + 1}" not in page.ids
