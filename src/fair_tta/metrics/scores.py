"""Metrics of what a model says besides its answer: certainty, indifference, calibration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics.bootstrap import Bootstrap
from fair_tta.metrics.estimate import Estimate, undefined, warn_small
from fair_tta.metrics.exact import quantile_of_normal
from fair_tta.metrics.rows import Column, Floats, Ints, Sensitive, Values, parse_rows, read_column

BINS = 15
"""Bins of confidence, all equally wide."""

_ONE_IMAGE = "one image has no interval"


def normalised_entropies(probabilities: Any) -> Floats:
    """``-sum_k p_k log p_k / log K`` of each row, ``[images, K] -> [images]``, from 0 to 1."""
    p = _array("probabilities", probabilities, 2)
    if p.shape[1] < 2:
        raise FairTTAError(f"`probabilities` should have two columns or more (got {p.shape[1]}).")
    if not (np.all(p >= 0) and np.allclose(p.sum(1), 1, atol=1e-3)):
        raise FairTTAError("`probabilities` should be from 0 on and sum to 1 in each row.")
    logs = np.log(np.where(p > 0, p, 1.0))
    entropies: Floats = -(p * logs).sum(1) / math.log(p.shape[1])
    return np.clip(entropies, 0.0, 1.0)


def average_target_confidence(
    *, probabilities: Any = None, entropies: Any = None, level: float = 0.95
) -> Estimate:
    """ATC: one minus the mean normalised entropy of the targets. 1 is certain, 0 indifferent.

    Pass the probabilities ``[images, targets]``, or normalised entropies ``[images]``.
    """
    return mean(1 - _entropies(probabilities, entropies), level)


def average_sensitive_indifference(
    *, probabilities: Any = None, entropies: Any = None, level: float = 0.95
) -> Estimate:
    """ASI: the mean normalised entropy of a sensitive attribute. 1 is indifferent, 0 certain.

    Pass the probabilities ``[images, values]``, or normalised entropies ``[images]``.

    Example:
        >>> round(average_sensitive_indifference(probabilities=[[0.5, 0.5], [1.0, 0.0]]).value, 3)
        0.5
    """
    return mean(_entropies(probabilities, entropies), level)


def expected_calibration_error(
    y_true: Column,
    y_pred: Column,
    confidence: Any,
    *,
    bins: int = BINS,
    interval: Bootstrap | None = None,
) -> Estimate:
    """How far confidence is from accuracy, on average: 0 means that 80 % sure is right in 80 %.

    ``ECE = sum_b n_b/n |acc_b - conf_b|`` over bins of equal width, open to the left. On few images
    it is too large, because noise in a bin counts as error.

    Args:
        y_true: true labels.
        y_pred: answers.
        confidence: ``[images]``, the probability of the answer.
        bins: how many.
        interval: resamples, seed and level of the interval.
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
    gaps. The noise of the bins is drawn from the normal limit of their bootstrap.
    """
    if bins < 1:
        raise FairTTAError(f"`bins` should be at least 1 (got {bins!r}).")
    n = len(sure)
    if n == 0:
        return undefined("no images")
    position: Ints = np.clip(np.ceil(sure * bins).astype(np.int64) - 1, 0, bins - 1)
    off = right.astype(np.float64) - sure
    means = np.bincount(position, off, bins) / n
    value = min(1.0, float(np.abs(means).sum()))
    if interval is None:
        return Estimate(value, n)
    if n == 1:
        return Estimate(value, n, reason=_ONE_IMAGE)
    squares = np.bincount(position, off**2, bins) / n
    covariance = (np.diag(squares) - np.outer(means, means)) / n
    generator = np.random.default_rng(interval.seed)
    roots, axes = np.linalg.eigh(covariance)
    noise = generator.standard_normal((interval.resamples, bins)) * np.sqrt(np.maximum(roots, 0))
    reach = float(np.quantile(np.abs(noise @ axes.T).sum(1), interval.level))
    return Estimate(value, n, max(0.0, value - reach), min(1.0, value + reach))


def mean(figures: Floats, level: float, least: float = 0.0, strata: Ints | None = None) -> Estimate:
    """A mean of numbers from `least` to 1 with the normal limit of its (stratified) bootstrap."""
    n = len(figures)
    if n == 0:
        return undefined("no images")
    value = float(figures.mean())
    if n == 1:
        return Estimate(value, n, reason=_ONE_IMAGE)
    strata = np.zeros(n, np.int64) if strata is None else strata
    sizes = np.bincount(strata)
    centres = np.bincount(strata, figures) / np.maximum(sizes, 1)
    spread = float(((figures - centres[strata]) ** 2).sum())
    half = quantile_of_normal(level) * math.sqrt(spread) / n
    return Estimate(value, n, max(least, value - half), min(1.0, value + half))


def check_unit(argument: str, values: Any, length: int | None = None) -> Floats:
    """Numbers from 0 to 1, one per image. (What exceeds 1 by rounding is 1.)"""
    array = _array(argument, values, 1)
    if length is not None and len(array) != length:
        raise FairTTAError(
            f"`{argument}` should be as long as `y_true`, {length} (got {len(array)})."
        )
    if not np.all((array >= -1e-5) & (array <= 1 + 1e-5)):
        raise FairTTAError(f"`{argument}` should lie between 0 and 1.")
    return np.clip(array, 0.0, 1.0)


def _entropies(probabilities: Any, entropies: Any) -> Floats:
    if (probabilities is None) == (entropies is None):
        raise FairTTAError("pass either `probabilities` or `entropies`.")
    if entropies is not None:
        return check_unit("entropies", entropies)
    return normalised_entropies(probabilities)


def _array(argument: str, values: Any, dimensions: int) -> Floats:
    if hasattr(values, "detach"):  # a tensor, perhaps on a GPU or in half precision
        values = values.detach().double().cpu().numpy()
    try:
        array = np.asarray(values if dimensions > 1 else _plain(argument, values), np.float64)
    except (TypeError, ValueError):
        raise FairTTAError(f"`{argument}` should be numbers.") from None
    if array.ndim != dimensions:
        raise FairTTAError(
            f"`{argument}` should have {dimensions} dimensions (got {array.ndim})."
            if dimensions > 1
            else f"`{argument}` should have one dimension (got {array.ndim})."
        )
    return array


def _plain(argument: str, values: Any) -> Any:
    return values if hasattr(values, "dtype") else read_column(argument, values)
