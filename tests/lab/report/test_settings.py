"""Settings as text, and runs that differ in one number only."""

from __future__ import annotations

from typing import Any

import pytest
from internals import MAX_SWEEPS, TRADED, flat_settings, sweeps, tradeoff_charts
from report_samples import Page
from verdict_samples import CLEAR, made

from fair_tta import (
    AssociationCorrection,
    FairTPT,
    FixedRate,
    LogitBalance,
    OrthCali,
    ZeroShot,
)
from fair_tta.auditing import Audit, compare
from fair_tta.lab.report import html


def compared(adapters: dict[str, Any]) -> Audit:
    runs = []
    for n_right, (name, adapter) in enumerate(adapters.items(), start=20):
        rates = CLEAR | {("dog", "out"): (n_right, 100)}
        runs.append(made(rates, name, adapter))
    return compare(runs)


def balance_grid(strengths: tuple[float, ...], priors: tuple[float, ...]) -> Audit:
    return compared(
        {
            f"{strength} {prior}": LogitBalance(strength=strength, keep_prior=prior)
            for strength in strengths
            for prior in priors
        }
    )


@pytest.fixture(scope="module")
def swept() -> Audit:
    return compared(
        {
            "zero-shot": ZeroShot(),
            "keep 1": LogitBalance(keep_prior=1),
            "keep 0": LogitBalance(keep_prior=0.0),
            "keep half": LogitBalance(keep_prior=0.5),
            "other": OrthCali(),
        }
    )


def test_settings_are_flattened() -> None:
    rate = {"name": "ELRA", "settings": {"beta": 0.01, "steps": [1, {"a": None}]}}
    assert list(flat_settings({"lam": 100.0, "rate": rate})) == [
        ("lam", "100.0"),
        ("rate", "ELRA"),
        ("rate.beta", "0.01"),
        ("rate.steps", "1; none"),
    ]


def test_settings_of_one_method_are_found(swept: Audit) -> None:
    (sweep,) = sweeps(swept.document)
    assert (sweep.method, sweep.setting) == ("LogitBalance", "keep_prior")
    names = [(value, run.name) for value, run in sweep.runs.items()]
    assert names == [(0.0, "keep 0"), (0.5, "keep half"), (1.0, "keep 1")]


def test_two_numbers_infinity_and_other_methods_do_not_make_one() -> None:
    audit = compared(
        {
            "a": LogitBalance(strength=1.0, keep_prior=0.5),
            "b": LogitBalance(strength=2.0, keep_prior=0.6),
            "c": AssociationCorrection(strength=1.0),
            "d": FairTPT(lam=float("inf")),
            "f": FairTPT(lam=1.0),
            "e": None,
        }
    )
    assert sweeps(audit.document) == []


def test_nested_settings_and_grids() -> None:
    rates = {f"{lr}": FairTPT(rate=FixedRate(lr)) for lr in (1e-4, 1e-3, 1e-2)}
    (sweep,) = sweeps(compared(rates).document)
    assert sweep.setting == "rate.lr"
    grid = sweeps(balance_grid((0.5, 1.0, 1.5), (0.0, 1.0)).document)
    assert [len(sweep.runs) for sweep in grid] == [3, 3, 2, 2, 2]


def test_the_chart_says_all_its_numbers(swept: Audit) -> None:
    reference = swept.document.runs[0]
    (sweep,) = sweeps(swept.document)
    charts = tradeoff_charts(sweep, reference)
    for metric, (_, chart) in zip(TRADED, charts, strict=True):
        for run in [reference, *sweep.runs.values()]:
            assert f"{100 * float(run.metrics.by_name()[metric]):.1f}" in chart
        assert chart.index("zero-shot: ") < chart.index("keep_prior = 0: ")
    # A reference that is one of the runs comes once
    inside = tradeoff_charts(sweep, next(iter(sweep.runs.values())))
    assert "zero-shot" not in inside[0][1]
    page = Page(html(swept))
    assert "audit-tradeoff-1" in page.ids
    assert "What keep_prior of LogitBalance trades" in page.text


def test_more_than_can_be_drawn_is_reported() -> None:
    page = Page(html(balance_grid((0.5, 1.0, 1.5, 2.0), (0.0, 0.3, 0.6, 1.0))))
    assert "2 more series of settings" in page.text
    assert f"audit-tradeoff-{MAX_SWEEPS}" in page.ids
    assert f"audit-tradeoff-{MAX_SWEEPS + 1}" not in page.ids
