"""ViewControl against its formula, and what it must not do."""

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

from fair_tta import AssociationCorrection, FairTTAError, ViewControl, ZeroShot

VIEWS = 9


def by_formula(case: Drawn, ridge: float, a: float) -> npt.NDArray[np.float64]:
    rows = []
    target, tau = case.target.numpy(), case.scale
    classes = len(target)
    for views in case.features.numpy():
        n = len(views)
        u = np.array([[tau * float(v @ t) for t in target] for v in views])
        u -= u.mean(1, keepdims=True)
        mean_u = u.mean(0)
        sigma2 = ((u - mean_u) ** 2).mean() * classes / (classes - 1)
        logits = (1 - a) * u[0] + a * mean_u
        for z in (z.numpy() for z in case.sensitive.values()):
            x = np.array([softmax(tau * z @ v) for v in views])
            mean_x = x.mean(0)
            c_xx, c_xu = np.zeros((len(z), len(z))), np.zeros((len(z), classes))
            for x_j, u_j in zip(x, u, strict=True):
                c_xx += np.outer(x_j - mean_x, x_j - mean_x) / n
                c_xu += np.outer(x_j - mean_x, u_j - mean_u) / n
            zc, tc = z - z.mean(0), target - target.mean(0)
            d = x[0] @ zc
            g = min(1.0, max(0.0, float(views[0] @ d) / float(d @ d)))
            r = ridge * sigma2
            b = np.linalg.inv(c_xx + r * np.eye(len(z))) @ (c_xu + r * g * tau * zc @ tc.T)
            logits = logits - ((1 - a) * x[0] + a * mean_x - 1 / len(z)) @ b
        rows.append(softmax(logits))
    return np.array(rows)


def answer(case: Drawn, **settings: float) -> Tensor:
    return ViewControl(**settings).adapt(case.task, case.features).probabilities


@given(drawn(VIEWS))
def test_is_its_formula(case: Drawn) -> None:
    np.testing.assert_allclose(answer(case), by_formula(case, 1 / 7.2, 0.25), atol=1e-6)
    other = answer(case, ridge=2.0, mean_share=0.6)
    np.testing.assert_allclose(other, by_formula(case, 2.0, 0.6), atol=1e-6)


@given(drawn(VIEWS))
def test_float32_is_near(case: Drawn) -> None:
    sensitive = {a: z.float() for a, z in case.sensitive.items()}
    small = replace(
        case, target=case.target.float(), sensitive=sensitive, features=case.features.float()
    )
    assert answer(small).dtype == torch.float32
    torch.testing.assert_close(answer(small).double(), answer(case), rtol=0, atol=1e-3)


@given(unrelated(VIEWS))
def test_an_unrelated_attribute_changes_nothing(case: Drawn) -> None:
    """Nothing but the mean of the views, which has a share of its own."""
    zero_shot = ZeroShot().adapt(case.task, case.features).probabilities
    torch.testing.assert_close(answer(case, mean_share=0.0), zero_shot, rtol=0, atol=1e-6)
    u = case.scale * case.features @ case.target.mT
    mixed = (0.75 * u[:, 0] + 0.25 * u.mean(1)).softmax(-1)
    torch.testing.assert_close(answer(case), mixed, rtol=0, atol=1e-6)


@given(drawn(1))
def test_one_view_or_equal_views_leave_the_prompts_association(case: Drawn) -> None:
    expected = AssociationCorrection(1.0).adapt(case.task, case.features).probabilities
    torch.testing.assert_close(answer(case), expected, rtol=0, atol=1e-9)
    same = replace(case, features=case.features.expand(-1, 5, -1))
    torch.testing.assert_close(answer(same), expected, rtol=0, atol=1e-9)
    noise = torch.randn(same.features.shape, generator=torch.Generator().manual_seed(0))
    near = replace(same, features=same.features + 1e-8 * noise.double())  # as float32 rounds
    torch.testing.assert_close(answer(near), expected, rtol=0, atol=1e-3)


@given(drawn(VIEWS))
def test_names_may_come_in_any_order(case: Drawn) -> None:
    sensitive = {a: z.flip(0) for a, z in reversed(case.sensitive.items())}
    other = replace(case, target=case.target.flip(0), sensitive=sensitive)
    torch.testing.assert_close(answer(other).flip(-1), answer(case), rtol=0, atol=1e-6)


def test_counts_its_views() -> None:
    case = Drawn(torch.eye(3)[:2], {"s": torch.eye(3)[:2]}, torch.ones(2, 4, 3) / 3**0.5)
    assert ViewControl().adapt(case.task, case.features).views_kept == 4


@pytest.mark.parametrize("ridge", [0, -1, math.inf, math.nan])
def test_ridge_is_checked(ridge: float) -> None:
    with pytest.raises(FairTTAError, match="`ridge` should be a positive number"):
        ViewControl(ridge=ridge)


@pytest.mark.parametrize("mean_share", [-0.1, 1.1, math.nan])
def test_mean_share_is_checked(mean_share: float) -> None:
    with pytest.raises(FairTTAError, match=r"`mean_share` should lie in \[0, 1\]"):
        ViewControl(mean_share=mean_share)
