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
    FairTTAError,
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
    kinds = {
        kind
        for module in (fair_tta, adapters)
        for kind in (getattr(module, name) for name in module.__all__)
        if isinstance(kind, type) and issubclass(kind, Adapter)
    }
    assert set(ADAPTERS.values()) == kinds - {Chained}
    every = [kind().needs for kind in ADAPTERS.values()]
    needs = [(n.sensitive, n.prompt_gradient, n.reference, n.pixels) for n in every]
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
    assert set(ADAPTERS) == expected
    assert next(iter(ADAPTERS)) == "zero-shot"


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_is_in_the_table_of_methods(name: str) -> None:
    page, kind = Path(__file__).parents[2] / "docs" / "methods.md", ADAPTERS[name]
    default = kind()
    rows = [
        [c.strip() for c in line.split(" | ")]
        for line in page.read_text("utf-8").splitlines()
    ]
    (row,) = (row for row in rows if row[:2] == [f"| `{kind.__name__}()`", f"`{name}`"])
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "fairtpt",
            "there is no adapter 'fairtpt': choose from zero-shot, sage, zero, .*tpt, ",
        ),
        ("zero:lam=1", "'zero' has no setting 'lam': its settings are rho."),
        ("zero-shot:rho=1", "'zero-shot' has no setting 'rho': it has no settings."),
        (
            "fair-tpt:rate.lr=1",
            "'fair-tpt:rate' has no setting 'lr': its settings are beta, sigma",
        ),
        ("zero:rho.x=1", "the setting 'rho' of 'zero' has no settings of its own"),
        ("zero:rho", "a setting of 'zero' is written 'name=value' \\(got 'rho'\\)"),
        ("zero:rho=", "is written 'name=value'"),
        ("zero:rho=1,rho=0.5", "the setting 'rho' of 'zero' came twice"),
        ("zero:rho=many", r"`zero:rho` should be a number \(got many\)"),
        ("tpt:steps=1.5", r"`tpt:steps` should be an integer \(got 1.5\)"),
        (
            "fair-tpt:loss=x",
            r"`fair-tpt:loss` should be one of s, ts, super-ts \(got x\)",
        ),
        (
            "fair-tpt:loss.joint=1",
            r"`fair-tpt:loss:joint` should be true or false \(got 1\)",
        ),
        ("zero:rho=2", r"`rho` should be a fraction of the views"),
        ("zero+orthcali", "the first method of a chain should be a FindsTexts"),
        ("tpt+zero", "the second method of a chain should be a UsesTexts"),
        ("tpt+logit-balance", "the second method of a chain should be a UsesTexts"),
        ("logit-balance:reference=x", "there is no file 'x': check the path"),
        ("logit-balance:reference=", "is written 'name=value'"),
        ("zero:reference=x", "'zero' has no setting 'reference': its settings are rho"),
    ],
)
def test_adapters_that_cannot_be_meant(text: str, message: str) -> None:
    with pytest.raises(FairTTAError, match=message):
        parse_adapter(text)


def test_lists_of_adapters() -> None:
    found = parse_adapters(
        ["zero-shot, fair-tpt:lam=10,rate.beta=0.05 ,tpt", "fair-tpt:lam=1"]
    )
    assert found == {
        "zero-shot": ZeroShot(),
        "fair-tpt:lam=10,rate.beta=0.05": FairTPT(lam=10, rate=ELRA(beta=0.05)),
        "tpt": TPT(),
        "fair-tpt:lam=1": FairTPT(lam=1),
    }
    with pytest.raises(
        FairTTAError, match=r"adapters should differ \(\['tpt'\] came twice\)"
    ):
        parse_adapters(["tpt,zero", "tpt"])
    with pytest.raises(
        FairTTAError, match="at least one adapter is needed: zero-shot, sage"
    ):
        parse_adapters([" , "])


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
