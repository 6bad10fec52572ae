"""One gradient from the gradients of several losses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fair_tta.errors import FairTTAError


class Direction(Protocol):
    """Says how the gradients of the terms (target first) are weighted."""

    def weights(self, gramian: Tensor) -> Tensor:
        """Weights of the terms from the inner products of their gradients.

        Args:
            gramian: ``[terms, terms]`` in float64, of one image.

        Returns:
            ``[terms]``
        """
        ...

    def wants(self, terms: int) -> list[bool]:
        """Which terms have a say at all; the others' gradients are not computed."""
        ...


@dataclass(frozen=True)
class WeightedSum:
    """``1/(1+lam)`` for the target, ``lam/(1+lam)`` for the sensitive term; a single term has 1.

    Args:
        lam: from 0 (target alone) to infinity (sensitive term alone).
    """

    lam: float

    def __post_init__(self) -> None:
        check_lambda(self.lam)

    def weights(self, gramian: Tensor) -> Tensor:
        """See `Direction.weights`."""
        return gramian.new_tensor(self._weights(len(gramian)))

    def wants(self, terms: int) -> list[bool]:
        """See `Direction.wants`."""
        return [weight > 0 for weight in self._weights(terms)]

    def _weights(self, terms: int) -> list[float]:
        if terms == 1:
            return [1.0]
        share = 1.0 if math.isinf(self.lam) else self.lam / (1 + self.lam)
        return [1 - share, share]


@dataclass(frozen=True)
class UPGrad:
    """A direction that lowers both losses: TorchJD's UPGrad with preference ``(1, lam)``.

    Quinton and Rey, *Jacobian Descent for Multi-Objective Optimization*, 2024.

    Differences from the reference implementation: TorchJD takes small gradients (squared norms that
    sum to less than 1e-4) for zero, and blurs a gradient that is a hundred times smaller than
    the other; both then conflict unnoticed. So the gradients are scaled to length one and the
    preference with their lengths, which is the same problem, well conditioned.

    Args:
        lam: from 0 to infinity, where the preference is ``(0, 1)``.
    """

    lam: float

    def __post_init__(self) -> None:
        check_lambda(self.lam)

    def weights(self, gramian: Tensor) -> Tensor:
        """See `Direction.weights`."""
        from torchjd.aggregation import UPGradWeighting
        from torchjd.linalg import QuadprogProjector

        preference = gramian.new_tensor([0.0, 1.0] if math.isinf(self.lam) else [1.0, self.lam])
        lengths = gramian.diagonal().sqrt()
        if not (lengths.isfinite().all() and (lengths > 0).all()):
            return preference  # a gradient of zero is in nobody's way
        # v' G v with v >= p e_k is u' C u with u = lengths v, u >= (lengths p) e_k, C of cosines
        largest = lengths.max()
        cosines = gramian / lengths / lengths[:, None]
        projector = QuadprogProjector(norm_eps=1e-12, reg_eps=1e-10)
        weighting = UPGradWeighting(preference * lengths / largest, projector)
        return weighting(cosines) * largest / lengths

    def wants(self, terms: int) -> list[bool]:
        """See `Direction.wants`."""
        return [True] * terms


def combine(direction: Direction, gradients: Tensor) -> Tensor:
    """Weigh the gradients of each image on its own.

    Args:
        direction: the rule.
        gradients: ``[images, terms, vectors, width]``

    Returns:
        ``[images, vectors, width]``
    """
    flat = gradients.flatten(2).double()
    gramians = flat @ flat.transpose(1, 2)
    weights = torch.stack([direction.weights(gramian.cpu()) for gramian in gramians])
    weights = weights.to(gradients.device, torch.float64)
    return torch.einsum("bt,bt...->b...", weights, gradients.double()).to(gradients.dtype)


def check_lambda(lam: float) -> None:
    """Raise unless `lam` lies in [0, inf]."""
    if not lam >= 0:
        raise FairTTAError(f"`lam` should be at least 0, or infinity (got {lam!r}).")
