"""The one loop that all prompt-tuning methods share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial

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

    def target_at(points: Tensor) -> Tensor:
        repeated = views.repeat(len(points), 1, 1)
        return _term_gradient(task, target, repeated, points.flatten(0, 1)).view_as(points)

    context, stepper = start, None
    for _ in range(steps):
        key = loss if context is start else None
        gradients = _gradients(task, objective, direction, views, context, key)
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


def _gradients(
    task: Task,
    objective: Objective,
    direction: Direction,
    views: Tensor,
    context: Tensor,
    key: Hashable | None,
) -> Tensor:
    """The gradients of the terms, ``[images, terms, vectors, width]``, the target's in any case.

    At the initial context, `key` is that of what does not depend on the images.
    """
    wanted = [True, *direction.wants(len(objective.terms))[1:]]
    gradients = []
    for i, (term, is_wanted) in enumerate(zip(objective.terms, wanted, strict=True)):
        if not is_wanted:
            gradients.append(torch.zeros_like(context))
        elif key is None:
            gradients.append(_term_gradient(task, term, views, context))
        else:  # the same for all weights and rates
            make = partial(_term_gradient, task, term, views, context, (key, i))
            gradients.append(task.recall((key, i), views, make))
    return torch.stack(gradients, dim=1)


def _term_gradient(
    task: Task, term: Term, views: Tensor, context: Tensor, key: Hashable | None = None
) -> Tensor:
    """The gradient of one term, ``[images, vectors, width]``."""
    tokens = task.count_tokens(term.prompts)  # of one image
    if key is not None and len(views) == 1 and tokens <= TOKENS_AT_ONCE:
        # the features of the initial context do not depend on the image: forward once for all
        leaf, features = task.remember((key, "graph"), lambda: _graph(task, term, context))
        cotangent = _head(task, term, views, features)
        return torch.autograd.grad(features, leaf, cotangent, retain_graph=True)[0]
    if key is None and tokens <= TOKENS_AT_ONCE:
        size = TOKENS_AT_ONCE // tokens
        pairs = zip(views.split(size), context.split(size), strict=True)
        return torch.cat([_whole_gradient(task, term, some, at) for some, at in pairs])
    # First through the small head to the features, then through the text tower part by part.
    if key is None:
        features = task.encode_many(term.prompts, context)
    else:
        features = task.remember(
            (key, "features"), lambda: task.encode_many(term.prompts, context[:1])
        ).expand(len(views), -1, -1)
    return task.pull_back(term.prompts, context, _head(task, term, views, features))


def _whole_gradient(task: Task, term: Term, views: Tensor, context: Tensor) -> Tensor:
    """Forward and back at once."""
    leaf, features = _graph(task, term, context)
    return torch.autograd.grad(features, leaf, _head(task, term, views, features))[0]


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
