"""AssociationCorrection: what the prompts of perceived values add to the classes is taken back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta._linalg import subtract_mean
from fair_tta.methods._base import (
    Needs,
    Outcome,
    Texts,
    UsesTexts,
    check_non_negative,
    softmax,
)
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class AssociationCorrection(UsesTexts):
    """Takes from each image what the prompts of its perceived sensitive values add to the classes.

    ``logit_y = tau <v - strength g d, T_y>`` with ``d = sum_s p_s (z_s - mean z)`` and
    ``g = clip(<v, d> / |d|^2, 0, 1)``: v is the image, T_y the prompt of a class, z_s that of a
    sensitive value and p_s how probable the model finds it. Of d no more is taken than the image
    contains. What several attributes take is added up. Nothing is tuned and one view is enough;
    where the classes' prompts do not lean towards a value, nothing changes.

    A method of this library. ``FairTPT() >> AssociationCorrection()`` takes it from the tuned
    prompts.

    Differences from the reference implementation: none, this is it.

    Args:
        strength: how much of it; 0 is the zero-shot answer.

    Example:
        >>> AssociationCorrection(strength=1.0)
        AssociationCorrection(strength=1.0)
    """

    strength: float = 0.75
    needs = Needs(sensitive=True)

    def __post_init__(self) -> None:
        check_non_negative(self, "strength")

    def adapt_texts(self, task: Task, features: Tensor, texts: Texts) -> Outcome:
        image = features[:, :1]
        logits = task.logits(image, texts.target)
        for values in texts.sensitive.values():
            # All from products with the prompts: nothing of the size of the features is made.
            perceived, z = task.logits(image, values), subtract_mean(values, -2)
            p, tiny = perceived.softmax(-1), torch.finfo(image.dtype).tiny
            along = (p * subtract_mean(perceived, -1)).sum(
                -1, keepdim=True
            ) / task.scale  # <v, d>
            length = (p @ (z @ z.mT) * p).sum(-1, keepdim=True)  # |d|^2
            share = (along / length.clamp(min=tiny)).clamp(0, 1)
            logits = logits - self.strength * share * (p @ task.logits(z, texts.target))
        return Outcome(softmax(logits))
