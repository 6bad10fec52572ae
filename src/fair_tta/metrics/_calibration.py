"""Confidence, indifference and expected calibration error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from fair_tta.errors import FairTTAError
from fair_tta.metrics._answer_table import check_length
from fair_tta.metrics._estimates import Estimate, undefined_estimate
from fair_tta.metrics._types import Floats, Ints, Mask
from fair_tta.metrics.intervals._bootstrap import Bootstrap
from fair_tta.metrics.intervals._closed_forms import Bounds, quantile_of_normal
from fair_tta.metrics.intervals._extremes import ExtremeChange
from fair_tta.metrics.intervals._noise import DRAWS


def normalised_entropies(probabilities: Any) -> Floats:
    """``-sum_k p_k log p_k / log K`` of each row, ``[images, K] -> [images]``, from 0 to 1."""
    p = check_probabilities("probabilities", probabilities)
    logs = np.log(np.where(p > 0, p, 1.0))
    entropies: Floats = -(p * logs).sum(1) / math.log(p.shape[1])
    return np.clip(entropies, 0.0, 1.0)


def mean_estimate(
    figures: Floats, level: float, least: float = 0.0, weight: float = 1.0
) -> Estimate:
    """A mean of numbers from `least` to 1, with an interval that is honest for few images.

    Wald's interval after one image was added at either end of the range, as Bonett and Price do
    for answers: what few images did not show may still be there. `weight` is what an image counts
    for, see `AnswerTable.effective_weight`.
    """
    n = len(figures)
    if n == 0:
        return undefined_estimate("no images")
    value = float(figures.mean())
    more = np.concatenate([figures, [least, 1.0]])
    weights = np.concatenate([np.full(n, weight), [1.0, 1.0]])
    middle = float(np.average(more, weights=weights))
    squares = float((weights * (more - middle) ** 2).sum())
    size = n * weight + 2
    half = quantile_of_normal(level) * math.sqrt(squares / (size - 1) / size)
    low, high = min(value, middle - half), max(value, middle + half)
    return Estimate(value, n, max(least, low), min(1.0, high))


def check_probabilities(
    argument: str, values: Any, length: int | None = None
) -> Floats:
    """Probabilities ``[images, K]`` of two names or more."""
    p = read_array(argument, values, 2, length)
    if p.shape[1] < 2:
        raise FairTTAError(
            f"`{argument}` should have two columns or more (got {p.shape[1]}).",
            argument=argument,
        )
    if not (np.all(p >= 0) and np.allclose(p.sum(1), 1, atol=1e-3)):
        raise FairTTAError(
            f"`{argument}` should be >= 0 and sum to 1 in each row.",
            argument=argument,
        )
    return p


def check_unit(argument: str, values: Any, length: int | None = None) -> Floats:
    """Numbers from 0 to 1, one per image. (What exceeds 1 by rounding is 1.)"""
    array = read_array(argument, values, 1, length)
    if not np.all((array >= -1e-5) & (array <= 1 + 1e-5)):
        raise FairTTAError(
            f"`{argument}` should lie between 0 and 1.", argument=argument
        )
    return np.clip(array, 0.0, 1.0)


def read_entropies(probabilities: Any, entropies: Any) -> Floats:
    """Normalised entropies ``[images]``, from either."""
    if (probabilities is None) == (entropies is None):
        raise FairTTAError(
            "pass either `probabilities` or `entropies`.", argument="probabilities"
        )
    if entropies is not None:
        return check_unit("entropies", entropies)
    return normalised_entropies(probabilities)


def read_array(
    argument: str, values: Any, dimensions: int, length: int | None = None
) -> Floats:
    """Numbers with so many dimensions, one or more per image; None is NaN."""
    if hasattr(values, "detach"):  # a tensor, perhaps on a GPU or in half precision
        values = values.detach().double().cpu().numpy()
    elif isinstance(values, list | tuple | Iterator):  # perhaps of tensors
        values = [one.tolist() if hasattr(one, "tolist") else one for one in values]
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise FairTTAError(
            f"`{argument}` should be numbers.", argument=argument
        ) from None
    if array.ndim != dimensions:
        many = "one dimension" if dimensions == 1 else f"{dimensions} dimensions"
        raise FairTTAError(
            f"`{argument}` should have {many} (got {array.ndim}).", argument=argument
        )
    if length is not None:
        check_length(argument, array, length)
    return array


BINS = 15
"""Bins of confidence, their centres equally far apart."""

_ADDED = 4  # images, half of them right, for the width of the interval


def calibration(
    right: Any, sure: Floats, bins: int, how: Bootstrap, clusters: Ints | None = None
) -> Estimate:
    """The calibration error from right answers and confidences.

    ``sum_b |mean_i w_ib (right_i - confidence_i)|``, bins centred at ``(b + 1/2) / bins``; w_ib
    falls linearly from 1 at a centre to 0 at the next one.

    The interval is ``value -+ q`` with q the `level` quantile of the error of noise alone, as for
    gaps: by the triangle inequality the error is never farther from that of infinitely many images
    than the error of its noise. The noise of the bins is drawn from the normal limit of their
    bootstrap.
    """
    n = len(sure)
    if n == 0:
        return undefined_estimate("no images")
    weights = _weights(sure, bins)
    errors = weights * (right - sure)[:, None]
    value = min(1.0, float(np.abs(errors.mean(0)).sum()))
    generator = np.random.default_rng(how.seed)
    draws = generator.standard_normal((how.resamples, bins))
    roots = [_root(errors, [weights], [sure])]
    if clusters is not None:
        roots.append(_root(errors, [weights], [sure], clusters))
    reaches = [np.quantile(np.abs(draws @ root).sum(1), how.level) for root in roots]
    reach = float(max(reaches))
    return Estimate(value, n, max(0.0, value - reach), min(1.0, value + reach))


def calibration_change(
    right: Sequence[Mask],
    sure: Sequence[Floats],
    bins: int,
    how: Bootstrap,
    clusters: Ints | None = None,
) -> Estimate:
    """The error of a second run minus that of a first on the same images.

    The error is a sum of absolute values, so its change has the interval of a change of extremes,
    see `fair_tta.metrics.intervals._extremes`, from the noise of all bins of both runs together.
    """
    weights = [_weights(of_run, bins) for of_run in sure]
    errors = [
        w * (r - s)[:, None] for w, r, s in zip(weights, right, sure, strict=True)
    ]
    seen = np.stack([of_run.mean(0) for of_run in errors])
    before, after = np.abs(seen).sum(1)
    normal = np.random.default_rng(how.seed).standard_normal((DRAWS, 2 * bins))

    def ends(units: Ints | None) -> Bounds:
        draws = normal @ _root(np.hstack(errors), weights, sure, units)
        noise = np.concatenate([draws, -draws]).T.reshape(2, bins, -1)
        mean_of_bins = ExtremeChange.of_absolutes(seen, noise)
        return mean_of_bins.bounds((1 - how.level) / 2)

    low, high = ends(None)
    if clusters is not None:
        clustered = ends(clusters)
        low, high = min(low, clustered[0]), max(high, clustered[1])
    low, high = max(-1.0, bins * low), min(1.0, bins * high)
    return Estimate(float(after - before), len(sure[0]), low, high)


def _weights(sure: Floats, bins: int) -> Floats:
    """How much each image counts in each bin, ``[images, bins]``; 1 in all of them together."""
    place = np.clip(sure * bins - 0.5, 0, bins - 1)  # in steps from the first centre
    weights: Floats = np.maximum(0.0, 1 - np.abs(place[:, None] - np.arange(bins)))
    return weights


def _root(
    errors: Floats,
    weights: Sequence[Floats],
    sure: Sequence[Floats],
    clusters: Ints | None = None,
) -> Floats:
    """A matrix that gives independent normal numbers the noise of the bins of all runs.

    As Agresti and Coull do for rates, two right and two wrong images are added to the ones seen,
    spread over their confidences: a group that is all right would look certain. Images of a cluster
    have their noise together, and what is added counts as much as an average cluster.

    Of all roots of a covariance the symmetric one is taken. It does not depend on the order of
    images nor on how a processor turns eigenvectors, and it moves no faster than the `errors`.

    Args:
        errors: by which each image moves each bin: ``[images, runs * bins]``.
        weights: of the images in the bins, run by run: ``[images, bins]``.
        sure: confidences, run by run: ``[images]``.
        clusters: numbers of the clusters; None if images are independent.
    """
    n = units = len(errors)
    centred = errors - errors.mean(0)
    if clusters is not None:
        _, unit = np.unique(clusters, return_inverse=True)
        units = int(unit.max()) + 1
        totals = np.zeros((units, errors.shape[1]))
        np.add.at(totals, unit, centred)
        centred = totals * math.sqrt(units / max(1, units - 1))
    added = []
    for in_bins, confidence in zip(weights, sure, strict=True):
        worth = _ADDED * n / units**2 * (confidence**2 + (1 - confidence) ** 2) / 2
        added.append(in_bins.T @ (in_bins * worth[:, None]))
    covariance = (centred.T @ centred + block_diag(*added)) / n**2
    squares, axes = np.linalg.eigh(covariance)
    return np.asarray((axes * np.sqrt(np.maximum(squares, 0))) @ axes.T)
