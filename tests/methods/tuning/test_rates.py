"""Rate policies on losses that can be solved by hand, and ELRA where it degenerates."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from internals import STEP_BOUNDED, STEP_LONG, STEP_NOT_FINITE, ZERO_GRADIENT
from torch import Tensor

from fair_tta import ELRA, FixedRate

CONTEXT = torch.tensor(
    [[[3.0, 0.0], [0.0, 4.0]], [[1.0, 2.0], [2.0, 4.0]]]
)  # norms 5, 5


def linear(slope: Tensor) -> Any:
    """The gradient of ``sum(slope * context)``."""
    return lambda points: slope.expand_as(points)


def notes(stepper: Any) -> list[tuple[str, ...]]:
    """What is reported of each image."""
    reported = {text: flag.tolist() for text, flag in stepper.flags.items()}
    return [
        tuple(text for text, flag in reported.items() if flag[i])
        for i in range(len(CONTEXT))
    ]


def test_elra_on_a_linear_loss() -> None:
    """A linear target loss with gradient g changes by eta |g|^2, so eta = beta / |g|^2."""
    g = torch.tensor(
        [[[0.03, 0.04], [0.0, 0.0]], [[0.0, 0.0], [0.6, 0.8]]]
    )  # norms 0.05 and 1
    stepper = ELRA(beta=0.01).start(CONTEXT, g, g, linear(g))
    assert stepper.rate.tolist() == pytest.approx([0.01 / 0.05**2, 0.01])
    assert notes(stepper) == [(), ()]
    moved = stepper.step(g) - CONTEXT
    torch.testing.assert_close(moved, -stepper.rate.float()[:, None, None] * g)
    changes = (g * moved).flatten(1).sum(1)
    assert changes.tolist() == pytest.approx([-0.01, -0.01], rel=1e-4)


def test_elra_on_a_curved_loss_equals_the_difference() -> None:
    """Radau's rule is exact for polynomials up to degree five."""

    def loss(context: Tensor) -> Tensor:
        return (context.flatten(-2) ** 5).sum(-1) / 100

    def gradient(points: Tensor) -> Tensor:
        return 5 * points**4 / 100

    context = CONTEXT.double()
    g = torch.randn(2, 2, 2, generator=torch.Generator().manual_seed(0)).double()
    sigma, beta = 0.3, 0.01
    eta0 = sigma * 5 / g.flatten(1).norm(dim=1)
    change = (loss(context - eta0[:, None, None] * g) - loss(context)).abs()
    rate = ELRA(beta, sigma).start(context, g, gradient(context), gradient).rate
    torch.testing.assert_close(rate, eta0 * beta / change, rtol=1e-9, atol=0)


def test_the_scale_of_the_objective_does_not_matter() -> None:
    g = torch.randn(2, 2, 2)
    unscaled = ELRA().start(CONTEXT, g, g, linear(g)).step(g)
    scaled = ELRA().start(CONTEXT, 1e6 * g, g, linear(g)).step(1e6 * g)
    torch.testing.assert_close(unscaled, scaled)


BOUNDED_AT_2 = STEP_BOUNDED.format(radius=2)
DEGENERATE = [  # the gradient's numbers, those of the target's, and the warning without a bound
    (0.0, 1.0, ZERO_GRADIENT),
    (1.0, 0.0, STEP_NOT_FINITE),
    (1.0, 1e-12, STEP_LONG),
    (1e-38, 1e-38, STEP_LONG),
    (math.nan, 1.0, STEP_NOT_FINITE),
    (math.inf, 1.0, STEP_NOT_FINITE),
    (1.0, math.nan, STEP_NOT_FINITE),
    (1.0, math.inf, STEP_NOT_FINITE),
]


def beside_an_ordinary_image(gradient: float, target: float) -> tuple[Tensor, Tensor]:
    """Gradients of two images, and of their targets; the second image must not notice."""
    ordinary = torch.full((2, 2), 0.1)
    g = torch.stack([torch.full((2, 2), gradient), ordinary])
    return g, torch.stack([torch.full((2, 2), target), ordinary])


@pytest.mark.parametrize("bound", [2.0, math.inf])
@pytest.mark.parametrize(("gradient", "target", "note"), DEGENERATE)
def test_degenerate_steps(
    gradient: float, target: float, note: str, bound: float
) -> None:
    """No finite step, no step; a long one is reported, and shortened if there is a bound."""
    g, slope = beside_an_ordinary_image(gradient, target)
    policy = ELRA(max_relative_step=bound)
    stepper = policy.start(CONTEXT, g, slope, linear(slope))
    # A step without bound is as long as beta / |g|; 5 is the norm of the context.
    expected = 0.0
    has_target = math.isfinite(gradient) and math.isfinite(target) and gradient > 0
    if bound == 2 and has_target:
        note = BOUNDED_AT_2
        expected = 2 * 5
    elif note == STEP_LONG:
        expected = 0.01 / (2 * target)
    for _ in range(3):
        before = stepper.context  # type: ignore[attr-defined]
        after = stepper.step(g)
        assert notes(stepper) == [(note,), ()]
        assert after.isfinite().all()
        lengths = (after - before).double().flatten(1).norm(dim=1).tolist()
        assert lengths == pytest.approx([expected, 0.01 / 0.2], rel=1e-4)
        assert (float(stepper.rate[0]) > 0) == (expected > 0)


def test_a_step_that_the_context_cannot_hold_is_not_finite() -> None:
    """The length is a number of 64 bits, the context one of 32."""
    g, slope = beside_an_ordinary_image(1.0, 1e-38)
    stepper = ELRA(beta=1e6).start(CONTEXT, g, slope, linear(slope))
    assert torch.equal(stepper.step(g)[0], CONTEXT[0])
    assert notes(stepper) == [(STEP_NOT_FINITE,), (STEP_LONG,)]


@given(
    relative=st.floats(1e-3, 1e6),
    bound=st.sampled_from([0.5, 2.0, 5.0, math.inf]),
    growth=st.floats(1e-3, 1e6),
)
def test_two_steps_of_any_length(relative: float, bound: float, growth: float) -> None:
    """Each is as long as the rule says, or as the bound; long ones are reported."""
    lengths = relative, min(relative, bound) * growth
    assume(all(abs(x / limit - 1) > 1e-3 for x in lengths for limit in (2.0, bound)))
    g = torch.full((2, 2, 2), 0.1, dtype=torch.float64)  # a slope of 0.2
    context = CONTEXT.double()  # of norm 5
    stepper = ELRA(0.2 * 5 * relative, 0.01, bound).start(context, g, g, linear(g))
    reported = set()
    for slope, unbounded in (
        (g, relative),
        (growth * g, min(relative, bound) * growth),
    ):
        before = stepper.context  # type: ignore[attr-defined]
        length = (stepper.step(slope) - before).flatten(1).norm(dim=1) / 5
        assert length.tolist() == pytest.approx([min(unbounded, bound)] * 2, rel=1e-6)
        reported |= {STEP_BOUNDED.format(radius=bound)} if unbounded > bound else set()
        reported |= {STEP_LONG} if min(unbounded, bound) > 2 else set()
        assert [set(sentences) for sentences in notes(stepper)] == [reported] * 2


@pytest.mark.parametrize("slope", [math.nan, math.inf, 3e38])
@pytest.mark.parametrize("bound", [2.0, math.inf])
def test_a_later_step_that_is_not_finite_leaves_the_start(
    slope: float, bound: float
) -> None:
    g = torch.full((2, 2, 2), 1e-3)
    stepper = ELRA(max_relative_step=bound).start(CONTEXT, g, g, linear(g))
    after_one_step = stepper.step(g)
    assert not torch.equal(after_one_step[0], CONTEXT[0])
    steep = g.clone()
    steep[0] = slope
    is_bounded = bound == 2 and math.isfinite(slope)
    for number in (2, 3):
        moved = stepper.step(steep)
        reported, ordinary = notes(stepper)
        assert ordinary == ()
        assert float(stepper.rate[1]) > 0
        torch.testing.assert_close(
            moved[1] - CONTEXT[1], number * (after_one_step[1] - CONTEXT[1])
        )
        if is_bounded:
            assert reported == (BOUNDED_AT_2,)
        else:
            assert reported == (STEP_NOT_FINITE,)
            assert torch.equal(moved[0], CONTEXT[0])
            assert float(stepper.rate[0]) == 0


def test_a_context_of_zeros_stays() -> None:
    g = torch.ones(2, 2, 2)
    stepper = ELRA().start(torch.zeros(2, 2, 2), g, g, linear(g))
    assert torch.equal(stepper.step(g), torch.zeros(2, 2, 2))


def test_a_later_step_that_is_bounded_is_noted_once() -> None:
    g = torch.full((2, 2, 2), 0.1)
    steep = torch.stack([1e6 * g[0], g[1]])  # for the first image alone
    stepper = ELRA(max_relative_step=0.5).start(CONTEXT, g, g, linear(g))
    stepper.step(g)
    assert notes(stepper) == [(), ()]
    for _ in range(2):
        stepper.step(steep)
        assert notes(stepper) == [(STEP_BOUNDED.format(radius=0.5),), ()]


OPTIMIZERS = [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fixed_rate_is_the_optimizer_on_each_image(optimizer: Any) -> None:
    gradients = [
        torch.randn(2, 2, 2, generator=torch.Generator().manual_seed(i))
        for i in range(3)
    ]
    stepper = FixedRate(0.1, optimizer).start(
        CONTEXT, gradients[0], gradients[0], linear(gradients[0])
    )
    for g in gradients:
        together = stepper.step(g.clone())
    for image in range(2):
        parameter = CONTEXT[image].clone().requires_grad_()
        single = optimizer([parameter], lr=0.1)
        for g in gradients:
            parameter.grad = g[image].clone()
            single.step()
        torch.testing.assert_close(together[image], parameter.detach())
    assert stepper.rate.tolist() == pytest.approx([0.1, 0.1])
    assert torch.equal(
        CONTEXT[0], torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    )  # not written to


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_largest_rate_overflows_no_optimizer(optimizer: Any) -> None:
    stepper = FixedRate(1e30, optimizer).start(
        CONTEXT, CONTEXT, CONTEXT, linear(CONTEXT)
    )
    for _ in range(3):
        assert stepper.step(CONTEXT).shape == CONTEXT.shape
