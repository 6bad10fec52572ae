"""AssociationCorrection: subtracts what prompts of perceived values add to the classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta._linalg import subtract_mean
from fair_tta.methods._base import (
    Needs,
    Outcome,
    TextFeatures,
    UsesTexts,
    check_non_negative,
    softmax,
)
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class AssociationCorrection(UsesTexts):
    """Subtract what the prompts of an image's perceived sensitive values add to the classes.

    ``logit_y = tau <v - strength g d, T_y>`` with ``d = sum_s p_s (z_s - mean z)`` and
    ``g = clip(<v, d> / |d|^2, 0, 1)``: v is the image, T_y the prompt of a class, z_s that of a
    sensitive value and p_s how probable the model finds it. No more of d is subtracted than the
    image contains. The corrections of several attributes are added. Nothing is tuned and one view
    is enough; where the classes' prompts do not lean towards a value, nothing changes.

    A method of this library. ``FairTPT() >> AssociationCorrection()`` subtracts it from the logits
    of the tuned prompts.

    Differences from the reference implementation: none, this is it.

    Args:
        strength: the share that is subtracted; 0 is the zero-shot answer.

    Example:
        >>> AssociationCorrection(strength=1.0)
        AssociationCorrection(strength=1.0)
    """

    strength: float = 0.75
    needs = Needs(sensitive=True)

    def __post_init__(self) -> None:
        check_non_negative(self, "strength")

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        # View 0 is the image itself; one view is enough.
        image = features[:, :1]
        logits = task.logits(image, texts.target)
        for values in texts.sensitive.values():
            # d itself is never made: it has the size of the image features, of which there may be
            # millions, and products with the few prompts give all that is needed.
            value_logits = task.logits(image, values)
            p = value_logits.softmax(-1)
            centred_values = subtract_mean(values, -2)
            image_along_d = (p * subtract_mean(value_logits, -1)).sum(-1, keepdim=True)
            image_along_d = image_along_d / task.scale
            gram = centred_values @ centred_values.mT
            squared_length_of_d = (p @ gram * p).sum(-1, keepdim=True)
            # With d = 0 there is nothing to subtract: 0 / tiny instead of 0 / 0.
            tiny = torch.finfo(image.dtype).tiny
            share = image_along_d / squared_length_of_d.clamp(min=tiny)
            share = share.clamp(0, 1)
            class_logits_of_d = p @ task.logits(centred_values, texts.target)
            logits = logits - self.strength * share * class_logits_of_d
        return Outcome(softmax(logits))
