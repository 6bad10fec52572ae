"""PartialProjection: prompts and images keep a balanced part of the difference between groups."""

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
    """Takes from prompts and images about 62 % of their part between the groups' prototypes.

    A group's prototype is the mean over the classes of the joint prompts with its value; A is the
    span of the prototypes' differences, of all attributes together. Of a unit vector e let n be the
    length of its part in A and o that of the rest. The part becomes as long as

    ``a = (E - o sqrt(E^2 - n^2)) / (E^2 + o^2)`` with ``E = n + (1 - o) / n``,

    the rest ``sqrt(1 - a^2)``. That is where the share a / n that stays equals the share of
    similarity to e that is given up, of what a projection onto the rest would give up:
    ``(1 - <e, e'>) / (1 - o) = a / n``. Of a short part (3 - sqrt 5) / 2 = 38 % stays. A vector
    without a part in A stays as it is. Where the image or a class is within A, so that its rest is
    rounding, the answer is zero-shot's. Both the target prompts and the image are treated so.
    Nothing is tuned and one view is enough.

    Lian et al., arXiv 2603.12998, who give it no short name; this one is ours.
    ``FairTPT() >> PartialProjection()`` takes prototypes and classes from the tuned prompts.

    Differences from the reference implementation: written after the formula alone. Prototypes come
    from your joint prompts, one for each class and value, in place of lists of variants; E is
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
        prepared = task.remember(
            self, lambda: _prepared(task, original_text_features(task))
        )
        return _answer(task, features, *prepared)

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        return _answer(task, features, *_prepared(task, texts))


def balance_part(e: Tensor, directions: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return unit vectors with a balanced part in a span, and which stay because they are in it.

    Args:
        e: ``[..., n, dim]`` unit vectors.
        directions: ``[..., k, dim]``, whose rows span A.
        floor: how long a rest is more than rounding.
    """
    within = project_onto(e, directions)
    rest = to_cpu_float64(e) - within
    n2 = within.square().sum(-1, keepdim=True)
    o = rest.norm(dim=-1, keepdim=True)
    # E / n = 1 + (1 - o) / n^2, where 1 - o = n^2 / (1 + o)
    ratio = (2 + o) / (1 + o)
    kept = (ratio - o * (ratio.square() - 1).sqrt()) / (
        n2 * ratio.square() + o.square()
    )
    longer = (1 - kept.square() * n2).clamp(min=0).sqrt() / o.clamp(min=floor)
    balanced = torch.where(o > floor, kept * within + longer * rest, within).to(e)
    return balanced, is_rounding(rest, e, floor).to(e.device)


def _prepared(task: Task, texts: TextFeatures) -> tuple[Tensor, Tensor, Tensor]:
    """The directions, the target features, balanced, and which of those are in their span."""
    differences = []
    for attribute in task.sensitive:
        prototypes = (
            texts.joint(attribute).unflatten(-2, (len(task.targets), -1)).mean(-3)
        )
        differences.append(prototypes[..., 1:, :] - prototypes[..., :1, :])
    directions = torch.cat(differences, -2)
    return directions, *balance_part(texts.target, directions, task.text_floor)


def _answer(
    task: Task, features: Tensor, directions: Tensor, target: Tensor, lost: Tensor
) -> Outcome:
    image, lost_image = balance_part(features[:, :1], directions, task.image_floor)
    found = probabilities(task, image, target)
    return fall_back_to_zero_shot(
        task, features, found, {CLASS_LOST: lost, IMAGE_LOST: lost_image}
    )
