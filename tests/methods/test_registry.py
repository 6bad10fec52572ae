"""Methods as text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from internals import (
    ADAPTERS,
    Chained,
    DistortedViews,
    KLFromUniform,
    complete_adapters,
    describe_settings,
    parse_adapter,
    parse_adapters,
)

import fair_tta
from fair_tta import (
    ELRA,
    TPT,
    AssociationCorrection,
    FairTPT,
    FairTPTMO,
    FixedRate,
    LogitBalance,
    OrthCali,
    Zero,
    ZeroShot,
)
from fair_tta import methods as adapters
from fair_tta.extend import Adapter
from fair_tta.methods import (
    MEMO,
    SAGE,
    UMFC,
    PerceptionCLIP,
    RoboShot,
    SEraser,
    SuperTSLoss,
    Tent,
    TSLoss,
)


def test_every_adapter_has_a_name() -> None:
    classes = {
        cls
        for module in (fair_tta, adapters)
        for cls in (getattr(module, name) for name in module.__all__)
        if isinstance(cls, type) and issubclass(cls, Adapter)
    }
    assert set(ADAPTERS.values()) == classes - {Chained}
    all_needs = [cls().needs for cls in ADAPTERS.values()]
    needs = [(n.sensitive, n.prompt_gradient, n.reference, n.pixels) for n in all_needs]
    assert needs == sorted(needs)  # what needs least comes first
    expected = {
        *(
            "zero-shot",
            "zero",
            "tpt",
            "association-correction",
            "logit-balance",
            "orthcali",
        ),
        *("fair-tpt", "fair-tpt-mo", "roboshot", "perception-clip", "sage"),
        *("partial-projection", "episodic-tie", "tie", "tie-star", "bend-vlm", "umfc"),
        *("memo", "sar", "tent", "seraser", "deyo", "ttr", "sem", "balanced-head"),
    }
    assert set(ADAPTERS) >= expected  # a name on the command line is a promise
    assert next(iter(ADAPTERS)) == "zero-shot"


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_is_in_the_table_of_methods(name: str) -> None:
    page, method_class = (
        Path(__file__).parents[2] / "docs" / "methods.md",
        ADAPTERS[name],
    )
    default = method_class()
    rows = [
        [c.strip() for c in line.split(" | ")]
        for line in page.read_text("utf-8").splitlines()
    ]
    (row,) = (
        row
        for row in rows
        if row[:2] == [f"| `{method_class.__name__}()`", f"`{name}`"]
    )
    needs = {
        "views": default.needs.views,
        "`sensitive`": default.needs.sensitive,
        "pixels": default.needs.pixels,
        "reference images": default.needs.reference,
        "their sensitive labels": default.needs.reference_sensitive,
        "their classes": default.needs.reference_labels,
        "true values": default.needs.values,
    }
    assert row[3].removesuffix("|").strip() == ", ".join(
        n for n, needed in needs.items() if needed
    )


@pytest.mark.parametrize(
    ("text", "adapter"),
    [
        ("zero-shot", ZeroShot()),
        (" zero : rho = 0.3 ", Zero(rho=0.3)),
        ("tpt:steps=4,rate.lr=1e-3", TPT(steps=4, rate=FixedRate(1e-3))),
        ("tpt:rate=elra,rate.beta=1e+2", TPT(rate=ELRA(beta=100.0))),
        ("tpt:rate.optimizer=sgd", TPT(rate=FixedRate(optimizer=torch.optim.SGD))),
        ("orthcali:lam=0", OrthCali(lam=0)),
        ("fair-tpt:lam=inf", FairTPT(lam=math.inf)),
        ("fair-tpt:loss=ts,loss.joint=true", FairTPT(loss=TSLoss(joint=True))),
        ("fair-tpt-mo:loss=super-ts,rho=0.5", FairTPTMO(loss=SuperTSLoss(), rho=0.5)),
        ("fair-tpt:rate=fixed", FairTPT(rate=FixedRate())),
        ("fair-tpt>>orthcali:lam=0", FairTPT() >> OrthCali(lam=0)),
        ("tpt:steps=2 + orthcali", TPT(steps=2) >> OrthCali()),
        ("association-correction:strength=1", AssociationCorrection(strength=1.0)),
        ("logit-balance:keep_prior=0.5", LogitBalance(keep_prior=0.5)),
        ("fair-tpt+association-correction", FairTPT() >> AssociationCorrection()),
        ("tent:rate.optimizer=sgd", Tent(rate=FixedRate(1e-3, torch.optim.SGD))),
        ("memo:every_weight=true", MEMO(every_weight=True)),
        ("seraser:loss.hold=true", SEraser(loss=KLFromUniform(hold=True))),
        (
            "seraser:auxiliary=distorted,auxiliary.n=4",
            SEraser(auxiliary=DistortedViews(4)),
        ),
        ("orthcali:lam=0,renormalise=false", OrthCali(lam=0, renormalise=False)),
        ("perception-clip:with_class=false", PerceptionCLIP(with_class=False)),
        ("fair-tpt+roboshot", FairTPT() >> RoboShot()),
        ("sage:keep=3", SAGE(keep=3)),
        ("umfc:perceived=true,clusters=5", UMFC(perceived=True, clusters=5)),
    ],
)
def test_adapters(text: str, adapter: Any) -> None:
    assert parse_adapter(text) == adapter


def test_lists_of_adapters() -> None:
    methods = parse_adapters(
        ["zero-shot, fair-tpt:lam=10,rate.beta=0.05 ,tpt", "fair-tpt:lam=1"]
    )
    assert methods == {
        "zero-shot": ZeroShot(),
        "fair-tpt:lam=10,rate.beta=0.05": FairTPT(lam=10, rate=ELRA(beta=0.05)),
        "tpt": TPT(),
        "fair-tpt:lam=1": FairTPT(lam=1),
    }


@pytest.mark.parametrize("name", ADAPTERS)
def test_described_settings_are_the_defaults(name: str) -> None:
    described = describe_settings(ADAPTERS[name])
    settings = ",".join(
        f"{key}={value}" for key, value in described if value
    )  # "" is required
    assert parse_adapter(f"{name}:{settings}") == ADAPTERS[name]()


def test_completion() -> None:
    assert complete_adapters("fair-tpt-") == ["fair-tpt-mo"]
    assert complete_adapters("zero-shot,o") == ["zero-shot,orthcali"]
    assert complete_adapters("") == list(ADAPTERS)
