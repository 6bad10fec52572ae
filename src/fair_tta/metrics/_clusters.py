"""Clusters: images that come from one person or source, and so are not independent."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri, stdtrit

from fair_tta.errors import FairTTAError
from fair_tta.metrics._columns import (
    assign_codes,
    check_lookalikes,
    is_missing,
    read_column,
)
from fair_tta.metrics._types import Column, Floats, Ints

MIN_CLUSTERS = 10
"""Persons or sources below which there are no intervals."""

# Variance of values that differ by rounding only.
_ROUNDING_VARIANCE = 1e-12


def read_clusters(clusters: Column, length: int) -> Ints | None:
    """Return numbers of the clusters, in order of occurrence; None if each image is its own.

    An image without a value (None, NaN or "") is its own cluster.
    """
    # An object of its own for each missing value is equal to no other.
    plain = clusters.tolist() if hasattr(clusters, "tolist") else clusters
    if isinstance(plain, list | tuple):
        plain = [object() if is_missing(name) or name == "" else name for name in plain]
    column = read_column("clusters", plain, length)
    check_lookalikes("clusters", column)
    numbers = assign_codes(column)
    return numbers if numbers.max(initial=-1) + 1 < length else None


def check_clusters(clusters: Ints | None) -> None:
    """Raise if there are too few clusters for any interval."""
    if clusters is None:
        return
    count = int(clusters.max()) + 1
    if count < MIN_CLUSTERS:
        raise FairTTAError(
            f"`clusters` should be {MIN_CLUSTERS} or more persons or sources (got {count}): "
            "fewer show nothing about others. Without `clusters` figures are about images of "
            "these alone.",
            argument="clusters",
        )


def same_clusters(first: Ints | None, second: Ints | None) -> bool:
    """Return whether both columns are None or have the same numbers."""
    if first is None or second is None:
        return first is second
    return np.array_equal(first, second)


def join_clusters(first: Ints | None, second: Ints | None) -> Ints | None:
    """Number the smallest clusters of images that keep those of both together.

    None if every image is a cluster of its own.
    """
    if first is None or second is None or same_clusters(first, second):
        joined = second if first is None else first
    else:
        # Clusters of either kind are nodes, and each image is an edge between its two clusters.
        nodes_of_first = int(first.max()) + 1
        nodes = nodes_of_first + int(second.max()) + 1
        ones = np.ones(len(first))
        edges = coo_array((ones, (first, nodes_of_first + second)), (nodes, nodes))
        _, component_of_node = connected_components(edges, directed=False)
        joined = component_of_node[first].astype(np.int64)
    # Clusters of one image each are no clusters.
    if joined is None or len(np.unique(joined)) == len(joined):
        return None
    return joined


def design_effect(values: Floats, clusters: Ints) -> float:
    """Return how many times as large the variance of a mean is as for independent images.

    ``C / (C - 1) sum_c (sum_{i in c} (x_i - mean x))^2 / (n var x)`` with C clusters (Korn and
    Graubard, 1998). Where all values are equal, images of a cluster are taken to agree.
    """
    n = len(values)
    # Numbers of the clusters that occur here, without gaps.
    _, unit = np.unique(clusters, return_inverse=True)
    sizes = np.bincount(unit)
    count = len(sizes)
    variance = float(values.var())
    if variance <= _ROUNDING_VARIANCE or count == 1:
        return float((sizes**2).sum()) / n
    totals = np.bincount(unit, values - values.mean())
    return float((totals**2).sum()) * count / (count - 1) / (n * variance)


def student_factor(clusters: int, level: float) -> float:
    """Return the factor of a sample size that makes a normal interval as wide as Student's."""
    tail = (1 + level) / 2
    # At least one degree of freedom, where all images are of one cluster.
    degrees = max(1, clusters - 1)
    return float(ndtri(tail) / stdtrit(degrees, tail)) ** 2
