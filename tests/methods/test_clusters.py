"""K-means against scikit-learn's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from internals import k_means, nearest_centre
from random_task import random_units


@pytest.mark.parametrize("clusters", [1, 3, 6])
def test_is_as_good_as_scikit_learns(clusters: int) -> None:
    cluster: Any = pytest.importorskip("sklearn.cluster")
    points = random_units(1, 120, 6)
    centres = k_means(points, clusters)
    inertia = float(torch.cdist(points, centres).amin(1).square().sum())
    theirs = cluster.KMeans(clusters, n_init=10, random_state=0).fit(points)
    assert inertia <= 1.02 * theirs.inertia_
    nearest = theirs.__class__.predict(theirs, points.numpy())
    assert len(set(nearest.tolist())) == clusters


def test_finds_what_is_far_apart_and_is_the_same_each_time() -> None:
    centres = 10 * torch.eye(3, dtype=torch.float64)
    points = (centres.repeat(20, 1) + 0.1 * random_units(0, 60, 3))[torch.randperm(60)]
    clustered = k_means(points, 3)
    assert torch.equal(clustered, k_means(points, 3))
    nearest = nearest_centre(centres, clustered)
    assert sorted(nearest.tolist()) == [0, 1, 2]
    torch.testing.assert_close(clustered[nearest], centres, rtol=0, atol=0.2)


def test_points_that_are_all_the_same() -> None:
    point = random_units(0, 1, 5)
    centres = k_means(point.expand(7, -1), 3)
    torch.testing.assert_close(centres, point.expand(3, -1))
    assert nearest_centre(point, centres).tolist() == [0]


def test_as_many_clusters_as_points() -> None:
    points = random_units(0, 5, 4)
    centres = k_means(points, 5)
    assert sorted(nearest_centre(points, centres).tolist()) == [0, 1, 2, 3, 4]
