"""The statements of the paper's appendix B, with ties."""

from __future__ import annotations

import math
from itertools import chain, combinations

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
    # small whole numbers make ties and zeros likely
    whole = st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(any)
    return whole.map(lambda w: torch.tensor(w, dtype=torch.float64) / sum(w))


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
    lead, values = int(p.argmax()), p.tolist()
    others = [i for i in range(len(p)) if i != lead]
    best = 0.0
    for omega in chain.from_iterable(
        combinations(others, m) for m in range(len(others) + 1)
    ):
        share = 1 / (1 + len(omega))
        best = max(
            best,
            abs(values[lead] - share)
            + sum(abs(values[i] - (share if i in omega else 0)) for i in others),
        )
    assert abs(float(collapse_distance(p)) - best / 2) < 1e-12


@given(vectors)
def test_the_margin_is_attained(p: Tensor) -> None:
    """At the margin the second largest draws level."""
    lead = int(p.argmax())
    if p.shape[0] > 1 and float(flip_margin(p)) > 0:
        q = p.clone()
        second = int(p.topk(2).indices[1])
        q[lead] -= flip_margin(p)
        q[second] += flip_margin(p)
        assert abs(float(distance(p, q) - flip_margin(p))) < 1e-12
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


# --------------------------------------------------------------------------- steps


def softmax_of(t: Tensor, slopes: Tensor, offsets: Tensor) -> Tensor:
    """A vector that depends on parameters: ``[n], [K, n], [K] -> [K]``."""
    return (slopes @ t + offsets).softmax(-1)


def drawn_step(
    seed: int, classes: int, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Parameters, slopes, offsets, and the gradient of some loss."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (count,), (classes, count), (classes,), (count,)
    t, slopes, offsets, g = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    return t, slopes, offsets, g


steps = st.tuples(st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 8))


@given(steps)
def test_a_short_step_goes_as_far_as_the_formula_says(
    case: tuple[int, int, int],
) -> None:
    """The error is of second order: a hundredth of the rate, a ten thousandth of the error."""
    t, slopes, offsets, g = drawn_step(*case)
    p = softmax_of(t, slopes, offsets)
    gradients = torch.func.jacrev(softmax_of)(t, slopes, offsets)
    # |d/dt|^2 of each entry is at most 2 |slopes|^2, so the second order is below this
    curvature = float(len(p) * slopes.square().sum() * g.square().sum())
    for rate in (1e-3, 1e-5):
        moved = softmax_of(t - rate * g, slopes, offsets)
        expected = float(step_distance(gradients, g, rate))
        assert abs(float(distance(p, moved)) - expected) <= curvature * rate**2 + 1e-14


@given(steps, st.floats(0, 10), st.floats(0, 10))
def test_the_formula_of_the_paper_literally(
    case: tuple[int, int, int], target: float, sensitive: float
) -> None:
    """With the gradient of the target's entropy written out, and weights of both losses."""
    t, slopes, offsets, other = drawn_step(*case)
    p = softmax_of(t, slopes, offsets)
    gradients = torch.func.jacrev(softmax_of)(t, slopes, offsets)
    rate, total = 0.01, 0.0
    for i in range(len(p)):
        inner = sensitive * sum(
            float(a * b) for a, b in zip(other, gradients[i], strict=True)
        )
        for j in range(len(p)):
            product = sum(
                float(a * b) for a, b in zip(gradients[j], gradients[i], strict=True)
            )
            inner -= target * (1 + math.log(float(p[j]))) * product
        total += abs(inner)

    def entropy(t: Tensor) -> Tensor:
        q = softmax_of(t, slopes, offsets)
        return -(q * q.log()).sum()

    loss_gradient = target * torch.func.grad(entropy)(t) + sensitive * other
    found = float(step_distance(gradients, loss_gradient, rate))
    assert found == pytest.approx(rate * total / 2, rel=1e-9, abs=1e-12)


@given(steps, st.floats(-5, 5))
def test_a_step_is_linear_in_rate_and_gradient(
    case: tuple[int, int, int], factor: float
) -> None:
    t, slopes, offsets, g = drawn_step(*case)
    gradients = torch.func.jacrev(softmax_of)(t, slopes, offsets)
    plain = float(step_distance(gradients, g, 0.1))
    assert float(step_distance(gradients, factor * g, 0.1)) == pytest.approx(
        abs(factor) * plain
    )
    assert float(step_distance(gradients, g, 0.7)) == pytest.approx(7 * plain)
    assert plain <= float(0.1 * gradients.norm(dim=-1).sum() * g.norm() / 2) + 1e-12
    order = torch.randperm(len(gradients))
    assert float(step_distance(gradients[order], g, 0.1)) == pytest.approx(plain)


def test_steps_across_all_gradients_or_of_none_go_nowhere() -> None:
    gradients = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]])
    assert float(step_distance(gradients, torch.tensor([0.0, 3, 4]), 1.0)) == 0
    assert float(step_distance(0 * gradients, torch.tensor([9.0, 3, 4]), 1.0)) == 0


def test_batches_of_steps() -> None:
    generator = torch.Generator().manual_seed(0)
    gradients, g = (
        torch.rand(3, 4, 5, generator=generator),
        torch.rand(3, 5, generator=generator),
    )
    rates = torch.rand(3, generator=generator)
    found = step_distance(gradients, g, rates)
    assert found.shape == (3,)
    torch.testing.assert_close(
        found[1], step_distance(gradients[1], g[1], float(rates[1]))
    )
