"""Distances between probability vectors, and their bounds for the leading entry.

The three statements, and how far a short step goes, are those of the paper's appendix B. The
leading entry is the first of the largest ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "collapse_distance",
    "distance",
    "flip_margin",
    "step_distance",
]


def distance(p: Tensor, q: Tensor) -> Tensor:
    """Half the l1 distance of two probability vectors, ``[..., K] -> [...]``, between 0 and 1."""
    return (p - q).abs().sum(-1) / 2


def flip_margin(p: Tensor) -> Tensor:
    """Half the gap between the two largest entries, ``[..., K] -> [...]``.

    Statement (i): if `p` and `q` have different leading entries then
    ``distance(p, q) >= flip_margin(p)``. (The paper writes ``>``; with ties only ``>=`` is true.)
    So an answer that moved by less than its margin is certified not to have flipped.
    """
    top = p.topk(2, dim=-1).values
    return (top[..., 0] - top[..., 1]) / 2


def collapse_distance(p: Tensor) -> Tensor:
    """The largest distance from `p` to a vector with the same leading entry, ``[..., K] -> [...]``.

    Statement (ii): ``distance(p, q) > collapse_distance(p)`` implies that the leading entries of
    `p` and `q` differ. Statement (iii): it is at most ``1 - 1/K``, so vectors farther apart than
    this have different leading entries.

    The maximum is attained where the leading entry and a set of m others share everything,
    ``1 / (1 + m)`` each; for each m the m smallest others are the farthest, so no search over sets
    is needed.
    """
    largest = p.amax(-1, keepdim=True)
    # Ascending; one of the largest entries is left out.
    smaller = p.sort(-1).values[..., :-1]
    count = smaller.shape[-1]
    # For each m: the share of the leading entry and of the m smallest others, `[m]`, which others
    # those are, `[m, K - 1]`, and by how much they change; the rest falls to 0.
    sizes = torch.arange(count + 1, device=p.device)
    share = 1 / (1 + sizes.to(p.dtype))
    gets_share = torch.arange(count, device=p.device) < sizes[:, None]
    smaller = smaller.unsqueeze(-2)
    changes = torch.where(gets_share, (smaller - share[:, None]).abs(), smaller)
    return ((largest - share).abs() + changes.sum(-1)).amax(-1) / 2


def step_distance(
    gradients: Tensor, loss_gradient: Tensor, rate: Tensor | float
) -> Tensor:
    """Return by how much a short step down a loss moves a vector: ``[...]``.

    ``d(p(t), p(t - rate g)) ~ rate / 2 sum_i |<g, dp_i/dt>|`` with g the gradient of the loss:
    `distance` to first order in the rate, as in the last formula of appendix B, so only where
    steps are in the linear regime. It depends on `p`, so no rate moves all images by as much.

    Args:
        gradients: ``dp_i/dt`` of each entry of the vector, ``[..., K, n]`` for n parameters.
        loss_gradient: g, the gradient of the whole loss, ``[..., n]``.
        rate: the learning rate, ``[...]`` or a number.

    Example:
        >>> gradients = torch.tensor([[0.2, 0.0], [-0.1, 0.0], [-0.1, 0.0]])
        >>> round(float(step_distance(gradients, torch.tensor([3.0, 5.0]), 0.1)), 3)
        0.06
    """
    slopes = (gradients @ loss_gradient.unsqueeze(-1)).squeeze(-1)
    return rate * slopes.abs().sum(-1) / 2
