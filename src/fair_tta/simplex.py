"""How far a probability vector moved, and how far it must move before its argmax can change."""

from __future__ import annotations

from torch import Tensor


def distance(p: Tensor, q: Tensor) -> Tensor:
    """Half the l1 distance of two probability vectors, ``[..., K] -> [...]``, between 0 and 1."""
    return (p - q).abs().sum(-1) / 2


def flip_margin(p: Tensor) -> Tensor:
    """Half the gap between the two largest entries, ``[..., K] -> [...]``.

    Paper, appendix B, statement (i): if `p` and `q` have different leading entries then
    ``distance(p, q) >= flip_margin(p)``. (The paper writes ``>``; with ties only ``>=`` is true.)
    So an answer that moved by less than its margin is certified not to have flipped.
    """
    top = p.topk(2, dim=-1).values
    return (top[..., 0] - top[..., 1]) / 2
