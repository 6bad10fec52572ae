"""How far a probability vector moved, and what follows for its leading entry.

The three statements are those of the paper's appendix B. The leading entry is the first of the
largest ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["collapse_distance", "distance", "flip_margin", "universal_collapse_distance"]


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
    `p` and `q` differ. The maximum is attained where the leading entry and a set of m others share
    everything, ``1 / (1 + m)`` each; for each m the m smallest others are the farthest, so no
    search over sets is needed.
    """
    largest = p.amax(-1, keepdim=True)
    others = p.sort(-1).values[..., :-1]  # ascending; one of the largest is left out
    count = others.shape[-1]
    sizes = torch.arange(count + 1, device=p.device)
    share = 1 / (1 + sizes.to(p.dtype))  # [m]
    chosen = torch.arange(count, device=p.device) < sizes[:, None]  # [m, K - 1]
    gaps = torch.where(chosen, (others.unsqueeze(-2) - share[:, None]).abs(), others.unsqueeze(-2))
    return ((largest - share).abs() + gaps.sum(-1)).amax(-1) / 2


def universal_collapse_distance(classes: int) -> float:
    """``1 - 1/K``.

    Statement (iii): vectors that are farther apart than this have different leading entries.
    """
    return 1 - 1 / classes
