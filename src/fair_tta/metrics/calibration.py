"""Expected calibration error, without jumps: bins overlap, and an image counts in two of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics.bootstrap import Bootstrap, check_interval
from fair_tta.metrics.certainty import check_unit
from fair_tta.metrics.estimate import Estimate, undefined, warn_small
from fair_tta.metrics.rows import Column, Floats, Sensitive, Values, parse_rows

BINS = 15
"""Bins of confidence, their centres equally far apart."""

_ADDED = 4  # images, half of them right, for the width of the interval


def expected_calibration_error(
    y_true: Column,
    y_pred: Column,
    confidence: Any,
    *,
    bins: int = BINS,
    interval: Bootstrap | None = None,
) -> Estimate:
    """How far confidence is from accuracy, on average: 0 means that 80 % sure is right in 80 %.

    ``ECE = sum_b |mean_i w_ib (right_i - confidence_i)|``, bins centred at ``(b + 1/2) / bins``.
    An image between two centres counts in both bins, the more the nearer it is: the weights
    ``w_ib`` fall linearly from 1 at a centre to 0 at the next one. So a last digit of a confidence
    changes a last digit of the figure. With weights of 0 and 1 (sharp edges) it would be the usual
    ``sum_b n_b/n |acc_b - conf_b|``, which jumps when a confidence crosses an edge.

    On few images it is too large, because noise in a bin counts as error.

    Args:
        y_true: true labels.
        y_pred: answers.
        confidence: ``[images]``, the probability of the answer.
        bins: how many.
        interval: resamples, seed and level of the interval.

    Example:
        >>> error = expected_calibration_error(["a"] * 4, ["a", "a", "a", "b"], [0.95] * 4)
        >>> round(error.value, 3)
        0.2
    """
    rows = parse_rows(y_true, [y_pred], None, None, None)
    sure = check_unit("confidence", confidence, len(rows.truth))
    return calibration(rows.truth == rows.answers[0], sure, bins, interval)


def group_calibration_error(
    y_true: Column,
    y_pred: Column,
    confidence: Any,
    sensitive: Sensitive,
    *,
    values: Values | None = None,
    bins: int = BINS,
    interval: Bootstrap | None = None,
) -> dict[Any, Estimate]:
    """`expected_calibration_error` of each group, by name; empty groups are NaN."""
    rows = parse_rows(y_true, [y_pred], sensitive, None, values)
    sure = check_unit("confidence", confidence, len(rows.truth))
    right = rows.truth == rows.answers[0]
    names = [group[0] if len(group) == 1 else group for group in rows.groups]
    found = {
        name: calibration(right[rows.group == g], sure[rows.group == g], bins, interval)
        for g, name in enumerate(names)
    }
    warn_small({str(name): figure.n for name, figure in found.items()})
    return found


def calibration(right: Any, sure: Floats, bins: int, interval: Bootstrap | None) -> Estimate:
    """The error from right answers and confidences.

    The interval is ``value -+ q`` with q the `level` quantile of the error of noise alone, as for
    gaps: by the triangle inequality the error is never farther from that of infinitely many images
    than the error of its noise. The noise of the bins is drawn from the normal limit of their
    bootstrap.
    """
    if not isinstance(bins, int) or bins < 1:
        raise FairTTAError(f"`bins` should be a whole number from 1 on (got {bins!r}).")
    n = len(sure)
    if n == 0:
        return undefined("no images")
    weights = _weights(sure, bins)
    errors = weights * (right - sure)[:, None]
    value = min(1.0, float(np.abs(errors.mean(0)).sum()))
    if interval is None:
        return Estimate(value, n)
    check_interval(interval)
    generator = np.random.default_rng(interval.seed)
    noise = generator.standard_normal((interval.resamples, bins)) @ _root(errors, weights, sure)
    reach = float(np.quantile(np.abs(noise).sum(1), interval.level))
    return Estimate(value, n, max(0.0, value - reach), min(1.0, value + reach))


def _weights(sure: Floats, bins: int) -> Floats:
    """How much each image counts in each bin, ``[images, bins]``; 1 in all of them together."""
    place = np.clip(sure * bins - 0.5, 0, bins - 1)  # in steps from the first centre
    weights: Floats = np.maximum(0.0, 1 - np.abs(place[:, None] - np.arange(bins)))
    return weights


def _root(errors: Floats, weights: Floats, sure: Floats) -> Floats:
    """A matrix ``[bins, bins]`` that gives independent normal numbers the noise of the bins.

    As Agresti and Coull do for rates, two right and two wrong images are added to the ones seen,
    spread over their confidences: a group that is all right would look certain.

    Of all roots of a covariance the symmetric one is taken. It does not depend on the order of
    images nor on how a processor turns eigenvectors, and it moves no faster than the `errors`.
    """
    n = len(errors)
    centred = errors - errors.mean(0)
    added = _ADDED / n * (sure**2 + (1 - sure) ** 2) / 2
    covariance = (centred.T @ centred + weights.T @ (weights * added[:, None])) / n**2
    squares, axes = np.linalg.eigh(covariance)
    return np.asarray((axes * np.sqrt(np.maximum(squares, 0))) @ axes.T)
