"""The one loop that all prompt-tuning methods share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.text.task import Task
from fair_tta.tuning.directions import Aggregated, Direction, combine
from fair_tta.tuning.entropy import most_confident
from fair_tta.tuning.gradients import all_gradients, term_gradient
from fair_tta.tuning.lengths import length_and_direction, wide
from fair_tta.tuning.objectives import Loss, objective_of
from fair_tta.tuning.rates import RatePolicy, check_context, check_stepper


@dataclass(frozen=True)
class Tuned:
    """Contexts fitted to images.

    Attributes:
        context: ``[images, copies * vectors, width]``
        copies: 1, or one per target.
        learning_rate: ``[images]``
        relative_step: ``[images]``, how far the context moved in all steps, relative to its norm.
        flags: what the user should know, and of which images: ``{sentence: [images]}``.
    """

    context: Tensor
    copies: int
    learning_rate: Tensor
    relative_step: Tensor
    flags: Mapping[str, Tensor]


def confident_views(task: Task, views: Tensor, rho: float) -> Tensor:
    """The views of each image with the most certain target: ``[images, kept, dim]``.

    Args:
        task: the text side.
        views: ``[images, views, dim]``
        rho: the fraction to keep.
    """
    kept = most_confident(task.log_probabilities(views, task.target_features), rho)
    return views.gather(1, kept.unsqueeze(-1).expand(-1, -1, views.shape[-1]))


def tune(
    task: Task,
    views: Tensor,
    *,
    loss: Loss,
    direction: Direction | Aggregated,
    rate: RatePolicy,
    steps: int,
) -> Tuned:
    """Fit the context to each image on its own.

    Args:
        task: the text side.
        views: ``[images, views, dim]`` unit features of the pictures that the loss looks at.
        loss: what is minimised.
        direction: how the terms' gradients become one.
        rate: how far to step.
        steps: how often to step.
    """
    objective = objective_of(loss, task)
    start = task.context.repeat(objective.copies, 1)
    start = (start if start.dtype == torch.float64 else start.float()).expand(len(views), -1, -1)
    target = objective.terms[0]

    def target_at(points: Tensor) -> Tensor:
        repeated = views.repeat(len(points), 1, 1)
        return term_gradient(task, target, repeated, points.flatten(0, 1)).view_as(points)

    context, stepper = start, None
    for _ in range(steps):
        gradients = all_gradients(task, objective, direction, views, context, context is start)
        gradient = combine(direction, gradients)
        if stepper is None:
            stepper = rate.start(start, gradient, gradients[:, 0], target_at)
            check_stepper(rate, stepper, len(views))
        context = stepper.step(gradient)
        check_context(rate, context, start)
    moved, _ = length_and_direction(wide(context) - wide(start))
    size, _ = length_and_direction(start)
    return Tuned(
        context,
        objective.copies,
        torch.zeros_like(size) if stepper is None else stepper.rate,
        moved / size,
        {} if stepper is None else stepper.flags,
    )
