"""What people call, on the second device: all kinds of models, audits, examinations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checks import picture
from devices import Pair
from fits import fit_on
from internals import associations_of

from fair_tta import (
    AssociationCorrection,
    FairTPT,
    FairTPTClassifier,
    LogitBalance,
    OrthCali,
    ZeroShot,
)
from fair_tta.extend import Adapter, AugMix

pytest_plugins = ("device_models",)

NAMES = ["male", "female"]
PICTURES = [picture(i, (40 + i % 3, 30)) for i in range(12)]
LABELS = ["cat", "dog"] * 6
GROUPS = ["male", "male", "female", "female"] * 3

pytestmark = [
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning"),
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning"),
]


def both(pair: Pair, **more: Any) -> tuple[FairTPTClassifier, FairTPTClassifier]:
    settings: dict[str, Any] = {"views": AugMix(8), "scale": 30.0, **more}
    here, there = (
        FairTPTClassifier(
            backend,
            ["cat", "dog"],
            NAMES,
            "a photo of a {sensitive} {target}.",
            **settings,
        )
        for backend in (pair.cpu, pair.there)
    )
    return here, there


@pytest.mark.parametrize("model", ["SigLIP", "SigLIP 2", "open_clip"])
@pytest.mark.parametrize("adapter", [FairTPT(), OrthCali(), ZeroShot()])
def test_models(pairs: dict[str, Pair], model: str, adapter: Any) -> None:
    here, there = both(pairs[model], adapter=adapter)
    expected, found = here.predict(PICTURES[:3]), there.predict(PICTURES[:3])
    for one, two in zip(expected, found, strict=True):
        assert one.label == two.label
        assert two.probabilities == pytest.approx(one.probabilities, abs=1e-3)


def test_examine(pairs: dict[str, Pair]) -> None:
    methods: dict[str, Adapter] = {
        "correction": AssociationCorrection(),
        "zero-shot": ZeroShot(),
    }
    here, there = (clf.examine(PICTURES, methods) for clf in both(pairs["CLIP"]))
    for one, two in zip(here.document.adapters, there.document.adapters, strict=True):
        assert one.changed == two.changed
    assert list(here.document.attributes) == list(there.document.attributes)
    for attribute, perceived in here.document.attributes.items():
        other = there.document.attributes[attribute]
        assert other.pseudo_eod.value == pytest.approx(
            perceived.pseudo_eod.value, abs=1e-4
        )


def test_audit(pairs: dict[str, Pair]) -> None:
    here, there = (clf.audit(PICTURES, LABELS, GROUPS) for clf in both(pairs["CLIP"]))
    for one, two in zip(
        here.document.runs[0].groups, there.document.runs[0].groups, strict=True
    ):
        assert (two.sensitive, two.n, two.correct) == (
            one.sensitive,
            one.n,
            one.correct,
        )


def test_associations(pairs: dict[str, Pair]) -> None:
    here, there = (associations_of(clf._task) for clf in both(pairs["CLIP"]))
    for attribute, table in here.items():
        for value, row in table.items():
            assert there[attribute][value] == pytest.approx(row, abs=1e-4)


def test_encoded_features_may_lie_on_another_device(pairs: dict[str, Pair]) -> None:
    _, there = both(pairs["CLIP"])
    features = there.encode(PICTURES[:2])
    assert features.device.type != "cpu"
    answers = there._predict_encoded(features.cpu())
    assert [p.label for p in answers] == [p.label for p in there.predict(PICTURES[:2])]


def test_fitted_on_the_cpu_and_used_on_the_device(pairs: dict[str, Pair]) -> None:
    here, there = both(pairs["CLIP"])
    method = fit_on(LogitBalance(), here, PICTURES)
    expected = here.with_adapter(method).predict_proba(PICTURES)
    found = there.with_adapter(method).predict_proba(PICTURES)
    torch.testing.assert_close(
        torch.tensor(found), torch.tensor(expected), rtol=0, atol=1e-4
    )
