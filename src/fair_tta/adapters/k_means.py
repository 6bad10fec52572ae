"""K-means: the same centres for the same points."""

from __future__ import annotations

import torch
from torch import Tensor

_STARTS = 10
_ROUNDS = 100


def k_means(points: Tensor, clusters: int) -> Tensor:
    """Centres of clusters: ``[points, dim] -> [clusters, dim]``.

    Of ten starts, each with centres far apart (k-means++) from a generator with a fixed seed, the
    one with the smallest sum of squared distances.
    """
    generator = torch.Generator().manual_seed(0)
    found = [_settle(points, _spread(points, clusters, generator)) for _ in range(_STARTS)]
    return min(found, key=lambda centres: float(_squares(points, centres).amin(1).sum()))


def nearest_centre(points: Tensor, centres: Tensor) -> Tensor:
    """Which centre is nearest, the first of several: ``[..., dim], [k, dim] -> [...]``."""
    # |x - c|^2 without |x|^2, which does not tell centres apart
    return (points @ centres.mT - centres.square().sum(-1) / 2).argmax(-1)


def _spread(points: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Points as centres: each as probable as its squared distance to those before is large."""
    chosen = [int(torch.randint(len(points), (1,), generator=generator, device="cpu"))]
    for _ in range(clusters - 1):
        distance = _squares(points, points[chosen]).amin(1)
        weight = distance if float(distance.sum()) > 0 else torch.ones_like(distance)
        chosen.append(int(torch.multinomial(weight, 1, generator=generator)))
    return points[chosen]


def _settle(points: Tensor, centres: Tensor) -> Tensor:
    """Move centres to the means of their points until none changes its centre."""
    before = torch.full((len(points),), -1, device=points.device)
    for _ in range(_ROUNDS):
        nearest = nearest_centre(points, centres)
        if torch.equal(nearest, before):
            break
        before = nearest
        member = torch.nn.functional.one_hot(nearest, len(centres)).to(points)
        count = member.sum(0).unsqueeze(1)
        centres = torch.where(count > 0, member.mT @ points / count.clamp(min=1), centres)
    return centres


def _squares(points: Tensor, centres: Tensor) -> Tensor:
    distance: Tensor = torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square()
