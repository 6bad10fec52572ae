"""K-means for methods that treat parts of images, or kinds of images, separately."""

from __future__ import annotations

import warnings

import torch
from scipy.cluster.vq import kmeans2
from torch import Tensor

# SciPy stops earlier once the centres no longer move.
_MAX_ITERATIONS = 100


def k_means(points: Tensor, clusters: int, starts: int = 40) -> Tensor:
    """Return centres of clusters: ``[points, dim] -> [clusters, dim]``.

    Each start has its own seed and centres that are far apart (k-means++). The start with the
    smallest sum of squared distances wins.
    """
    distinct = points.unique(dim=0)
    if len(distinct) <= clusters:
        # Each point is a centre; k-means++ would fail to find further ones.
        repeated: Tensor = distinct[torch.arange(clusters) % len(distinct)]
        return repeated

    candidates = []
    with warnings.catch_warnings():
        # SciPy warns of a cluster without points, which keeps its centre.
        warnings.simplefilter("ignore", UserWarning)
        for seed in range(starts):
            centres, _ = kmeans2(
                points.numpy(), clusters, _MAX_ITERATIONS, minit="++", seed=seed
            )
            candidates.append(torch.from_numpy(centres))

    def sum_of_squares(centres: Tensor) -> float:
        return float(torch.cdist(points, centres).amin(1).square().sum())

    return min(candidates, key=sum_of_squares)


def nearest_centre(points: Tensor, centres: Tensor) -> Tensor:
    """Return the index of the nearest centre: ``[..., dim], [clusters, dim] -> [...]``."""
    # |x - c|^2 without |x|^2, which is the same for all centres.
    return (points @ centres.mT - centres.square().sum(-1) / 2).argmax(-1)
