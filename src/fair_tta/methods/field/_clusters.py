"""Clusters of features, for methods that treat parts of images or kinds of images apart."""

from __future__ import annotations

import warnings

import torch
from scipy.cluster.vq import kmeans2
from torch import Tensor

_MAX_ITERATIONS = (
    100  # of one start; scipy stops earlier once centres stay where they are
)


def k_means(points: Tensor, clusters: int, starts: int = 40) -> Tensor:
    """Return centres of clusters: ``[points, dim] -> [clusters, dim]``.

    Each start has its own seed and centres that are far apart (k-means++). The start with the
    smallest sum of squared distances wins.
    """
    distinct = points.unique(dim=0)
    if len(distinct) <= clusters:
        repeated: Tensor = distinct[torch.arange(clusters) % len(distinct)]
        return repeated

    candidates = []
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # a cluster without points keeps its centre
        for seed in range(starts):
            centres, _ = kmeans2(
                points.numpy(), clusters, _MAX_ITERATIONS, minit="++", seed=seed
            )
            candidates.append(torch.from_numpy(centres))

    def sum_of_squares(centres: Tensor) -> float:
        return float(torch.cdist(points, centres).amin(1).square().sum())

    return min(candidates, key=sum_of_squares)


def nearest_centre(points: Tensor, centres: Tensor) -> Tensor:
    """Return which centre is nearest, the first of several: ``[..., dim], [k, dim] -> [...]``."""
    # |x - c|^2 without |x|^2, which is the same for all centres
    return (points @ centres.mT - centres.square().sum(-1) / 2).argmax(-1)
