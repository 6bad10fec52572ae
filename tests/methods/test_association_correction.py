"""AssociationCorrection against its formula, and what it must not do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from random_task import Drawn, drawn, softmax, unrelated
from torch import Tensor

from fair_tta import AssociationCorrection, FairTTAError, ZeroShot


def by_formula(case: Drawn, strength: float) -> npt.NDArray[np.float64]:
    rows = []
    for v in case.features[:, 0].numpy():
        moved = v.copy()
        for z in (z.numpy() for z in case.sensitive.values()):
            p = softmax(np.array([case.scale * float(v @ z_s) for z_s in z]))
            d = np.zeros_like(v)
            for p_s, z_s in zip(p, z, strict=True):
                d += p_s * (z_s - z.mean(0))
            g = min(1.0, max(0.0, float(v @ d) / float(d @ d)))
            moved -= strength * g * d
        rows.append(
            softmax(
                np.array([case.scale * float(moved @ t) for t in case.target.numpy()])
            )
        )
    return np.array(rows)


def answer(case: Drawn, strength: float = 0.75) -> Tensor:
    return AssociationCorrection(strength).adapt(case.task, case.features).probabilities


def zero_shot(case: Drawn) -> Tensor:
    return ZeroShot().adapt(case.task, case.features).probabilities


@given(drawn())
def test_is_its_formula(case: Drawn) -> None:
    for strength in (0.75, 1.3):
        np.testing.assert_allclose(
            answer(case, strength), by_formula(case, strength), atol=1e-9
        )


@given(drawn())
def test_float32_is_near(case: Drawn) -> None:
    sensitive = {a: z.float() for a, z in case.sensitive.items()}
    small = replace(
        case,
        target=case.target.float(),
        sensitive=sensitive,
        features=case.features.float(),
    )
    assert answer(small).dtype == torch.float32
    torch.testing.assert_close(answer(small).double(), answer(case), rtol=0, atol=1e-4)


@given(drawn())
def test_strength_0_is_zero_shot(case: Drawn) -> None:
    assert torch.equal(answer(case, 0.0), zero_shot(case))


@given(unrelated())
def test_an_unrelated_attribute_changes_nothing(case: Drawn) -> None:
    torch.testing.assert_close(answer(case), zero_shot(case), rtol=0, atol=1e-9)


@given(drawn())
def test_a_direction_of_no_length_changes_nothing(case: Drawn) -> None:
    same = {a: z[:1].expand(2, -1) for a, z in case.sensitive.items()}
    still = replace(case, sensitive=same)
    assert torch.equal(answer(still), zero_shot(still))


@given(drawn())
def test_names_may_come_in_any_order(case: Drawn) -> None:
    sensitive = {a: z.flip(0) for a, z in reversed(case.sensitive.items())}
    other = replace(case, target=case.target.flip(0), sensitive=sensitive)
    torch.testing.assert_close(answer(other).flip(-1), answer(case), rtol=0, atol=1e-9)


def test_features_in_another_cone_change_nothing() -> None:
    """Shrunk images with the same zero-shot logits: without g three times as much is taken."""
    target = torch.eye(4, dtype=torch.float64)[:2]
    z = torch.tensor([[0.6, 0, 0.8, 0], [0, 0.6, 0.8, 0]], dtype=torch.float64)
    v = torch.tensor([[[0.2, 0.15, 0.3, 0.92]]], dtype=torch.float64)
    case = Drawn(target, {"s": z}, v, scale=100.0)
    shrunk = replace(case, features=0.3 * v, scale=100.0 / 0.3)
    torch.testing.assert_close(zero_shot(shrunk), zero_shot(case))
    torch.testing.assert_close(answer(shrunk), answer(case))
    assert (answer(case) - zero_shot(case)).abs().max() > 0.01


@pytest.mark.parametrize("strength", [-1, math.inf, math.nan])
def test_strength_is_checked(strength: float) -> None:
    with pytest.raises(FairTTAError, match="`strength` should be a number >= 0"):
        AssociationCorrection(strength)
