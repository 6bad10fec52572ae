"""One gradient from the gradients of several loss terms, for each image on its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fair_tta._linalg import describe_shape, to_cpu_float64
from fair_tta.errors import FairTTAError

Aggregator: TypeAlias = (
    Callable[[Tensor], Tensor] | tuple[Callable[[Tensor], Tensor], Literal["gramian"]]
)
"""A function of the gradients of one image, ``[terms, numbers] -> [numbers]``, the target's first.

Or a function of their inner products and the word "gramian": ``[terms, terms] -> [terms]`` are then
the weights of the terms.
"""


@dataclass(frozen=True)
class WeightedSum:
    """``1/(1+lam)`` of the target's gradient and ``lam/(1+lam)`` of each other one.

    Args:
        lam: from 0 (target alone) to infinity (the others alone).
    """

    lam: float

    def weights(self, terms: int) -> list[float]:
        """Return the weights of the terms; a single term has the weight 1."""
        weights = preference(self.lam, terms)
        # 1 + lam: each further term is added with the weight of a single one.
        total = sum(weights[:2])
        return [weight / total for weight in weights]

    def __call__(self, gradients: Tensor) -> Tensor:
        weights = gradients.new_tensor(self.weights(len(gradients)))
        return weights @ gradients


def preference(lam: float, terms: int) -> list[float]:
    """Return 1 for the target, and `lam` for each other term."""
    if terms == 1:
        return [1.0]
    of_target = 0.0 if math.isinf(lam) else 1.0
    of_rest = 1.0 if math.isinf(lam) else lam
    return [of_target] + [of_rest] * (terms - 1)


def needed_terms(aggregator: Aggregator, terms: int) -> list[bool]:
    """Return for each term if its gradient matters; those without weight need not be computed."""
    if isinstance(aggregator, WeightedSum):
        return [weight > 0 for weight in aggregator.weights(terms)]
    return [True] * terms


def check_aggregator(aggregator: Any) -> None:
    """Raise an error for what `combine` cannot call."""
    function = aggregator
    if (
        isinstance(aggregator, tuple)
        and len(aggregator) == 2
        and aggregator[1] == "gramian"
    ):
        function = aggregator[0]
    if not callable(function) or isinstance(function, type):
        raise FairTTAError(
            "`aggregator` should be an aggregator of TorchJD such as MGDA(), a weighting of "
            'Gramians such as (MGDAWeighting(), "gramian"), or a function of a matrix of '
            f"gradients (got {aggregator!r}).",
            argument="aggregator",
        )


def combine(aggregator: Aggregator, gradients: Tensor) -> Tensor:
    """Aggregate the gradients of each image.

    ``[images, terms, vectors, width] -> [images, vectors, width]``
    """
    matrices = to_cpu_float64(gradients.flatten(2))
    combined = torch.stack(
        [_combine_one_image(aggregator, matrix) for matrix in matrices]
    )
    return combined.to(gradients).view_as(gradients[:, 0])


def _combine_one_image(aggregator: Aggregator, gradients: Tensor) -> Tensor:
    """Aggregate ``[terms, numbers] -> [numbers]``."""
    function = aggregator[0] if isinstance(aggregator, tuple) else aggregator
    # Some of TorchJD's remember earlier calls, but no image may influence another.
    reset = getattr(function, "reset", None)
    if reset is not None:
        reset()
    if not isinstance(aggregator, tuple):
        return _vector_like(function(gradients), gradients[0])
    gramian = gradients @ gradients.T
    return _vector_like(function(gramian), gramian[0]) @ gradients


def _vector_like(vector: Any, like: Tensor) -> Tensor:
    """Return what an aggregator returned, as a vector like another."""
    if describe_shape(vector) != list(like.shape):
        raise FairTTAError(
            f"`aggregator` should return a tensor of shape {list(like.shape)} "
            f"(got {describe_shape(vector)}); pass what weighs the terms by their Gramian as "
            '(weighting, "gramian"), and anything else as a function of their gradients.',
            argument="aggregator",
        )
    checked: Tensor = vector.to(like)
    return checked
