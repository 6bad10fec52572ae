"""Arrays of numbers that users pass: probabilities, entropies and other scores of images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._columns import check_length
from fair_tta.metrics._types import Floats

# By how much a sum of rounded probabilities may miss 1, and a rounded score may leave [0, 1].
_SUM_TOLERANCE = 1e-3
_SCORE_TOLERANCE = 1e-5


def read_array(
    argument: str, values: Any, dimensions: int, length: int | None = None
) -> Floats:
    """Return numbers in float64, one or more per image; None becomes NaN."""
    if hasattr(values, "detach"):  # a tensor, perhaps on a GPU or in half precision
        values = values.detach().double().cpu().numpy()
    elif isinstance(values, list | tuple | Iterator):  # perhaps of tensors
        values = [
            number.tolist() if hasattr(number, "tolist") else number
            for number in values
        ]
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise FairTTAError(
            f"`{argument}` should be numbers.", argument=argument
        ) from None
    if array.ndim != dimensions:
        expected = "one dimension" if dimensions == 1 else f"{dimensions} dimensions"
        raise FairTTAError(
            f"`{argument}` should have {expected} (got {array.ndim}).",
            argument=argument,
        )
    if length is not None:
        check_length(argument, array, length)
    return array


def read_probabilities(argument: str, values: Any, length: int | None = None) -> Floats:
    """Return probabilities ``[images, names]`` of at least two names."""
    probabilities = read_array(argument, values, 2, length)
    names = probabilities.shape[1]
    if names < 2:
        raise FairTTAError(
            f"`{argument}` should have two columns or more (got {names}).",
            argument=argument,
        )
    is_positive = np.all(probabilities >= 0)
    if not (is_positive and np.allclose(probabilities.sum(1), 1, atol=_SUM_TOLERANCE)):
        raise FairTTAError(
            f"`{argument}` should be >= 0 and sum to 1 in each row.", argument=argument
        )
    return probabilities


def read_unit_scores(argument: str, values: Any, length: int | None = None) -> Floats:
    """Return numbers in [0, 1], one per image; rounding beyond the ends is cut off."""
    scores = read_array(argument, values, 1, length)
    if not np.all((scores >= -_SCORE_TOLERANCE) & (scores <= 1 + _SCORE_TOLERANCE)):
        raise FairTTAError(
            f"`{argument}` should lie between 0 and 1.", argument=argument
        )
    return np.clip(scores, 0.0, 1.0)


def read_entropies(probabilities: Any, entropies: Any) -> Floats:
    """Return normalised entropies ``[images]`` from either argument."""
    if (probabilities is None) == (entropies is None):
        raise FairTTAError(
            "pass either `probabilities` or `entropies`.", argument="probabilities"
        )
    if entropies is not None:
        return read_unit_scores("entropies", entropies)
    return normalised_entropies(probabilities)


def normalised_entropies(probabilities: Any) -> Floats:
    """Return ``-sum_k p_k log p_k / log K`` of each row, ``[images, K] -> [images]``, in [0, 1]."""
    p = read_probabilities("probabilities", probabilities)
    logs = np.log(np.where(p > 0, p, 1.0))
    entropies: Floats = -(p * logs).sum(1) / math.log(p.shape[1])
    return np.clip(entropies, 0.0, 1.0)
