"""Mean logits by what is perceived, from sums over images, and what is taken from an answer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fair_tta.adapters.association_correction import centred
from fair_tta.adapters.contract import softmax
from fair_tta.text.task import Task


def group_sums(task: Task, features: Tensor) -> dict[str, Tensor]:
    """Of images ``[images, dim]``; sums of several batches add up.

    With w = p(s | image), q = p(y | image) and u the class-centred logits,
    ``weights.ATTRIBUTE`` is the sum of w q, ``[values, targets]``, and ``logits.ATTRIBUTE`` that of
    w q u, ``[values, targets, targets]``.
    """
    u = centred(task.logits(features, task.target_features.to(features)), -1)
    q = u.softmax(-1)
    sums = {}
    for name, values in task.sensitive_features.items():
        w = task.logits(features, values.to(features)).softmax(-1)
        sums[f"weights.{name}"] = torch.einsum("ns,ny->sy", w, q)
        sums[f"logits.{name}"] = torch.einsum("ns,ny,nc->syc", w, q, u)
    return sums


def means_of(sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``means.ATTRIBUTE``, the mean logits of the images perceived with a value, each perceived
    class counting the same, ``[values, targets]``, and ``shares.ATTRIBUTE``, ``[values]``.
    """
    tiny = torch.finfo(torch.float64).tiny
    found = {}
    for name in (key.removeprefix("weights.") for key in sums if key.startswith("weights.")):
        weights, logits = sums[f"weights.{name}"], sums[f"logits.{name}"]
        found[f"means.{name}"] = (logits / weights[..., None].clamp(min=tiny)).mean(1)
        found[f"shares.{name}"] = weights.sum(1) / weights.sum()
    return found


def balanced_answers(task: Task, features: Tensor, tables: Mapping[str, Tensor]) -> Tensor:
    """Probabilities ``[images, targets]`` of view 0 without what perceived values add.

    Args:
        task: the text side.
        features: ``[images, views, dim]``
        tables: ``{attribute: [values, targets]}``, what each value adds.
    """
    image = features[:, :1]
    logits = task.logits(image, task.target_features)
    for name, values in task.sensitive_features.items():
        logits = logits - task.logits(image, values).softmax(-1) @ tables[name]
    return softmax(logits)
