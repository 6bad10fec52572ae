"""One gradient from the gradients of several losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from fair_tta._linalg import length_and_direction, wide
from fair_tta.errors import FairTTAError, check_number

if TYPE_CHECKING:
    from torchjd.aggregation import Aggregator

_MOST_TERMS = 8  # UPGrad looks at all sets of terms
_DEPENDENT = {torch.float64: 1e-10, torch.float32: 1e-5}
"""Squared sine below which a gradient counts as a combination of others."""


@runtime_checkable
class Direction(Protocol):
    """Says how the gradients of the terms (target first) are weighted."""

    def weights(self, gramian: Tensor) -> Tensor:
        """Weights of the terms from the inner products of their gradients.

        A direction that has a method `aggregate`, as `Aggregated` has it, is asked that instead,
        and gets the gradients where they are.

        Args:
            gramian: ``[..., terms, terms]`` in float64 on the CPU, of each image.

        Returns:
            ``[..., terms]``
        """
        ...

    def wants(self, terms: int) -> list[bool]:
        """Which terms count at all; the others' gradients are not computed."""
        ...


@dataclass(frozen=True)
class WeightedSum:
    """``1/(1+lam)`` for the target, ``lam/(1+lam)`` for the others' mean; a single term has 1.

    Args:
        lam: from 0 (target alone) to infinity (the others alone).
    """

    lam: float

    def __post_init__(self) -> None:
        check_lambda(self.lam)

    def weights(self, gramian: Tensor) -> Tensor:
        weights = gramian.new_tensor(self._weights(gramian.shape[-1]))
        return weights.expand(gramian.shape[:-1])

    def aggregate(self, gradients: Tensor) -> Tensor:
        """``[images, terms, numbers] -> [images, numbers]``."""
        weights = self._weights(gradients.shape[1])
        return sum_of([w * gradients[:, k] for k, w in enumerate(weights) if w > 0])

    def wants(self, terms: int) -> list[bool]:
        return [weight > 0 for weight in self._weights(terms)]

    def _weights(self, terms: int) -> list[float]:
        if terms == 1:
            return [1.0]
        share = 1.0 if math.isinf(self.lam) else self.lam / (1 + self.lam)
        return [1 - share] + [share / (terms - 1)] * (terms - 1)


@dataclass(frozen=True)
class UPGrad:
    """A direction that raises no loss: UPGrad with preference 1 for the target, `lam` for the rest.

    Each gradient is projected onto the cone of directions that conflict with none: ``g_k`` becomes
    the shortest ``g_k + sum_j x_j g_j`` with ``x >= 0``. The projections are added with the
    preference as weights. Two terms with the Gramian ``[[a, c], [c, b]]`` and the preference p have
    ``w1 = p1 + max(0, -p2 c / a)`` and ``w2 = p2 + max(0, -p1 c / b)``. More terms share `lam`, so
    that their mean has the preference that a single one would have; x is then the best of the
    solutions on each set of other terms, which is exact, and quick for a handful.

    Quinton and Rey, *Jacobian Descent for Multi-Objective Optimization*, 2024.

    Differences from the reference implementation, TorchJD: it takes small gradients (squared norms
    that sum to less than 1e-4) for zero, and blurs a gradient that is a hundred times smaller than
    the other; both then conflict unnoticed. Here scales do not matter. It needs a solver of
    quadratic programmes, here there is none, so at most eight terms are taken.

    Args:
        lam: from 0 to infinity, where the target has the preference 0 and the rest 1.
    """

    lam: float

    def __post_init__(self) -> None:
        check_lambda(self.lam)

    def weights(self, gramian: Tensor) -> Tensor:
        lengths = gramian.diagonal(dim1=-2, dim2=-1).sqrt()
        usable = lengths.isfinite() & (lengths > 0)  # a gradient of zero is in nobody's way
        lengths = lengths.where(usable, 1.0)
        cosines = gramian / lengths.unsqueeze(-1) / lengths.unsqueeze(-2)
        cosines = cosines.where(usable.unsqueeze(-1) & usable.unsqueeze(-2), 0.0).clamp(-1, 1)
        return self._amounts(lengths, cosines) / lengths

    def aggregate(self, gradients: Tensor) -> Tensor:
        """``[images, terms, numbers] -> [images, numbers]``, each gradient by its direction."""
        lengths, units = length_and_direction(gradients, dims=2)
        amounts = self._amounts(lengths, units @ units.mT)
        return (amounts.unsqueeze(-2) @ units).squeeze(-2)

    def _amounts(self, lengths: Tensor, cosines: Tensor) -> Tensor:
        """How much of each unit gradient: ``[..., terms], [..., terms, terms] -> [..., terms]``."""
        shares = _projections(cosines.reshape(-1, *cosines.shape[-2:])).view_as(cosines)
        # a gradient is `lengths` times as long as its unit gradient, and so is its projection
        preference = self._preference(lengths.shape[-1])
        rows = (lengths.unsqueeze(-1) * shares).unbind(-2)
        return sum_of([p * row for p, row in zip(preference, rows, strict=True)])

    def wants(self, terms: int) -> list[bool]:
        return [True] * len(self._preference(terms))

    def _preference(self, terms: int) -> list[float]:
        if terms > _MOST_TERMS:
            raise FairTTAError(
                f"UPGrad takes at most {_MOST_TERMS} terms (got {terms}): average some of them in "
                "one term, or use the weighted sum of FairTPT()."
            )
        if terms == 1:
            return [1.0]
        first, rest = (0.0, 1.0) if math.isinf(self.lam) else (1.0, self.lam)
        return [first] + [rest / (terms - 1)] * (terms - 1)


@dataclass(frozen=True)
class Aggregated:
    """The direction of an aggregator of TorchJD, or of any function of a matrix of gradients.

    Args:
        aggregator: maps ``[terms, numbers]`` to ``[numbers]``, such as
            ``torchjd.aggregation.MGDA()``; called for each image. One that remembers what it saw
            forgets it before each call, if it has a method `reset` as TorchJD's have: images
            should not see one another.

    Example:
        >>> from torchjd.aggregation import Mean
        >>> Aggregated(Mean()).aggregate(torch.eye(2)[None]).tolist()
        [[0.5, 0.5]]
    """

    aggregator: Aggregator | Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        if not callable(self.aggregator) or isinstance(self.aggregator, type):
            raise FairTTAError(
                "`aggregator` should be an aggregator of TorchJD such as MGDA(), a function of "
                f"a matrix of gradients, or a Direction (got {self.aggregator!r})."
            )

    def aggregate(self, gradients: Tensor) -> Tensor:
        """``[images, terms, numbers] -> [images, numbers]``."""
        return torch.stack([self._aggregate(one) for one in gradients])

    def _aggregate(self, gradients: Tensor) -> Tensor:
        getattr(self.aggregator, "reset", lambda: None)()
        return _shaped(self.aggregator(gradients), gradients.shape[1:], "`aggregator`")

    def wants(self, terms: int) -> list[bool]:
        return [True] * terms


def combine(direction: Direction | Aggregated, gradients: Tensor) -> Tensor:
    """Weigh the gradients of each image on its own.

    Args:
        direction: the rule.
        gradients: ``[images, terms, vectors, width]``

    Returns:
        ``[images, vectors, width]``
    """
    flat = wide(gradients.flatten(2))
    aggregate = getattr(direction, "aggregate", None)
    if aggregate is not None:
        combined: Tensor = aggregate(flat)
    else:
        weights = direction.weights(flat @ flat.mT)  # type: ignore[union-attr]
        _shaped(weights, gradients.shape[:2], f"{type(direction).__name__}.weights")
        combined = torch.einsum("bt,btn->bn", weights.to(flat), flat)
    return combined.to(gradients).view_as(gradients[:, 0])


def sum_of(parts: list[Tensor]) -> Tensor:
    """The sum of one or more tensors."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _shaped(value: Any, shape: Sequence[int], who: str) -> Tensor:
    got = list(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
    if got != list(shape):
        raise FairTTAError(f"{who} should give a tensor of shape {list(shape)} (got {got}).")
    checked: Tensor = value
    return checked


def _projections(cosines: Tensor) -> Tensor:
    """How much of each unit gradient is added to each, itself included, to project it.

    The shortest ``g_k + sum_j x_j g_j`` with ``x >= 0`` is that with the least length among those
    of linearly independent sets of other gradients whose own least-squares x is not negative.

    Args:
        cosines: ``[images, terms, terms]``

    Returns:
        ``[images, terms, terms]``, row k for the projection of gradient k.
    """
    terms = cosines.shape[-1]
    itself = cosines.new_ones(terms).diag()
    if terms == 2:
        return itself + (-cosines).clamp(min=0)
    members = torch.arange(2**terms - 1, device=cosines.device)  # a bit for each; not all of them
    inside = members.unsqueeze(-1).bitwise_right_shift(torch.arange(terms, device=members.device))
    inside = (inside % 2).to(cosines.dtype)  # [sets, terms]
    x, pivots = _least_squares(cosines.unsqueeze(1), inside)
    length = 1 + (cosines.unsqueeze(1) * x).sum(-2)  # [images, sets, terms]
    usable = (pivots.amin(-1, keepdim=True) > _DEPENDENT[cosines.dtype]) & (x >= 0).all(-2)
    length = length.masked_fill(~usable | (inside > 0), torch.inf)
    best = length.argmin(1)[:, None, None].expand(-1, 1, terms, -1)
    return itself + x.gather(1, best).squeeze(1).mT


def _least_squares(cosines: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The x of each set of gradients for each gradient, by elimination: all sets at once.

    Args:
        cosines: ``[images, 1, terms, terms]``
        inside: ``[sets, terms]``, 1 for the members.

    Returns:
        ``[images, sets, terms, terms]``, a column for each gradient, 0 where there is no member;
        ``[images, sets, terms]`` what is left of each member without those before it, squared.
    """
    terms = inside.shape[-1]
    itself = cosines.new_ones(terms).diag()
    rows = inside.unsqueeze(-1)
    table = torch.cat([rows * inside.unsqueeze(-2) * (cosines - itself) + itself,
                       -rows * cosines.expand(-1, len(inside), -1, -1)], -1)  # fmt: skip
    pivots = []
    for k in range(terms):
        pivot = table[..., k : k + 1, k : k + 1]
        pivots.append(pivot[..., 0])
        row = table[..., k : k + 1, :] / torch.where(pivot == 0, 1.0, pivot)
        unit_column = itself[:, k : k + 1]
        table = table - (table[..., k : k + 1] - unit_column) * row
    return table[..., terms:], torch.cat(pivots, -1)


def check_lambda(lam: float) -> None:
    """Raise unless `lam` lies in [0, inf]."""
    check_number("lam", lam, "be at least 0, or infinity", lambda x: x >= 0)
