"""Directions: the weighted sum, and UPGrad without its silent fallbacks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchjd.aggregation import UPGradWeighting

from fair_tta.directions import Direction, UPGrad, WeightedSum, combine


def gramian_of(jacobian: Tensor) -> Tensor:
    return jacobian.double() @ jacobian.double().T


def closed_form(gramian: Tensor, preference: tuple[float, float]) -> list[float]:
    """METHODS 5.2: two objectives, exact."""
    a, c, b = float(gramian[0, 0]), float(gramian[0, 1]), float(gramian[1, 1])
    p1, p2 = preference
    if c >= 0:
        return [p1, p2]
    return [p1 + p2 * -c / a, p2 + p1 * -c / b]


vectors = st.lists(st.floats(-1, 1), min_size=6, max_size=6)


@settings(deadline=None)
@given(vectors, vectors, st.floats(-8, 3), st.floats(-8, 3), st.sampled_from([0.0, 1.0, 100.0]))
def test_upgrad_equals_the_closed_form_at_all_scales(
    first: list[float], second: list[float], log_a: float, log_b: float, lam: float
) -> None:
    jacobian = torch.tensor([first, second], dtype=torch.float64)
    if float(jacobian.norm(dim=1).min()) < 1e-3:
        return
    jacobian = jacobian * 10.0 ** torch.tensor([[log_a], [log_b]], dtype=torch.float64)
    gramian = gramian_of(jacobian)
    weights = UPGrad(lam).weights(gramian)
    cosine = float(gramian[0, 1] / (gramian[0, 0] * gramian[1, 1]).sqrt())
    if abs(cosine) < 1 - 1e-6:
        assert weights.tolist() == pytest.approx(closed_form(gramian, (1, lam)), rel=1e-4)
    # the direction conflicts with neither gradient, relative to their lengths
    direction = weights @ jacobian
    lengths = jacobian.norm(dim=1)
    scale = float((weights * lengths).sum())
    for g, length in zip(jacobian, lengths, strict=True):
        assert float(direction @ g) / (float(length) * scale) >= -1e-7


@pytest.mark.parametrize(
    "jacobian",
    [
        1e-3 * torch.tensor([[1.0, 0.0], [-2.0, 0.5]]),  # small: squared norms below 1e-4
        torch.tensor([[1.0, 0.0], [-0.9e-3, 0.5e-3]]),  # unequal: below 1 % of the other
    ],
)
def test_torchjds_defaults_would_conflict_and_ours_do_not(jacobian: Tensor) -> None:
    gramian = gramian_of(jacobian)
    preference = torch.tensor([1.0, 1.0], dtype=torch.float64)
    plain = UPGradWeighting(preference)(gramian) @ jacobian.double()
    ours = UPGrad(1.0).weights(gramian) @ jacobian.double()
    conflicts = [float(plain @ g.double() / g.norm()) for g in jacobian]
    assert min(conflicts) < -1e-6  # the silent fallback
    for g in jacobian:
        assert float(ours @ g.double()) >= -1e-12


def test_upgrad_where_there_is_nothing_to_weigh() -> None:
    assert UPGrad(3.0).weights(torch.zeros(2, 2).double()).tolist() == [1, 3]
    one = gramian_of(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert UPGrad(3.0).weights(one).tolist() == [1, 3]
    opposed = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    direction = UPGrad(1.0).weights(gramian_of(opposed)) @ opposed.double()
    assert float(direction.norm()) < 1e-4
    infinite = gramian_of(torch.tensor([[1.0, 0.0], [-0.5, 1.0]]))
    assert UPGrad(math.inf).weights(infinite).tolist() == pytest.approx([0.5, 1])


@pytest.mark.parametrize(
    ("lam", "weights", "wants"),
    [(0.0, [1, 0], [True, False]), (1.0, [0.5, 0.5], [True, True]),
     (99.0, [0.01, 0.99], [True, True]), (math.inf, [0, 1], [False, True])],
)  # fmt: skip
def test_weighted_sum(lam: float, weights: list[float], wants: list[bool]) -> None:
    direction = WeightedSum(lam)
    assert direction.weights(torch.eye(2).double()).tolist() == pytest.approx(weights)
    assert direction.wants(2) == wants
    assert direction.weights(torch.eye(1).double()).tolist() == [1]
    assert direction.wants(1) == [True]


@pytest.mark.parametrize("direction", [WeightedSum(2.0), UPGrad(2.0)])
def test_images_are_weighed_on_their_own(direction: Direction) -> None:
    gradients = torch.randn(4, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    together = combine(direction, gradients)
    for i in range(4):
        flat = gradients[i].flatten(1).double().numpy()
        weights = direction.weights(torch.tensor(flat @ flat.T)).numpy()
        expected = np.einsum("t,t...->...", weights, gradients[i].double().numpy())
        assert together[i].numpy() == pytest.approx(expected, rel=1e-5, abs=1e-6)
