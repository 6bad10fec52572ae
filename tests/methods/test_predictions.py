"""Predictions: certificates that hold, and many tensors fetched in one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fits import fit_on_features
from hypothesis import given, settings
from internals import fetch_to_cpu, to_predictions
from random_task import Drawn, EncodedClassifier, drawn

from fair_tta import AssociationCorrection, LogitBalance, Prediction, ZeroShot
from fair_tta.extend import Outcome

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")

VIEWS = 5


def of_adapter(adapter: Any, case: Drawn) -> list[Prediction]:
    task = case.task
    zero_shot, adapted = (m.adapt(task, case.features) for m in (ZeroShot(), adapter))
    return to_predictions(task, zero_shot, adapted, adapter)


def of_balance(case: Drawn) -> list[Prediction]:
    classifier = EncodedClassifier(case.task)
    return of_adapter(fit_on_features(LogitBalance(), classifier, case.features), case)


@pytest.mark.parametrize(
    "answer",
    [
        lambda case: of_adapter(AssociationCorrection(strength=3), case),
        of_balance,
    ],
    ids=["AssociationCorrection", "LogitBalance"],
)
@settings(max_examples=25)
@given(case=drawn(VIEWS))
def test_certificates(answer: Any, case: Drawn) -> None:
    for prediction in answer(case):
        p, q = (
            list(x.values()) for x in (prediction.zero_shot, prediction.probabilities)
        )
        moved = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
        first, second = sorted(p, reverse=True)[:2]
        assert prediction.distance == pytest.approx(moved, abs=1e-12)
        assert prediction.flip_margin == pytest.approx((first - second) / 2, abs=1e-12)
        assert prediction.certified_unchanged == (
            prediction.distance < prediction.flip_margin
        )
        names = list(prediction.zero_shot)
        assert prediction.flipped == (prediction.label != names[p.index(first)])
        assert not (prediction.certified_unchanged and prediction.flipped)


def test_a_move_as_long_as_the_margin_is_not_certified() -> None:
    """It may end in a tie, and does here: quarters are exact, so nothing is rounded."""
    target = torch.eye(2, dtype=torch.float64)
    task = Drawn(target, {}, target).task
    before = Outcome(torch.tensor([[0.25, 0.75]], dtype=torch.float64))
    tie = Outcome(torch.tensor([[0.5, 0.5]], dtype=torch.float64))
    (prediction,) = to_predictions(task, before, tie, ZeroShot())
    assert prediction.distance == prediction.flip_margin == 0.25
    assert prediction.flipped
    assert not prediction.certified_unchanged


def test_both_kinds_of_answer_occur() -> None:
    """Of the strong correction some flip and some are certified, so the above says something."""
    generator = torch.Generator().manual_seed(0)
    target, values, features = (
        torch.nn.functional.normalize(
            torch.randn(n, 24, generator=generator).double(), dim=-1
        )
        for n in (3, 2, 200)
    )
    case = Drawn(target, {"s": values}, features.unsqueeze(1))
    predictions = of_adapter(AssociationCorrection(strength=3), case)
    assert any(p.flipped for p in predictions)
    assert any(p.certified_unchanged for p in predictions)


def test_tensors_are_fetched_unchanged() -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "single": torch.randn(4, 3, generator=generator),
        "half": torch.randn(4, 2, generator=generator).bfloat16(),
        "double": torch.randn(4, generator=generator, dtype=torch.float64),
        "truth": torch.tensor([True, False, True, True]),
        "tracked": torch.randn(4, 1, generator=generator).requires_grad_(),
    }
    fetched = fetch_to_cpu(tensors)
    assert list(fetched) == list(tensors)
    for name, tensor in tensors.items():
        assert fetched[name].dtype == torch.float64
        assert fetched[name].shape == (4, tensor.numel() // 4)
        expected = tensor.detach().double().numpy().reshape(4, -1)
        np.testing.assert_array_equal(fetched[name].numpy(), expected)
    assert fetch_to_cpu({}) == {}
