"""The one loop that all prompt-tuning methods share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.directions import Direction, combine
from fair_tta.entropy import most_confident
from fair_tta.learning_rate import RatePolicy
from fair_tta.objectives import Loss, Objective, Term
from fair_tta.task import TOKENS_AT_ONCE, Task


@dataclass(frozen=True)
class Tuned:
    """Contexts fitted to images.

    Attributes:
        context: ``[images, copies * vectors, width]``
        copies: 1, or one per target.
        learning_rate: ``[images]``
        relative_step: ``[images]``, how far the context moved, relative to its norm.
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
    direction: Direction,
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
    objective = task.remember((loss, "objective"), lambda: loss.objective(task))
    log_p = task.log_probabilities(views, task.target_features)
    kept = most_confident(log_p, rho)
    views = views.gather(1, kept.unsqueeze(-1).expand(-1, -1, views.shape[-1]))

    start = task.context.repeat(objective.copies, 1)
    start = (start if start.dtype == torch.float64 else start.float()).expand(len(views), -1, -1)
    target = objective.terms[0]

    def target_gradient(points: Tensor) -> Tensor:
        repeated = views.repeat(len(points), 1, 1)
        return _term_gradient(task, target, repeated, points.flatten(0, 1), None).view_as(points)

    context, stepper = start, None
    for _ in range(steps):
        cache = loss if context is start else None
        gradient = _gradient(task, objective, direction, views, context, cache)
        if stepper is None:
            stepper = rate.start(start, gradient, target_gradient)
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


def _gradient(
    task: Task,
    objective: Objective,
    direction: Direction,
    views: Tensor,
    context: Tensor,
    cache: Hashable | None,
) -> Tensor:
    """The direction of descent of each image, ``[images, vectors, width]``.

    At the initial context, `cache` is the key of what does not depend on the images.
    """
    wanted = direction.wants(len(objective.terms))
    gradients = [
        _term_gradient(task, term, views, context, None if cache is None else (cache, i))
        if is_wanted
        else torch.zeros_like(context)
        for i, (term, is_wanted) in enumerate(zip(objective.terms, wanted, strict=True))
    ]
    return combine(direction, torch.stack(gradients, dim=1))


def _term_gradient(
    task: Task, term: Term, views: Tensor, context: Tensor, cache: Hashable | None
) -> Tensor:
    """First through the small head to the features, then through the text tower."""
    few = len(term.prompts) * term.prompts.tokens.ids.shape[1] <= 8 * TOKENS_AT_ONCE
    if cache is not None and len(views) == 1 and few:
        leaf, features = task.remember((cache, "graph"), lambda: _graph(task, term, context))
        cotangent = _head(task, term, views, features.detach())
        return torch.autograd.grad(features, leaf, cotangent, retain_graph=True)[0]
    if cache is not None:
        features = task.remember(
            (cache, "features"), lambda: task.encode_many(term.prompts, context[:1])
        ).expand(len(views), -1, -1)
    else:
        features = task.encode_many(term.prompts, context)
    return task.pull_back(term.prompts, context, _head(task, term, views, features))


def _graph(task: Task, term: Term, context: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = context.clone().requires_grad_()
        return leaf, task.encode(term.prompts, leaf)


def _head(task: Task, term: Term, views: Tensor, features: Tensor) -> Tensor:
    """The gradient of the loss with respect to the prompts' features."""
    with torch.enable_grad():
        features = features.detach().clone().requires_grad_()
        loss = term.loss(task, views, features).sum()
    return torch.autograd.grad(loss, features)[0]
