"""Learning-rate policies for tuning: how far to step along the gradient.

All policies work on many images at once, each image separately: contexts are
``[images, vectors, width]``, rates ``[images]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fair_tta._linalg import describe_shape, length_and_direction, to_cpu_float64
from fair_tta.errors import FairTTAError, check_count, check_number

ZERO_GRADIENT = "the gradient is zero: nothing was adapted"
STEP_NOT_FINITE = "the step is not finite: nothing was adapted"
STEP_BOUNDED = "the step was bounded at {radius:g} times the norm of the context"
LONG_RELATIVE_STEP = 2.0
"""A step that is longer, relative to the context, raises a warning: it amplifies rounding."""
STEP_LONG = (
    f"a step was longer than {LONG_RELATIVE_STEP:g} times the norm of the context"
)


Gradient = Callable[[Tensor], Tensor]
"""``[points, images, vectors, width]`` contexts -> gradients there, of the same shape."""

# Radau's rule on [0, 1]: points and their weights, besides the point 0.
_RADAU = (
    ((6 - math.sqrt(6)) / 10, (16 + math.sqrt(6)) / 36),
    ((6 + math.sqrt(6)) / 10, (16 - math.sqrt(6)) / 36),
)
_RADAU_WEIGHT_OF_START = 1 / 9

# Optimisers divide the rate by small numbers, and float32 ends at 3e38.
_MAX_RATE = 1e30


class Stepper(Protocol):
    """The state of a policy while it steps on some images."""

    rate: Tensor
    """``[images]``, the learning rates."""

    flags: Mapping[str, Tensor]
    """Warnings, and the images that they concern: ``{sentence: [images] of bool}``."""

    def step(self, gradient: Tensor) -> Tensor:
        """Return the context after one more step, ``[images, vectors, width]``."""
        ...


class RatePolicy(Protocol):
    """A rule for how far to go along a direction."""

    def start(
        self, context: Tensor, gradient: Tensor, target: Tensor, target_at: Gradient
    ) -> Stepper:
        """Return a stepper for the images, given their first gradient.

        Args:
            context: where all steps start.
            gradient: the gradient there.
            target: the gradient of the target's loss there.
            target_at: function that returns the gradient of the target's loss at other contexts.
        """
        ...


# These treat each number on its own, so that one optimiser serves all images.
_OPTIMIZERS = (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD)


@dataclass(frozen=True)
class FixedRate(RatePolicy):
    """The same rate for every image, with an optimiser of `torch.optim`.

    Args:
        lr: the learning rate.
        optimizer: ``torch.optim.AdamW``, ``torch.optim.Adam`` or ``torch.optim.SGD``.
    """

    lr: float = 5e-3
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW

    def __post_init__(self) -> None:
        should = f"be a number from 0 to {_MAX_RATE:g}"
        check_number("lr", self.lr, should, lambda x: 0 <= x <= _MAX_RATE)
        if self.optimizer not in _OPTIMIZERS:
            raise FairTTAError(
                "`optimizer` should be AdamW, Adam or SGD of torch.optim (got "
                f"{self.optimizer!r}); for another one write a RatePolicy.",
                argument="optimizer",
            )

    def start(
        self, context: Tensor, gradient: Tensor, target: Tensor, target_at: Gradient
    ) -> Stepper:
        return _FixedStepper(self, context)


class _FixedStepper:
    """One optimiser of `torch.optim` for all images."""

    def __init__(self, policy: FixedRate, context: Tensor) -> None:
        optimizer_class: Any = policy.optimizer
        self._context = context.clone().requires_grad_()
        self._optimizer = optimizer_class([self._context], lr=policy.lr)
        self.rate = torch.full_like(context[:, 0, 0], policy.lr)
        self.flags: Mapping[str, Tensor] = {}

    def step(self, gradient: Tensor) -> Tensor:
        self._context.grad = gradient.clone()
        self._optimizer.step()
        return self._context.detach().clone()


@dataclass(frozen=True)
class ELRA(RatePolicy):
    """Entropic learning-rate adaptation: step until the target loss has changed by `beta`.

    With t the context and g the first gradient of the whole objective::

        eta0 = sigma |t| / |g|                     a small step
        D    = |l(Y; t - eta0 g) - l(Y; t)|        how much it changes the target loss
        eta  = eta0 beta / D                       the rate, for all steps

    D is computed as the integral of the slope of l(Y) along the trial step, by Radau's rule with
    three points, the start being one: equal to the difference up to terms of sixth order in
    `sigma`, but not lost in rounding where the difference is small, so that answers do not depend
    on the size of the batch.

    The relative step ``eta |g| / |t| = sigma beta / D`` grows without bound as D goes to zero.
    Where it is not finite, as where the target loss does not change at all, nothing is adapted.
    A step longer than twice the norm of the context amplifies the rounding of the model's numbers;
    it is taken all the same. `Prediction.warnings` says both, of the first step or a later one, and
    whether `max_relative_step` was used.

    *Fairness-Aware Test-Time Prompt Tuning*, algorithm 4.

    Args:
        beta: the change of the normalised target entropy that is aimed at.
        sigma: the size of the trial step relative to the context.
        max_relative_step: the largest single step, relative to the initial context; infinity, the
            paper's rule, for no bound. Several steps together may go further:
            `Prediction.relative_step` is the way from the start to the end.
    """

    beta: float = 0.01
    sigma: float = 0.01
    max_relative_step: float = math.inf

    def __post_init__(self) -> None:
        for name in ("beta", "sigma"):
            should = "be a positive number"
            check_number(name, getattr(self, name), should, lambda x: 0 < x < math.inf)
        should = "be a positive number, or infinity"
        check_number(
            "max_relative_step", self.max_relative_step, should, lambda x: x > 0
        )

    def start(
        self, context: Tensor, gradient: Tensor, target: Tensor, target_at: Gradient
    ) -> Stepper:
        size, _ = length_and_direction(context)
        slope, direction = length_and_direction(gradient)

        # The change of the target loss over the trial step, as the integral of its slope.
        step = -(self.sigma * size)[:, None, None] * direction
        points = [to_cpu_float64(context) + part * step for part, _ in _RADAU]
        gradients = to_cpu_float64(target_at(torch.stack(points).to(context)))
        change = _RADAU_WEIGHT_OF_START * _slope_along(to_cpu_float64(target), step)
        for (_, weight), gradient_at_point in zip(_RADAU, gradients, strict=True):
            change = change + weight * _slope_along(gradient_at_point, step)

        # eta |g| / |t|: infinite where the target loss does not change at all.
        unbounded = self.sigma * self.beta / change.abs()
        relative = unbounded.clamp(max=self.max_relative_step)

        # An image without a finite step stays where it is.
        is_flat = slope == 0
        is_finite = slope.isfinite() & change.isfinite() & relative.isfinite()
        is_failed = ~is_finite & ~is_flat
        has_step = is_finite & ~is_flat
        is_bounded = has_step & (unbounded > self.max_relative_step)
        relative = torch.where(has_step, relative, 0.0)
        flags = {
            ZERO_GRADIENT: is_flat,
            STEP_NOT_FINITE: is_failed,
            STEP_BOUNDED.format(radius=self.max_relative_step): is_bounded,
            STEP_LONG: torch.zeros_like(is_flat),
        }
        return _ElraStepper(context, slope, relative, self.max_relative_step, flags)


def _slope_along(gradient: Tensor, step: Tensor) -> Tensor:
    """Return the slope of a loss along a step, ``[images]``, from ``[images, vectors, width]``."""
    return (gradient * step).flatten(1).sum(-1)


# A step that is exactly as long as allowed may come out longer by rounding.
_ROUNDING_MARGIN = 1 + 1e-6


class _ElraStepper:
    """Gradient descent with one rate per image.

    An image whose step is not finite goes back to the start and stays there.
    """

    def __init__(
        self,
        start: Tensor,
        slope: Tensor,
        relative: Tensor,
        max_relative_step: float,
        flags: Mapping[str, Tensor],
    ) -> None:
        """Set the rate of each image.

        Args:
            start: ``[images, vectors, width]``, the context of all images.
            slope: ``[images]``, the length of the first gradient.
            relative: ``[images]``, the length of the first step relative to the norm of the start.
            max_relative_step: the longest step allowed, relative to the same.
            flags: as in `Stepper`, after a first step of this length.
        """
        self.context = start
        self._size, _ = length_and_direction(start)
        self.rate = torch.where(relative > 0, relative * self._size / slope, 0.0)
        self.flags = flags
        self._start = start
        self._slope = slope
        self._relative = relative
        self._bound = max_relative_step

    def step(self, gradient: Tensor) -> Tensor:
        slope, direction = length_and_direction(gradient)
        # Not rate * gradient: where a gradient is tiny, the rate may be too large a number.
        relative = torch.where(
            self._relative > 0, self._relative * (slope / self._slope), 0.0
        )
        is_bounded = relative > self._bound * _ROUNDING_MARGIN
        relative = relative.clamp(max=self._bound)
        length = (relative * self._size)[:, None, None]
        # The direction may be NaN, and 0 * NaN is NaN.
        move = torch.where(length == 0, 0.0, length * direction)
        context = (to_cpu_float64(self.context) - move).to(self.context)

        # A finite step may still be too long for the numbers that a context holds.
        is_failed = ~context.flatten(1).isfinite().all(1).cpu()
        self._relative = self._relative.where(~is_failed, 0.0)
        self.rate = self.rate.where(~is_failed, 0.0)
        goes_back = is_failed.to(context.device)[:, None, None]
        self.context = torch.where(goes_back, self._start, context)
        self._note(STEP_NOT_FINITE, is_failed)
        self._note(STEP_BOUNDED.format(radius=self._bound), is_bounded & ~is_failed)
        self._note(
            STEP_LONG, (relative > LONG_RELATIVE_STEP * _ROUNDING_MARGIN) & ~is_failed
        )
        return self.context

    def _note(self, text: str, images: Tensor) -> None:
        self.flags = {**self.flags, text: self.flags[text] | images}


def check_tuning(rate: RatePolicy, steps: int) -> None:
    """Raise unless these are a policy and a number of steps."""
    check_count("steps", steps, least=0)
    if not hasattr(rate, "start"):
        raise FairTTAError(
            f"`rate` should be a policy such as ELRA() or FixedRate(5e-3) (got {rate!r}).",
            argument="rate",
        )


@dataclass(frozen=True)
class Descent:
    """The result of all steps.

    Attributes:
        context: ``[images, vectors, width]``; the same object as the start if there was no step.
        learning_rate: ``[images]``
        relative_step: ``[images]``, distance from the start to the end, relative to the start's
            norm.
        flags: as in `Stepper`.
    """

    context: Tensor
    learning_rate: Tensor
    relative_step: Tensor
    flags: Mapping[str, Tensor]


def descend(
    policy: RatePolicy,
    steps: int,
    start: Tensor,
    gradients: Callable[[Tensor], tuple[Tensor, Tensor] | None],
    target_at: Gradient,
) -> Descent:
    """Take steps along the gradient.

    Args:
        policy: how far to step.
        steps: how often.
        start: ``[images, vectors, width]``
        gradients: function of a context that returns the gradients of the whole objective and of
            the target's loss; None to stop.
        target_at: as in `RatePolicy.start`.
    """
    context = start
    stepper = None
    size, _ = length_and_direction(start)
    for _ in range(steps):
        of_terms = gradients(context)
        if of_terms is None:
            break
        gradient, target_gradient = of_terms
        if stepper is None:
            stepper = policy.start(start, gradient, target_gradient, target_at)
            _check_stepper(policy, stepper, len(start))
        context = stepper.step(gradient)
        if describe_shape(context) != list(start.shape):
            raise FairTTAError(
                f"`step` of {type(policy).__name__} should return contexts of shape "
                f"{list(start.shape)} (got {describe_shape(context)}).",
                argument="step",
            )
    moved, _ = length_and_direction(to_cpu_float64(context) - to_cpu_float64(start))
    if stepper is None:
        return Descent(context, torch.zeros_like(size), moved / size, {})
    return Descent(context, stepper.rate, moved / size, stepper.flags)


def _check_stepper(policy: RatePolicy, stepper: Any, images: int) -> None:
    has_rate = describe_shape(getattr(stepper, "rate", None)) == [images]
    has_flags = isinstance(getattr(stepper, "flags", None), Mapping)
    if not has_rate or not has_flags or not callable(getattr(stepper, "step", None)):
        raise FairTTAError(
            f"{type(policy).__name__}.start should return an object with `step`, `rate` of shape "
            f"[{images}] and `flags` {{sentence: [{images}]}} (got a {type(stepper).__name__})."
        )
