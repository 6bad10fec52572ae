"""TorchJD's UPGrad with a projector that needs no quadprog.

Importing TorchJD takes a quarter of a second: `FairTPTMO` imports this module when it tunes.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor
from torchjd.aggregation import UPGradWeighting
from torchjd.linalg import DualConeProjector

from fair_tta.methods.tuning._directions import preference

# Eigenvalues of a matrix of cosines are zero up to rounding errors of about 1e-15.
_ZERO_EIGENVALUE = 1e-13


def upgrad_weights(gramian: Tensor, lam: float) -> Tensor:
    """Weigh the terms of one image so that no loss rises: ``[terms, terms] -> [terms]``.

    The target has the preference 1, each other term `lam`. Each gradient is projected onto the cone
    of directions that conflict with none: ``g_k`` becomes the shortest ``g_k + sum_j x_j g_j`` with
    ``x >= 0``. The projections are added with the preference as weights. Two terms with the Gramian
    ``[[a, c], [c, b]]`` and the preference p have ``w1 = p1 + max(0, -p2 c / a)`` and
    ``w2 = p2 + max(0, -p1 c / b)``.

    Quinton and Rey, *Jacobian Descent for Multi-Objective Optimization*, 2024.

    Differences from the reference implementation, TorchJD, whose weighting this is: its own
    projector takes small gradients (squared norms that sum to less than 1e-4) for zero, and blurs a
    gradient that is a hundred times smaller than the other; both then conflict unnoticed. Here
    scales do not matter.

    Args:
        gramian: inner products of the gradients, the target's first, in float64 on the CPU.
        lam: from 0 to infinity, where the target has the preference 0 and the others 1.
    """
    preferences = gramian.new_tensor(preference(lam, len(gramian)))
    weights: Tensor = UPGradWeighting(preferences, ScaleFreeProjector())(gramian)
    return weights


class ScaleFreeProjector(DualConeProjector):
    """A projector onto the dual cone of gradients, exact for gradients of any lengths.

    TorchJD's default solver is quadprog, which is GPL. Two terms have a closed form; more are a
    problem of non-negative least squares.
    """

    def __call__(self, U: Tensor, G: Tensor) -> Tensor:
        """Return the weights of projections of combinations of gradients.

        Args:
            U: ``[combinations, terms]``, weights of the gradients, none of them negative.
            G: ``[terms, terms]``, inner products of the gradients, in float64 on the CPU.

        Returns:
            ``[combinations, terms]``
        """
        lengths = G.diagonal().sqrt()
        is_usable = lengths.isfinite() & (lengths > 0)
        lengths = lengths.where(is_usable, 1.0)
        cosines = (G / lengths / lengths.unsqueeze(-1)).clamp(-1, 1)
        # A gradient of zero, or of no number, counts as orthogonal to all: it conflicts with none.
        identity = torch.ones_like(lengths).diag()
        cosines = cosines.where(torch.outer(is_usable, is_usable), identity)
        # Scales do not matter, because the problem is solved for gradients of length one.
        solve = _added_to_two if len(G) <= 2 else _added_to_many
        added: Tensor = solve(U * lengths, cosines)
        return U + added / lengths


def _added_to_two(combinations: Tensor, cosines: Tensor) -> Tensor:
    """Return the least weights that end the conflicts of combinations of two unit gradients.

    A combination conflicts with at most one of them. Adding as much of that one as the conflict is
    large leaves the sum orthogonal to it.
    """
    return (-combinations @ cosines).clamp(min=0)


def _added_to_many(combinations: Tensor, cosines: Tensor) -> Tensor:
    """Return the weights ``x >= 0`` of unit gradients that shorten each combination most."""
    # The solver takes vectors: the columns of a square root of the matrix have these cosines.
    eigenvalues, eigenvectors = np.linalg.eigh(cosines.numpy())
    sizes = np.sqrt(np.where(eigenvalues > _ZERO_EIGENVALUE, eigenvalues, 0))
    unit_gradients = sizes[:, None] * eigenvectors.T
    added = np.zeros(combinations.shape)
    for index, combination in enumerate(combinations.numpy()):
        # Its tolerance is absolute, so each combination is brought to the size 1.
        size = np.abs(combination).max()
        if size > 0:
            vector = unit_gradients @ (combination / size)
            added[index] = size * nnls(unit_gradients, -vector)[0]
    return torch.from_numpy(added)
