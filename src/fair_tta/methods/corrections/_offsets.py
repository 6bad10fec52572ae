"""Logits by perceived attribute value, and offsets of them.

Class logits are ``[..., targets]`` and attribute logits ``[..., values]``, with leading dimensions
``[images]`` or, of view 0, ``[images, 1]``. Offsets, which are subtracted for each perceived value,
are ``[values, targets]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fair_tta._linalg import subtract_mean
from fair_tta.prompts._task import Task

# Class logits of some images, and their attribute logits by attribute.
GroupLogits = tuple[Tensor, dict[str, Tensor]]


def group_logits(task: Task, features: Tensor) -> GroupLogits:
    """Return the logits of images from their features, ``[..., dim]``."""
    class_logits = task.logits(features, task.target_features.to(features))
    attribute_logits = {
        attribute: task.logits(features, value_features.to(features))
        for attribute, value_features in task.sensitive_features.items()
    }
    return class_logits, attribute_logits


def mean_logits(batches: Iterable[GroupLogits]) -> dict[str, Tensor]:
    """Return the mean class logits of images of each perceived value, and the values' shares.

    ``means.ATTRIBUTE`` is ``[values, targets]``, of centred class logits, with every perceived
    class counting the same; ``shares.ATTRIBUTE`` is ``[values]``.
    """
    # Sums over all images, in the notation of `LogitBalance`: of w q, [values, targets], and of
    # w q u, [values, perceived classes, targets].
    weight_sums: dict[str, Any] = {}
    logit_sums: dict[str, Any] = {}
    for class_logits, attribute_logits in batches:
        u = subtract_mean(class_logits, -1)
        q = u.softmax(-1)
        for attribute, logits in attribute_logits.items():
            w = logits.softmax(-1)
            weights = torch.einsum("ns,ny->sy", w, q)
            weighted_logits = torch.einsum("ns,ny,nc->syc", w, q, u)
            weight_sums[attribute] = weight_sums.get(attribute, 0) + weights
            logit_sums[attribute] = logit_sums.get(attribute, 0) + weighted_logits
    learned = {}
    # No image of a value with a class: the mean is 0 / tiny instead of 0 / 0.
    tiny = torch.finfo(torch.float64).tiny
    for attribute, weights in weight_sums.items():
        means = logit_sums[attribute] / weights[..., None].clamp(min=tiny)
        learned[f"means.{attribute}"] = means.mean(1)
        learned[f"shares.{attribute}"] = weights.sum(1) / weights.sum()
    return learned


def balancing_offsets(
    learned: Mapping[str, Tensor],
    attribute: str,
    strength: float = 1.5,
    keep_prior: float = 1.0,
) -> Tensor:
    """Return the offsets of `LogitBalance` for an attribute, from `mean_logits`."""
    means = learned[f"means.{attribute}"]
    overall_preference = learned[f"shares.{attribute}"] @ means
    offsets: Tensor = strength * (means - keep_prior * overall_preference)
    return offsets


def subtract(logits: GroupLogits, offsets: Mapping[str, Tensor]) -> Tensor:
    """Return class logits minus the offsets of the perceived values."""
    class_logits, attribute_logits = logits
    for attribute, value_offsets in offsets.items():
        perceived = attribute_logits[attribute].softmax(-1)
        class_logits = class_logits - perceived @ value_offsets
    return class_logits
