"""How far to step: learning-rate policies for prompt tuning.

All policies work on many images at once, each on its own: contexts are
``[images, vectors, width]``, rates ``[images]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from fair_tta.errors import FairTTAError

ZERO_GRADIENT = "the gradient is zero: nothing was adapted"
NO_STEP = "the gradient or the change of the target loss is not finite: nothing was adapted"
BOUNDED = "the step was bounded at {radius:g} times the norm of the context"


Gradient = Callable[[Tensor], Tensor]
"""``[points, images, vectors, width]`` contexts -> gradients there, of the same shape."""

_RADAU = (  # places on the way from 0 to 1 and their weights, besides 0 with weight 1/9
    ((6 - math.sqrt(6)) / 10, (16 + math.sqrt(6)) / 36),
    ((6 + math.sqrt(6)) / 10, (16 - math.sqrt(6)) / 36),
)


class Stepper(Protocol):
    """A policy at work on some images."""

    rate: Tensor
    """``[images]``, the learning rates."""

    notes: list[tuple[str, ...]]
    """What the user should know of each image."""

    def step(self, gradient: Tensor) -> Tensor:
        """The context after one more step, ``[images, vectors, width]``."""
        ...


class RatePolicy(Protocol):
    """Says how far to go along a direction."""

    def start(
        self, context: Tensor, gradient: Tensor, target: Tensor, target_at: Gradient
    ) -> Stepper:
        """Look at the first gradient and get ready.

        Args:
            context: where all steps start.
            gradient: the gradient there.
            target: the gradient of the target's loss there.
            target_at: the gradient of the target's loss at other contexts.
        """
        ...


@dataclass(frozen=True)
class FixedRate:
    """The same rate for every image, with an optimiser of `torch.optim`.

    Args:
        lr: the learning rate.
        optimizer: one that steps with a gradient alone, as all of `torch.optim` do but `LBFGS` and
            `SparseAdam`. Each image has an optimiser of its own, so images do not see one another.
    """

    lr: float = 5e-3
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW

    def __post_init__(self) -> None:
        if not (self.lr >= 0 and math.isfinite(self.lr)):
            raise FairTTAError(f"`lr` should be a number from 0 on (got {self.lr!r}).")
        if not (
            isinstance(self.optimizer, type) and issubclass(self.optimizer, torch.optim.Optimizer)
        ):
            raise FairTTAError(
                f"`optimizer` should be a class of torch.optim (got {self.optimizer!r})."
            )
        if issubclass(self.optimizer, torch.optim.LBFGS | torch.optim.SparseAdam):
            raise FairTTAError(
                "`optimizer` should step with a gradient alone, as AdamW and SGD do (got "
                f"{self.optimizer.__name__})."
            )

    def start(
        self, context: Tensor, gradient: Tensor, target: Tensor, target_at: Gradient
    ) -> Stepper:
        """See `RatePolicy.start`."""
        return _FixedStepper(self, context)


class _FixedStepper:
    """An optimiser for each image: some look at all numbers of a parameter, or at all they have."""

    def __init__(self, policy: FixedRate, context: Tensor) -> None:
        make: Any = policy.optimizer
        self._contexts = [one.clone().requires_grad_() for one in context]
        self._optimizers = [make([one], lr=policy.lr) for one in self._contexts]
        self.rate = torch.full_like(context[:, 0, 0], policy.lr)
        self.notes: list[tuple[str, ...]] = [()] * len(context)

    def step(self, gradient: Tensor) -> Tensor:
        for context, optimizer, own in zip(self._contexts, self._optimizers, gradient, strict=True):
            context.grad = own.clone()
            optimizer.step()
        return torch.stack([context.detach() for context in self._contexts])


@dataclass(frozen=True)
class ELRA:
    """Entropic learning-rate adaptation: step until the target loss has changed by `beta`.

    With t the context and g the first gradient of the whole objective::

        eta0 = sigma |t| / |g|                     a small step
        D    = |l(Y; t - eta0 g) - l(Y; t)|        how much it changes the target loss
        eta  = eta0 beta / D                       the rate, for all steps

    D is computed as the integral of the slope of l(Y) along the trial step, by Radau's rule with
    three points, the start being one: equal to the difference up to terms of sixth order in
    `sigma`, but not lost in rounding where the difference is small, so that answers do not depend
    on the size of the batch.

    The relative step ``eta |g| / |t| = sigma beta / D`` grows without bound as D goes to zero;
    it is bounded by `max_relative_step`. In a trial that came with the specification of this
    library (500 photos, a small CLIP; not repeated here) the relative steps of FairTPT had medians
    of 0.25 and 0.63, a 90th percentile of 1.8 and a maximum of 280; with a bound of 0.1 the effect
    was gone, with 1.0 it was there. The default of 2 leaves such ordinary steps as they are.
    `Prediction.warnings` says when the bound was used, at the first step or a later one.

    *Fairness-Aware Test-Time Prompt Tuning*, algorithm 4.

    Args:
        beta: the change of the normalised target entropy that is aimed at.
        sigma: the size of the trial step relative to the context.
        max_relative_step: the largest single step, relative to the initial context; infinity for
            the paper's rule. Several steps together may go further: `Prediction.relative_step`
            is the way from the start to the end.
    """

    beta: float = 0.01
    sigma: float = 0.01
    max_relative_step: float = 2.0

    def __post_init__(self) -> None:
        for name in ("beta", "sigma", "max_relative_step"):
            value = getattr(self, name)
            if not value > 0 or (math.isinf(value) and name != "max_relative_step"):
                raise FairTTAError(f"`{name}` should be a positive number (got {value!r}).")

    def start(
        self, context: Tensor, gradient: Tensor, target: Tensor, target_at: Gradient
    ) -> Stepper:
        """See `RatePolicy.start`."""
        size, slope = _norm(context), _norm(gradient)
        trial_rate = torch.where(slope > 0, self.sigma * size / slope, 0.0)
        step = -trial_rate[:, None, None] * gradient.double()
        points = torch.stack([context.double() + part * step for part, _ in _RADAU])
        slopes = (target_at(points.to(context.dtype)).double() * step).flatten(2).sum(-1)
        weights = slopes.new_tensor([weight for _, weight in _RADAU])
        change = ((target.double() * step).flatten(1).sum(-1) / 9 + weights @ slopes).abs()
        largest = torch.where(slope > 0, self.max_relative_step * size / slope, 0.0)
        wanted = trial_rate * self.beta / change  # inf where the target does not change at all
        rate = torch.minimum(wanted, largest)
        failed = ~(slope.isfinite() & change.isfinite() & rate.isfinite())
        rate = torch.where(failed, 0.0, rate)
        bounded = BOUNDED.format(radius=self.max_relative_step)
        notes: list[tuple[str, ...]] = []
        for is_failed, is_flat, is_bounded in zip(
            failed.tolist(), (slope == 0).tolist(), (wanted > largest).tolist(), strict=True
        ):
            if is_flat:
                notes.append((ZERO_GRADIENT,))
            elif is_failed:
                notes.append((NO_STEP,))
            else:
                notes.append((bounded,) if is_bounded else ())
        return _ElraStepper(context, rate, self.max_relative_step * size, notes, bounded)


class _ElraStepper:
    """Gradient descent with one rate per image and no step longer than `longest`."""

    def __init__(
        self,
        context: Tensor,
        rate: Tensor,
        longest: Tensor,
        notes: list[tuple[str, ...]],
        bounded: str,
    ) -> None:
        self._context = context
        self._longest = longest
        self._bounded = bounded
        self.rate = rate
        self.notes = notes

    def step(self, gradient: Tensor) -> Tensor:
        rate = torch.where(self.rate > 0, self.rate, 0.0)
        length = rate * _norm(gradient)
        too_long = length > self._longest * (1 + 1e-9)  # the first step may be just as long
        shorten = torch.where(length > self._longest, self._longest / length, 1.0)
        for image in too_long.nonzero().flatten().tolist():
            if self._bounded not in self.notes[image]:
                self.notes[image] += (self._bounded,)
        move = (rate * shorten)[:, None, None] * gradient.double()
        move = torch.where((rate > 0)[:, None, None], move, 0.0)  # 0 * inf
        self._context = (self._context.double() - move).to(self._context.dtype)
        return self._context


def _norm(x: Tensor) -> Tensor:
    """Length of each image's tensor, in float64: ``[images, ...] -> [images]``."""
    length: Tensor = x.double().flatten(1).norm(dim=1)
    return length
