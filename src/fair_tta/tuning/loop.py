"""The one loop that all prompt-tuning methods share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.text.task import Task
from fair_tta.tuning.directions import Aggregated, Direction, combine
from fair_tta.tuning.entropy import most_confident
from fair_tta.tuning.gradients import all_gradients, term_gradient
from fair_tta.tuning.objectives import Loss, objective_of
from fair_tta.tuning.rates import RatePolicy


@dataclass(frozen=True)
class Tuned:
    """Contexts fitted to images.

    Attributes:
        context: ``[images, copies * vectors, width]``
        copies: 1, or one per target.
        learning_rate: ``[images]``
        relative_step: ``[images]``, how far the context moved in all steps, relative to its norm.
        kept: how many views were used.
        notes: for each image what the user should know.
    """

    context: Tensor
    copies: int
    learning_rate: Tensor
    relative_step: Tensor
    kept: int
    notes: list[tuple[str, ...]]


def tune(
    task: Task,
    views: Tensor,
    *,
    loss: Loss,
    direction: Direction | Aggregated,
    rate: RatePolicy,
    rho: float,
    steps: int,
) -> Tuned:
    """Fit the context to each image on its own.

    Args:
        task: the text side.
        views: ``[images, views, dim]`` unit features; view 0 is the image itself.
        loss: what is minimised.
        direction: how the terms' gradients become one.
        rate: how far to step.
        rho: the fraction of views to keep, those with the most certain target.
        steps: how often to step.
    """
    objective = objective_of(loss, task)
    log_p = task.log_probabilities(views, task.target_features)
    kept = most_confident(log_p, rho)
    views = views.gather(1, kept.unsqueeze(-1).expand(-1, -1, views.shape[-1]))

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
        context = stepper.step(gradient)
    move = (context.double() - start.double()).flatten(1).norm(dim=1)
    return Tuned(
        context,
        objective.copies,
        torch.zeros(len(views)) if stepper is None else stepper.rate,
        move / start.double().flatten(1).norm(dim=1),
        kept.shape[1],
        [()] * len(views) if stepper is None else stepper.notes,
    )
