"""Metrics of what a model says besides its answer: certainty and indifference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics.estimate import Estimate, undefined
from fair_tta.metrics.exact import quantile_of_normal
from fair_tta.metrics.rows import Floats, check_length, read_column


def normalised_entropies(probabilities: Any) -> Floats:
    """``-sum_k p_k log p_k / log K`` of each row, ``[images, K] -> [images]``, from 0 to 1."""
    p = check_probabilities("probabilities", probabilities)
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


def mean(figures: Floats, level: float, least: float = 0.0) -> Estimate:
    """A mean of numbers from `least` to 1, with an interval that is honest for few images.

    Wald's interval after one image was added at either end of the range, as Bonett and Price do
    for answers: what few images did not show may still be there.
    """
    n = len(figures)
    if n == 0:
        return undefined("no images")
    value = float(figures.mean())
    more = np.concatenate([figures, [least, 1.0]])
    half = quantile_of_normal(level) * float(more.std(ddof=1)) / math.sqrt(n + 2)
    low, high = min(value, float(more.mean()) - half), max(value, float(more.mean()) + half)
    return Estimate(value, n, max(least, low), min(1.0, high))


def check_probabilities(argument: str, values: Any) -> Floats:
    """Probabilities ``[images, K]`` of two names or more."""
    p = read_array(argument, values, 2)
    if p.shape[1] < 2:
        raise FairTTAError(f"`{argument}` should have two columns or more (got {p.shape[1]}).")
    if not (np.all(p >= 0) and np.allclose(p.sum(1), 1, atol=1e-3)):
        raise FairTTAError(f"`{argument}` should be from 0 on and sum to 1 in each row.")
    return p


def check_unit(argument: str, values: Any, length: int | None = None) -> Floats:
    """Numbers from 0 to 1, one per image. (What exceeds 1 by rounding is 1.)"""
    array = read_array(argument, values, 1)
    if length is not None:
        check_length(argument, array, length)
    if not np.all((array >= -1e-5) & (array <= 1 + 1e-5)):
        raise FairTTAError(f"`{argument}` should lie between 0 and 1.")
    return np.clip(array, 0.0, 1.0)


def _entropies(probabilities: Any, entropies: Any) -> Floats:
    if (probabilities is None) == (entropies is None):
        raise FairTTAError("pass either `probabilities` or `entropies`.")
    if entropies is not None:
        return check_unit("entropies", entropies)
    return normalised_entropies(probabilities)


def read_array(argument: str, values: Any, dimensions: int) -> Floats:
    """Numbers with so many dimensions."""
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
