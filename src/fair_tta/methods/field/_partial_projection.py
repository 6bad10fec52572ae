"""PartialProjection: shortens what prompts and images have in common with group differences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta._linalg import is_rounding, project_onto, to_cpu_float64
from fair_tta.methods._base import (
    CLASS_LOST,
    IMAGE_LOST,
    Needs,
    Outcome,
    TextFeatures,
    UsesTexts,
    fall_back_to_zero_shot,
    original_text_features,
    probabilities,
)
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class PartialProjection(UsesTexts):
    """Remove about 62 % of the part of prompts and images between the groups' prototypes.

    A group's prototype is the mean over the classes of the joint prompts with its value; A is the
    span of the prototypes' differences, of all attributes together. For a unit vector e let n be
    the length of its part in A and o that of the rest. The part gets the length

    ``a = (E - o sqrt(E^2 - n^2)) / (E^2 + o^2)`` with ``E = n + (1 - o) / n``,

    and the rest ``sqrt(1 - a^2)``. There the kept share of the part, a / n, equals the share of
    similarity to e that is lost, relative to the loss of a full projection onto the rest:
    ``(1 - <e, e'>) / (1 - o) = a / n``. Of a short part (3 - sqrt 5) / 2 = 38 % is kept. A vector
    without a part in A is unchanged. Where the image or a class is within A, so that its rest is
    rounding, the answer is zero-shot's. Both the target prompts and the image are changed in this
    way. Nothing is tuned and one view is enough.

    Lian et al., arXiv 2603.12998, who give it no short name; this name is ours.
    ``FairTPT() >> PartialProjection()`` takes prototypes and classes from the tuned prompts.

    Differences from the reference implementation: written from the formula alone. Prototypes come
    from your joint prompts, one for each class and value, instead of lists of variants; E is
    rearranged so that no difference of nearly equal numbers is divided by n.

    Example:
        >>> PartialProjection()
        PartialProjection()
    """

    needs = Needs(sensitive=True)

    def _check_task(self, task: Task) -> None:
        for attribute in task.sensitive:
            task.joint_prompts(attribute)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        directions_and_texts = task.remember(
            self, lambda: _balance_texts(task, original_text_features(task))
        )
        return _balance_and_compare(task, features, *directions_and_texts)

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        return _balance_and_compare(task, features, *_balance_texts(task, texts))


def balance_part(e: Tensor, directions: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return unit vectors with a balanced part in a span, and which lie within it.

    Args:
        e: ``[..., n, dim]`` unit vectors.
        directions: ``[..., k, dim]``, whose rows span A.
        floor: the shortest rest that is more than rounding.
    """
    # In float64 on the CPU: the rest of a vector close to A has few digits left in float32.
    part = project_onto(e, directions)
    rest = to_cpu_float64(e) - part
    n2 = part.square().sum(-1, keepdim=True)
    o = rest.norm(dim=-1, keepdim=True)
    # E / n = 1 + (1 - o) / n^2, where 1 - o = n^2 / (1 + o).
    ratio = (2 + o) / (1 + o)
    numerator = ratio - o * (ratio.square() - 1).sqrt()
    kept_share = numerator / (n2 * ratio.square() + o.square())  # a / n
    rest_length = (1 - kept_share.square() * n2).clamp(min=0).sqrt()
    stretch = rest_length / o.clamp(min=floor)
    balanced = torch.where(o > floor, kept_share * part + stretch * rest, part).to(e)
    return balanced, is_rounding(rest, e, floor).to(e.device)


def _balance_texts(task: Task, texts: TextFeatures) -> tuple[Tensor, Tensor, Tensor]:
    """Return the directions, the balanced target features, and which are in their span."""
    differences = []
    for attribute in task.sensitive:
        by_target = texts.joint(attribute).unflatten(-2, (len(task.targets), -1))
        prototypes = by_target.mean(-3)
        # Differences to the first value span all differences between values.
        differences.append(prototypes[..., 1:, :] - prototypes[..., :1, :])
    directions = torch.cat(differences, -2)
    target, is_lost = balance_part(texts.target, directions, task.text_floor)
    return directions, target, is_lost


def _balance_and_compare(
    task: Task,
    features: Tensor,
    directions: Tensor,
    target: Tensor,
    is_class_lost: Tensor,
) -> Outcome:
    image, is_image_lost = balance_part(features[:, :1], directions, task.image_floor)
    return fall_back_to_zero_shot(
        task,
        features,
        probabilities(task, image, target),
        {CLASS_LOST: is_class_lost, IMAGE_LOST: is_image_lost},
    )
