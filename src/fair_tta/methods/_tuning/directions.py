"""One gradient from the gradients of several losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from fair_tta._linalg import shape_of, wide
from fair_tta.errors import FairTTAError

if TYPE_CHECKING:
    from torchjd.aggregation import Aggregator

_ROUNDING = 1e-13  # of eigenvalues of cosines


@runtime_checkable
class Direction(Protocol):
    """Says how the gradients of the terms (target first) are weighted."""

    def weights(self, gramian: Tensor) -> Tensor:
        """Weights of the terms from the inner products of their gradients.

        A direction that has a method `aggregate`, as `Aggregated` has it, is asked that instead,
        and gets the gradients themselves.

        Args:
            gramian: ``[..., terms, terms]`` in float64 on the CPU, of each image.

        Returns:
            ``[..., terms]``
        """

    def wants(self, terms: int) -> list[bool]:
        """Which terms count at all; the others' gradients are not computed."""


@dataclass(frozen=True)
class WeightedSum:
    """``1/(1+lam)`` for the target, ``lam/(1+lam)`` for each other term; a single term has 1.

    Args:
        lam: from 0 (target alone) to infinity (the others alone).
    """

    lam: float

    def weights(self, gramian: Tensor) -> Tensor:
        preference = gramian.new_tensor(_preference(self.lam, gramian.shape[-1]))
        return (preference / preference[:2].sum()).expand(gramian.shape[:-1])

    def wants(self, terms: int) -> list[bool]:
        return [weight > 0 for weight in _preference(self.lam, terms)]


@dataclass(frozen=True)
class UPGrad:
    """A direction that raises no loss: UPGrad with preference 1 for the target, `lam` for the rest.

    Each gradient is projected onto the cone of directions that conflict with none: ``g_k`` becomes
    the shortest ``g_k + sum_j x_j g_j`` with ``x >= 0``. The projections are added with the
    preference as weights. Two terms with the Gramian ``[[a, c], [c, b]]`` and the preference p have
    ``w1 = p1 + max(0, -p2 c / a)`` and ``w2 = p2 + max(0, -p1 c / b)``. Of more terms each but the
    first has the preference `lam`; x is then found by non-negative least squares.

    Quinton and Rey, *Jacobian Descent for Multi-Objective Optimization*, 2024.

    Differences from the reference implementation, TorchJD: it takes small gradients (squared norms
    that sum to less than 1e-4) for zero, and blurs a gradient that is a hundred times smaller than
    the other; both then conflict unnoticed. Here scales do not matter.

    Args:
        lam: from 0 to infinity, where the target has the preference 0 and the rest 1.
    """

    lam: float

    def weights(self, gramian: Tensor) -> Tensor:
        lengths = gramian.diagonal(dim1=-2, dim2=-1).sqrt()
        usable = lengths.isfinite() & (lengths > 0)  # a gradient of zero is in nobody's way
        lengths = lengths.where(usable, 1.0)
        cosines = gramian / lengths.unsqueeze(-1) / lengths.unsqueeze(-2)
        cosines = cosines.where(usable.unsqueeze(-1) & usable.unsqueeze(-2), 0.0).clamp(-1, 1)
        preference = gramian.new_tensor(_preference(self.lam, gramian.shape[-1]))
        # a gradient is `lengths` times as long as its unit gradient, and so is its projection
        added = ((preference * lengths).unsqueeze(-2) @ _added(cosines)).squeeze(-2)
        return preference + added / lengths

    def wants(self, terms: int) -> list[bool]:
        return [True] * terms


def _preference(lam: float, terms: int) -> list[float]:
    """1 for the target, and `lam` for each other term."""
    if terms == 1:
        return [1.0]
    first, rest = (0.0, 1.0) if math.isinf(lam) else (1.0, lam)
    return [first] + [rest] * (terms - 1)


def _added(cosines: Tensor) -> Tensor:
    """How much of each unit gradient is added to project each: ``x_k`` of `UPGrad` in row k.

    ``[..., terms, terms] -> [..., terms, terms]``
    """
    terms = cosines.shape[-1]
    if terms <= 2:
        return (-cosines).clamp(min=0)
    flat = cosines.reshape(-1, terms, terms).numpy()
    sizes, axes = np.linalg.eigh(flat)
    sizes = np.where(sizes > _ROUNDING, sizes, 0)
    units = np.sqrt(sizes)[:, :, None] * axes.swapaxes(1, 2)  # columns with these cosines
    added = np.zeros_like(flat)
    for row, unit in zip(added, units, strict=True):
        for k in range(terms):
            others = np.arange(terms) != k
            row[k, others] = nnls(unit[:, others], -unit[:, k])[0]
    return torch.from_numpy(added).view_as(cosines)


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
        found = []
        for of_image in gradients:
            getattr(self.aggregator, "reset", lambda: None)()
            found.append(_shaped(self.aggregator(of_image), of_image.shape[1:], "`aggregator`"))
        return torch.stack(found)

    def wants(self, terms: int) -> list[bool]:
        return [True] * terms


def combine(direction: Direction | Aggregated, gradients: Tensor) -> Tensor:
    """Weigh the gradients of each image on its own.

    ``[images, terms, vectors, width] -> [images, vectors, width]``
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


def _shaped(value: Any, shape: Sequence[int], who: str) -> Tensor:
    if shape_of(value) != list(shape):
        raise FairTTAError(
            f"{who} should give a tensor of shape {list(shape)} (got {shape_of(value)})."
        )
    checked: Tensor = value
    return checked
