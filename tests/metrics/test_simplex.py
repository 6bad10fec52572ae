"""The statements of the paper's appendix B, with ties."""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fair_tta.metrics.simplex import (
    collapse_distance,
    distance,
    flip_margin,
    step_distance,
)


def simplex(n: int) -> st.SearchStrategy[Tensor]:
    # Small integers make ties and zeros likely.
    weights = st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(any)
    return weights.map(lambda w: torch.tensor(w, dtype=torch.float64) / sum(w))


pairs = st.integers(2, 5).flatmap(lambda n: st.tuples(simplex(n), simplex(n)))
vectors = st.integers(2, 6).flatmap(simplex)


@given(pairs)
def test_i_no_flip_is_shorter_than_the_margin(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    if int(p.argmax()) != int(q.argmax()):
        assert float(distance(p, q)) >= float(flip_margin(p)) - 1e-12


@given(pairs)
def test_ii_beyond_the_collapse_distance_all_flip(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    if int(p.argmax()) == int(q.argmax()):
        assert float(distance(p, q)) <= float(collapse_distance(p)) + 1e-12


@given(pairs)
def test_iii_the_universal_bound_is_weaker(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    bound = 1 - 1 / len(p)
    assert float(collapse_distance(p)) <= bound + 1e-12
    if int(p.argmax()) == int(q.argmax()):
        assert float(distance(p, q)) <= bound + 1e-12


@given(vectors)
def test_collapse_distance_equals_the_search_over_all_sets(p: Tensor) -> None:
    """The paper's formula, literally: a maximum over all sets of other entries."""
    lead = int(p.argmax())
    values = p.tolist()
    rest = [i for i in range(len(p)) if i != lead]
    largest = 0.0
    for size in range(len(rest) + 1):
        for omega in combinations(rest, size):
            share = 1 / (1 + size)
            changes = [abs(values[lead] - share)]
            changes += [abs(values[i] - share * (i in omega)) for i in rest]
            largest = max(largest, sum(changes))
    assert abs(float(collapse_distance(p)) - largest / 2) < 1e-12


@given(vectors)
def test_the_margin_is_attained(p: Tensor) -> None:
    """At the margin the second largest draws level."""
    lead, second = p.topk(2).indices.tolist()
    margin = flip_margin(p)
    q = p.clone()
    q[lead] -= margin
    q[second] += margin
    assert abs(float(distance(p, q) - margin)) < 1e-12
    assert abs(float(q[lead] - q[second])) < 1e-12


@given(pairs)
def test_distance_is_a_metric_between_0_and_1(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    expected = float((p - q).clamp(min=0).sum())  # the paper's other form
    assert abs(float(distance(p, q)) - expected) < 1e-12
    assert float(distance(p, q)) == float(distance(q, p)) <= 1 + 1e-12
    assert float(distance(p, p)) == 0


def test_the_bound_is_reached_at_a_tie() -> None:
    p, q = torch.tensor([0.375, 0.625]), torch.tensor([0.5, 0.5])
    assert int(p.argmax()) != int(q.argmax())
    assert float(distance(p, q)) == float(flip_margin(p)) == 0.125


def test_batches() -> None:
    p = torch.rand(3, 4, 5).softmax(-1)
    assert collapse_distance(p).shape == flip_margin(p).shape == (3, 4)
    torch.testing.assert_close(collapse_distance(p)[1, 2], collapse_distance(p[1, 2]))


# Steps


def softmax_of(t: Tensor, slopes: Tensor, offsets: Tensor) -> Tensor:
    """Return a vector that depends on parameters: ``[n], [K, n], [K] -> [K]``."""
    return (slopes @ t + offsets).softmax(-1)


class Step(NamedTuple):
    """Parameters `t`, what the vector makes of them, and the gradient of some loss."""

    t: Tensor
    slopes: Tensor
    offsets: Tensor
    loss_gradient: Tensor

    @property
    def p(self) -> Tensor:
        return self.moved_by(torch.zeros_like(self.t))

    @property
    def gradients(self) -> Tensor:
        jacobian = torch.func.jacrev(softmax_of)
        return torch.as_tensor(jacobian(self.t, self.slopes, self.offsets))

    def moved_by(self, change: Tensor) -> Tensor:
        return softmax_of(self.t + change, self.slopes, self.offsets)


def draw_step(seed: int, classes: int, parameters: int) -> Step:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    slopes = normal(classes, parameters)
    return Step(normal(parameters), slopes, normal(classes), normal(parameters))


steps = st.builds(
    draw_step, st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 8)
)


@given(steps)
def test_a_short_step_goes_as_far_as_the_formula_says(step: Step) -> None:
    """The error is of second order: a hundredth of the rate, a ten thousandth of the error."""
    g = step.loss_gradient
    # |d/dt|^2 of each entry is at most 2 |slopes|^2, so the second order is below this.
    curvature = len(step.p) * step.slopes.square().sum() * g.square().sum()
    for rate in (1e-3, 1e-5):
        moved = step.moved_by(-rate * g)
        expected = float(step_distance(step.gradients, g, rate))
        error = abs(float(distance(step.p, moved)) - expected)
        assert error <= float(curvature) * rate**2 + 1e-14


@given(steps, st.floats(0, 10), st.floats(0, 10))
def test_the_formula_of_the_paper_literally(
    step: Step, target: float, sensitive: float
) -> None:
    """With the gradient of the target's entropy written out, and weights of both losses."""
    gradients = step.gradients
    total = 0.0
    for i in range(len(step.p)):
        slope = sensitive * float(step.loss_gradient @ gradients[i])
        for j in range(len(step.p)):
            product = float(gradients[j] @ gradients[i])
            slope -= target * (1 + math.log(float(step.p[j]))) * product
        total += abs(slope)

    def entropy(t: Tensor) -> Tensor:
        q = softmax_of(t, step.slopes, step.offsets)
        return -(q * q.log()).sum()

    entropy_gradient = torch.func.grad(entropy)(step.t)
    loss_gradient = target * entropy_gradient + sensitive * step.loss_gradient
    length = float(step_distance(gradients, loss_gradient, 0.01))
    assert length == pytest.approx(0.01 * total / 2, rel=1e-9, abs=1e-12)


@given(steps, st.floats(-5, 5))
def test_a_step_is_linear_in_rate_and_gradient(step: Step, factor: float) -> None:
    gradients = step.gradients
    g = step.loss_gradient
    length = float(step_distance(gradients, g, 0.1))
    scaled = float(step_distance(gradients, factor * g, 0.1))
    assert scaled == pytest.approx(abs(factor) * length)
    assert float(step_distance(gradients, g, 0.7)) == pytest.approx(7 * length)
    bound = 0.1 * gradients.norm(dim=-1).sum() * g.norm() / 2
    assert length <= float(bound) + 1e-12


def test_steps_across_all_gradients_or_of_none_go_nowhere() -> None:
    gradients = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]])
    assert float(step_distance(gradients, torch.tensor([0.0, 3, 4]), 1.0)) == 0
    assert float(step_distance(0 * gradients, torch.tensor([9.0, 3, 4]), 1.0)) == 0


def test_batches_of_steps() -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = torch.rand(3, 4, 5, generator=generator)
    g = torch.rand(3, 5, generator=generator)
    rates = torch.rand(3, generator=generator)
    lengths = step_distance(gradients, g, rates)
    assert lengths.shape == (3,)
    expected = step_distance(gradients[1], g[1], float(rates[1]))
    torch.testing.assert_close(lengths[1], expected)
