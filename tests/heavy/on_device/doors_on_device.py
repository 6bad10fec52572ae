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


def classifier_pair(
    pair: Pair, **options: Any
) -> tuple[FairTPTClassifier, FairTPTClassifier]:
    settings: dict[str, Any] = {"views": AugMix(8), "scale": 30.0, **options}
    on_cpu, on_device = (
        FairTPTClassifier(
            backend,
            ["cat", "dog"],
            NAMES,
            "a photo of a {sensitive} {target}.",
            **settings,
        )
        for backend in (pair.cpu, pair.there)
    )
    return on_cpu, on_device


@pytest.mark.parametrize("model", ["SigLIP", "SigLIP 2", "open_clip"])
@pytest.mark.parametrize("adapter", [FairTPT(), OrthCali(), ZeroShot()])
def test_models(pairs: dict[str, Pair], model: str, adapter: Any) -> None:
    on_cpu, on_device = classifier_pair(pairs[model], adapter=adapter)
    expected, actual = on_cpu.predict(PICTURES[:3]), on_device.predict(PICTURES[:3])
    for on_cpu_answer, two in zip(expected, actual, strict=True):
        assert on_cpu_answer.label == two.label
        assert two.probabilities == pytest.approx(on_cpu_answer.probabilities, abs=1e-3)


def test_examine(pairs: dict[str, Pair]) -> None:
    methods: dict[str, Adapter] = {
        "correction": AssociationCorrection(),
        "zero-shot": ZeroShot(),
    }
    on_cpu, on_device = (
        clf.examine(PICTURES, methods) for clf in classifier_pair(pairs["CLIP"])
    )
    for cpu_method, two in zip(
        on_cpu.document.adapters, on_device.document.adapters, strict=True
    ):
        assert cpu_method.changed == two.changed
    assert list(on_cpu.document.attributes) == list(on_device.document.attributes)
    for attribute, perceived in on_cpu.document.attributes.items():
        device_attribute = on_device.document.attributes[attribute]
        assert device_attribute.pseudo_eod.value == pytest.approx(
            perceived.pseudo_eod.value, abs=1e-4
        )


def test_audit(pairs: dict[str, Pair]) -> None:
    on_cpu, on_device = (
        clf.audit(PICTURES, LABELS, GROUPS) for clf in classifier_pair(pairs["CLIP"])
    )
    for cpu_row, two in zip(
        on_cpu.document.runs[0].groups, on_device.document.runs[0].groups, strict=True
    ):
        assert (two.sensitive, two.n, two.correct) == (
            cpu_row.sensitive,
            cpu_row.n,
            cpu_row.correct,
        )


def test_associations(pairs: dict[str, Pair]) -> None:
    on_cpu, on_device = (
        associations_of(clf._task) for clf in classifier_pair(pairs["CLIP"])
    )
    for attribute, table in on_cpu.items():
        for value, row in table.items():
            assert on_device[attribute][value] == pytest.approx(row, abs=1e-4)


def test_encoded_features_may_lie_on_another_device(pairs: dict[str, Pair]) -> None:
    _, on_device = classifier_pair(pairs["CLIP"])
    features = on_device.encode(PICTURES[:2])
    assert features.device.type != "cpu"
    answers = on_device._predict_encoded(features.cpu())
    assert [p.label for p in answers] == [
        p.label for p in on_device.predict(PICTURES[:2])
    ]


def test_fitted_on_the_cpu_and_used_on_the_device(pairs: dict[str, Pair]) -> None:
    on_cpu, on_device = classifier_pair(pairs["CLIP"])
    method = fit_on(LogitBalance(), on_cpu, PICTURES)
    expected = on_cpu.with_adapter(method).predict_proba(PICTURES)
    actual = on_device.with_adapter(method).predict_proba(PICTURES)
    torch.testing.assert_close(
        torch.tensor(actual), torch.tensor(expected), rtol=0, atol=1e-4
    )
