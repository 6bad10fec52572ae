"""Every adapter gives the CPU's answers on the second device, with few words between the two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import autoencoders
import cv2
import devices
import families
import pytest
import torch
from checks import picture
from devices import Pair
from internals import ADAPTERS, Aggregator, Renderer, combine, upgrad_weights

from fair_tta import (
    ELRA,
    TPT,
    AssociationCorrection,
    FairTPT,
    FairTPTClassifier,
    FairTPTMO,
    FixedRate,
    OrthCali,
)
from fair_tta.extend import AugMix, FittedMethod
from fair_tta.methods import SAR, SEM, TTR, SLoss, SuperTSLoss, TSLoss

pytest_plugins = ("device_models",)

TARGETS = ["cat", "black dog", "water bird"]
SENSITIVE = {"sex": ["male", "female"], "age": ["young", "old", "not old"]}
TEMPLATE = "a photo of a {sensitive} {target}."
PICTURES = [picture(i, (40 + i % 3, 30)) for i in range(16)]

SAME = 1e-4
"""Between the CPU, which has float64 for what is delicate, and a device, which has float32."""


EXPORTED = {
    adapter_class.__name__: adapter_class()
    for adapter_class in ADAPTERS.values()
    if not hasattr(adapter_class, "knowing")  # TIE needs true values
}
AUTOENCODER = autoencoders.random_weights(families.DIM, 32)
EXPORTED["SEM"] = SEM(
    autoencoder=autoencoders.saved(Path(mkdtemp()) / "sae.safetensors", AUTOENCODER)
)
EXPORTED["TTR"] = TTR(subject="dog")
OTHERS: dict[str, Any] = {
    "TPT ELRA": TPT(rate=ELRA()),
    "FairTPT inf": FairTPT(lam=math.inf),
    "FairTPT fixed": FairTPT(rate=FixedRate(5e-3), steps=2),
    "FairTPT S joint": FairTPT(loss=SLoss(joint=True)),
    "FairTPT TS": FairTPT(loss=TSLoss()),
    "FairTPT super-TS": FairTPT(loss=SuperTSLoss()),
    "FairTPTMO two steps": FairTPTMO(steps=2),
    "FairTPT >> OrthCali": FairTPT() >> OrthCali(lam=0),
    "super-TS >> AssociationCorrection": FairTPT(loss=SuperTSLoss())
    >> AssociationCorrection(),
    "FairTPTMO separate": FairTPTMO(loss=SLoss(separate=True)),
    "FairTPT >> OrthCali calibrated": FairTPT() >> OrthCali(lam=10),
    "FairTPT >> OrthCali default": FairTPT() >> OrthCali(),
}

MOST_COPIES = 100
"""To the host for a batch: lengths and projections are computed there, in float64."""

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")


def classifier(backend: Any, adapter: Any, **options: Any) -> FairTPTClassifier:
    settings: dict[str, Any] = {"views": AugMix(8), "scale": 30.0, **options}
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, **settings)
    clf = clf.with_adapter(adapter)
    if isinstance(adapter, FittedMethod):
        count = 60 if adapter.needs.reference_labels else 12
        images = [picture(100 + i % 12) for i in range(count)]
        classes = [TARGETS[i % len(TARGETS)] for i in range(count)]
        values = {
            name: [v[i % len(v)] for i in range(count)] for name, v in SENSITIVE.items()
        }
        clf.fit(
            images,
            classes if adapter.needs.reference_labels else None,
            values if adapter.needs.reference_sensitive else None,
        )
    return clf


def assert_same(
    expected: Sequence[Any], actual: Sequence[Any], tolerance: float = SAME
) -> None:
    for left_hand, two in zip(expected, actual, strict=True):
        assert left_hand.label == two.label
        assert two.probabilities == pytest.approx(
            left_hand.probabilities, abs=tolerance
        )
        assert two.zero_shot == pytest.approx(left_hand.zero_shot, abs=1e-5)
        for attribute, values in left_hand.sensitive.items():
            assert two.sensitive[attribute] == pytest.approx(values, abs=10 * tolerance)
        assert two.warnings == left_hand.warnings
        assert two.views_kept == left_hand.views_kept


PIXELS = {name: method for name, method in EXPORTED.items() if method.needs.pixels}
"""They tune weights or look at other pictures, one image after another."""
FEW_PASS: dict[str, Any] = {
    "SAR, none certain": SAR(margin=0.015),
    "SAR, none certain uphill": SAR(margin=0.05),
}
"""Two of the first three pictures have no view to learn from, one has."""


@pytest.mark.parametrize("name", [*PIXELS, *FEW_PASS])
def test_methods_on_pictures_give_the_same_answers(
    pairs: dict[str, Pair], device: torch.device, name: str
) -> None:
    adapter = {**PIXELS, **FEW_PASS}[name]
    views = AugMix(8, render=Renderer.OPENCV)
    on_cpu, on_device = (
        classifier(backend, adapter, views=views)
        for backend in (pairs["CLIP"].cpu, pairs["CLIP"].there)
    )
    expected = on_cpu.predict(PICTURES[:3])
    assert_same(expected, on_device.predict(PICTURES[:3]), 1e-3)
    if name in FEW_PASS and cv2.__version__ >= "5":  # others draw other views
        assert [bool(prediction.warnings) for prediction in expected] == [
            True,
            True,
            False,
        ]
    on_device._vision.forget()
    with devices.Traffic(device) as traffic:
        on_device.predict(PICTURES[:3])
    assert traffic.to_host <= MOST_COPIES, traffic.names


@pytest.mark.parametrize("name", [*sorted(EXPORTED.keys() - PIXELS), *OTHERS])
def test_the_same_answers_with_few_copies(
    pairs: dict[str, Pair], device: torch.device, name: str
) -> None:
    adapter = {**EXPORTED, **OTHERS}[name]
    pair = pairs["CLIP"]
    clf = classifier(pair.there, adapter)
    features = clf.encode(PICTURES, with_views=adapter.needs.views).cpu()
    expected = classifier(pair.cpu, adapter)._predict_encoded(features)
    clf.predict(PICTURES[:2])  # what is made once: features of prompts, graphs
    clf._vision.forget()
    with devices.Traffic(device) as traffic:
        actual = clf.predict(PICTURES)
    # what is left after a projection is short, and is divided by its length
    assert_same(expected, actual, 1e-3 if ">>" in name or "separate" in name else SAME)
    assert traffic.to_host <= MOST_COPIES, traffic.names


@pytest.mark.parametrize("terms", [2, 3, 5, 8])
def test_upgrad_weighs_terms_where_they_are(device: torch.device, terms: int) -> None:
    """Nearly opposed and nearly equal gradients among them, and some of length 0 and 1e-12."""
    random = torch.Generator().manual_seed(terms)
    gradients = torch.randn(40, terms, 60, generator=random)
    gradients[10:20, 1] = -gradients[10:20, 0] + 0.02 * gradients[10:20, 1]
    gradients[20:30, 1] = gradients[20:30, 0] + 0.02 * gradients[20:30, 1]
    gradients[30:35, 0] *= 1e-12
    gradients[35:, 1] = 0
    gradients = gradients.unsqueeze(2)
    upgrad: Aggregator = (partial(upgrad_weights, lam=3.0), "gramian")
    expected = combine(upgrad, gradients.double()).squeeze(1)
    with devices.Traffic(device) as traffic:
        direction = combine(upgrad, gradients.to(device)).squeeze(1)
    assert traffic.to_host <= 1, traffic.names
    error = (direction.cpu().double() - expected).norm(dim=1) / expected.norm(dim=1)
    assert error[10:20].max() < 1e-3, (
        "a direction that two opposed ones allow is hard to find"
    )
    # Two that are 0.02 apart: a rounding of 6e-8 counts 1 / 0.02**2 times, which is 1.5e-4.
    assert error[20:30].max() < 3e-4, "nearly equal ones"
    assert error[:10].max() < 1e-5 > error[30:].max()
