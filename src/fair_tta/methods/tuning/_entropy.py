"""Entropy of predictions, in log space: marginals over views and the confidence filter."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fair_tta.errors import check_number


def normalised_entropy(log_probabilities: Tensor) -> Tensor:
    """Return entropy divided by its largest value: 0 is certain, 1 is indifferent.

    ``[..., K] -> [...]``, ``H(p) / log K = -sum_k p_k log p_k / log K`` with ``0 log 0 = 0``.

    Example:
        >>> normalised_entropy(torch.tensor([0.5, 0.5]).log())
        tensor(1.)
        >>> normalised_entropy(torch.tensor([1.0, 0.0]).log())
        tensor(0.)
    """
    probabilities = log_probabilities.exp()
    # The clamp keeps 0 * -inf (and its gradient) from becoming NaN.
    logs = log_probabilities.clamp(min=torch.finfo(log_probabilities.dtype).min)
    entropy_in_nats = (probabilities * -logs).sum(-1)
    classes = log_probabilities.shape[-1]
    return entropy_in_nats / math.log(classes)


def entropy(log_probabilities: Tensor) -> Tensor:
    """Return the entropy in nats, between 0 and ``log K``: ``[..., K] -> [...]``."""
    classes = log_probabilities.shape[-1]
    return normalised_entropy(log_probabilities) * math.log(classes)


def marginal(log_probabilities: Tensor) -> Tensor:
    """Return the log of the mean probability over views: ``[..., views, K] -> [..., K]``."""
    views = log_probabilities.shape[-2]
    return log_probabilities.logsumexp(-2) - math.log(views)


def count_kept(views: int, rho: float) -> int:
    """Return how many of the views the filter keeps: ``max(1, floor(rho * views))``."""
    # 0.29 * 100 is a little less than 29 in floating point.
    rounding = 1e-9
    return max(1, math.floor(rho * views + rounding))


def most_confident(log_probabilities: Tensor, rho: float) -> Tensor:
    """Return indices of the fraction of views with the lowest entropy.

    Ties are in the order of the views: ``[..., views, K] -> [..., kept]``
    """
    order = normalised_entropy(log_probabilities).argsort(dim=-1, stable=True)
    kept = count_kept(order.shape[-1], rho)
    return order[..., :kept]


def check_rho(rho: float) -> None:
    """Raise unless `rho` lies in (0, 1]."""
    check_number(
        "rho", rho, "be a fraction of the views in (0, 1]", lambda x: 0 < x <= 1
    )


def check_margin(margin: float) -> None:
    """Raise unless `margin` is a share of the largest entropy."""
    should = (
        "be a share of the largest entropy above 0; with more than 1 every view passes"
    )
    check_number("margin", margin, should, lambda x: x > 0)
