"""Entropy of predictions, in log space."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def normalised_entropy(log_probabilities: Tensor) -> Tensor:
    """Entropy divided by its largest value: 0 is certain, 1 is indifferent.

    ``H(p) / log K = -sum_k p_k log p_k / log K``, with ``0 log 0 = 0``.

    Args:
        log_probabilities: ``[..., K]`` with ``K >= 2``; -inf stands for probability 0.

    Returns:
        ``[...]``

    Example:
        >>> normalised_entropy(torch.tensor([0.5, 0.5]).log())
        tensor(1.)
        >>> normalised_entropy(torch.tensor([1.0, 0.0]).log())
        tensor(0.)
    """
    probabilities = log_probabilities.exp()
    # the clamp keeps 0 * -inf (and its gradient) from becoming NaN
    logs = log_probabilities.clamp(min=torch.finfo(log_probabilities.dtype).min)
    return (probabilities * -logs).sum(-1) / math.log(log_probabilities.shape[-1])
