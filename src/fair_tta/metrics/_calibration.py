"""Estimates of the mean of a score and of the expected calibration error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from fair_tta.metrics._estimates import Estimate, undefined_estimate
from fair_tta.metrics._types import Floats, Ints, Mask
from fair_tta.metrics.intervals._bootstrap import Bootstrap
from fair_tta.metrics.intervals._closed_forms import Bounds, quantile_of_normal
from fair_tta.metrics.intervals._extremes import ExtremeChange
from fair_tta.metrics.intervals._noise import DRAWS

_BINS = 15  # of confidence, their centres equally far apart

# As Agresti and Coull do for rates: half of the added images are right, half are wrong.
_ADDED_IMAGES = 4


def mean_estimate(
    scores: Floats, level: float, least: float = 0.0, weight: float = 1.0
) -> Estimate:
    """Return a mean of numbers from `least` to 1, with an interval that holds for few images.

    Wald's interval after one image was added at either end of the range, as Bonett and Price do
    for answers: values that few images did not show may still occur.

    Args:
        scores: ``[images]``.
        level: of the interval.
        least: the smallest possible number.
        weight: of an image, see `AnswerTable.effective_weight`.
    """
    n = len(scores)
    if n == 0:
        return undefined_estimate("no images")
    value = float(scores.mean())

    extended = np.concatenate([scores, [least, 1.0]])
    weights = np.concatenate([np.full(n, weight), [1.0, 1.0]])
    centre = float(np.average(extended, weights=weights))
    squares = float((weights * (extended - centre) ** 2).sum())
    size = n * weight + 2
    margin = quantile_of_normal(level) * math.sqrt(squares / (size - 1) / size)

    # The observed mean lies inside the interval, and the interval in the range.
    low = min(value, centre - margin)
    high = max(value, centre + margin)
    return Estimate(value, n, max(least, low), min(1.0, high))


def estimate_calibration_error(
    is_correct: Any,
    confidence: Floats,
    bootstrap: Bootstrap,
    clusters: Ints | None = None,
) -> Estimate:
    """Return the calibration error from correct answers and confidences, ``[images]`` each.

    ``sum_b |mean_i w_ib (right_i - confidence_i)|``, see `_bin_weights`.

    The interval is ``value -+ q`` with q the `level` quantile of the error of noise alone, as for
    gaps: by the triangle inequality the error is never farther from that of infinitely many images
    than the error of its noise. The noise of the bins is drawn from the normal limit of their
    bootstrap.
    """
    n = len(confidence)
    if n == 0:
        return undefined_estimate("no images")
    # The error of each bin, and the sum of their absolute values.
    weights = _bin_weights(confidence)
    errors = weights * (is_correct - confidence)[:, None]
    value = min(1.0, float(np.abs(errors.mean(0)).sum()))

    # Noise of the bins, of independent images and of clusters.
    generator = np.random.default_rng(bootstrap.seed)
    draws = generator.standard_normal((bootstrap.resamples, _BINS))
    roots = [_covariance_factor(errors, [weights], [confidence])]
    if clusters is not None:
        roots.append(_covariance_factor(errors, [weights], [confidence], clusters))
    # Clusters never make the interval narrower.
    margin = 0.0
    for root in roots:
        noise_errors = np.abs(draws @ root).sum(1)
        margin = max(margin, float(np.quantile(noise_errors, bootstrap.level)))
    return Estimate(value, n, max(0.0, value - margin), min(1.0, value + margin))


def estimate_calibration_change(
    is_correct: Sequence[Mask],
    confidence: Sequence[Floats],
    bootstrap: Bootstrap,
    clusters: Ints | None = None,
) -> Estimate:
    """Return the error of a second run minus that of a first on the same images.

    The error is a sum of absolute values, so its change has the interval of a change of extremes,
    see `fair_tta.metrics.intervals._extremes`, from the noise of all bins of both runs together.

    Args:
        is_correct: of both runs, ``[images]`` each.
        confidence: of both runs, ``[images]`` each.
        bootstrap: level and seed of the interval.
        clusters: ``[images]`` numbers of the clusters; None if images are independent.
    """
    weights = [_bin_weights(of_run) for of_run in confidence]
    errors = []
    for run in range(2):
        misses = is_correct[run] - confidence[run]
        errors.append(weights[run] * misses[:, None])
    mean_errors = np.stack([errors_of_run.mean(0) for errors_of_run in errors])
    before, after = np.abs(mean_errors).sum(1)

    generator = np.random.default_rng(bootstrap.seed)
    normal = generator.standard_normal((DRAWS, 2 * _BINS))

    def bounds_with(clusters: Ints | None) -> Bounds:
        root = _covariance_factor(np.hstack(errors), weights, confidence, clusters)
        draws = normal @ root
        noise = np.concatenate([draws, -draws]).T.reshape(2, _BINS, -1)
        mean_over_bins = ExtremeChange.of_absolutes(mean_errors, noise)
        return mean_over_bins.bounds((1 - bootstrap.level) / 2)

    low, high = bounds_with(None)
    if clusters is not None:
        clustered_low, clustered_high = bounds_with(clusters)
        low = min(low, clustered_low)
        high = max(high, clustered_high)
    # The bounds are of a mean over bins, the error is a sum.
    low = max(-1.0, _BINS * low)
    high = min(1.0, _BINS * high)
    return Estimate(float(after - before), len(confidence[0]), low, high)


def _bin_weights(confidence: Floats) -> Floats:
    """Return the share of each image that each bin counts, ``[images, bins]``; rows sum to 1.

    Bins are centred at ``(b + 1/2) / bins``; the share falls linearly from 1 at a centre to 0 at
    the next one.
    """
    steps_from_first_centre = np.clip(confidence * _BINS - 0.5, 0, _BINS - 1)
    distances = np.abs(steps_from_first_centre[:, None] - np.arange(_BINS))
    weights: Floats = np.maximum(0.0, 1 - distances)
    return weights


def _covariance_factor(
    errors: Floats,
    weights: Sequence[Floats],
    confidence: Sequence[Floats],
    clusters: Ints | None = None,
) -> Floats:
    """Return a matrix that gives independent normal numbers the noise of the bins of all runs.

    As Agresti and Coull do for rates, two right and two wrong images are added, spread over the
    confidences: a group that is all right would look certain. Images of a cluster have their noise
    together, and an added image counts as much as an average cluster.

    Of all roots of the covariance the symmetric one is taken. It does not depend on the order of
    images nor on how a processor turns eigenvectors, and it moves no faster than the `errors`.

    Args:
        errors: by which each image moves each bin: ``[images, runs * bins]``.
        weights: of the images in the bins, run by run: ``[images, bins]``.
        confidence: run by run: ``[images]``.
        clusters: numbers of the clusters; None if images are independent.
    """
    # Residuals of images, or totals of clusters.
    n = len(errors)
    units = n
    residuals = errors - errors.mean(0)
    if clusters is not None:
        _, unit = np.unique(clusters, return_inverse=True)
        units = int(unit.max()) + 1
        totals = np.zeros((units, errors.shape[1]))
        np.add.at(totals, unit, residuals)
        residuals = totals * math.sqrt(units / max(1, units - 1))

    added_covariances = []
    for weights_of_run, p in zip(weights, confidence, strict=True):
        # An added image is right or wrong in turn, with the squared error of either.
        squared_error = (p**2 + (1 - p) ** 2) / 2
        added = _ADDED_IMAGES * n / units**2 * squared_error
        added_covariances.append(weights_of_run.T @ (weights_of_run * added[:, None]))
    # The symmetric root of the covariance; rounding may make eigenvalues slightly negative.
    scatter = residuals.T @ residuals + block_diag(*added_covariances)
    eigenvalues, eigenvectors = np.linalg.eigh(scatter / n**2)
    deviations = np.sqrt(np.maximum(eigenvalues, 0))
    return np.asarray((eigenvectors * deviations) @ eigenvectors.T)
