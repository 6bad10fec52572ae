"""What our fitted methods share: logits by perceived attribute value, and offsets of them.

Shapes: class logits are ``[images, targets]``, attribute logits ``[images, values]`` and offsets,
which are subtracted for each perceived value, ``[values, targets]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fair_tta._linalg import subtract_mean
from fair_tta.prompts._task import Task

GroupLogits = tuple[Tensor, dict[str, Tensor]]
"""Class logits, and attribute logits by attribute, of some images."""


def group_logits(task: Task, features: Tensor) -> GroupLogits:
    """The logits of images from their features, ``[..., dim]``."""
    values = {name: z.to(features) for name, z in task.sensitive_features.items()}
    target = task.logits(features, task.target_features.to(features))
    return target, {name: task.logits(features, z) for name, z in values.items()}


def mean_logits(batches: Iterable[GroupLogits]) -> dict[str, Tensor]:
    """``means.ATTRIBUTE``, the mean of the centred class logits of images of each perceived value,
    every perceived class counting the same; ``shares.ATTRIBUTE``, the shares of the values."""
    weights: dict[str, Any] = {}  # sums of w q
    logits: dict[str, Any] = {}  # sums of w q u
    for target, attributes in batches:
        u = subtract_mean(target, -1)
        q = u.softmax(-1)
        for name, values in attributes.items():
            w = values.softmax(-1)
            weights[name] = weights.get(name, 0) + torch.einsum("ns,ny->sy", w, q)
            logits[name] = logits.get(name, 0) + torch.einsum("ns,ny,nc->syc", w, q, u)
    learnt, tiny = {}, torch.finfo(torch.float64).tiny
    for name, total in weights.items():
        learnt[f"means.{name}"] = (
            logits[name] / total[..., None].clamp(min=tiny)
        ).mean(1)
        learnt[f"shares.{name}"] = total.sum(1) / total.sum()
    return learnt


def balancing_offsets(
    learnt: Mapping[str, Tensor],
    name: str,
    strength: float = 1.5,
    keep_prior: float = 1.0,
) -> Tensor:
    """Those of `LogitBalance` for an attribute, from `mean_logits`."""
    means, shares = learnt[f"means.{name}"], learnt[f"shares.{name}"]
    offsets: Tensor = strength * (means - keep_prior * shares @ means)
    return offsets


def subtract(logits: GroupLogits, offsets: Mapping[str, Tensor]) -> Tensor:
    """Class logits minus the offsets of the perceived values."""
    target, values = logits
    for name, taken in offsets.items():
        target = target - values[name].softmax(-1) @ taken
    return target
