"""The one loop that all prompt-tuning methods share."""

from __future__ import annotations

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
        gradients = _gradients(task, objective, direction, views, context, context is start)
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
    is_initial: bool,
) -> Tensor:
    """The gradients of the terms, ``[images, terms, vectors, width]``, the target's in any case."""
    wanted = [True, *direction.wants(len(objective.terms))[1:]]
    gradients = []
    for term, is_wanted in zip(objective.terms, wanted, strict=True):
        if not is_wanted:
            gradients.append(torch.zeros_like(context))
        elif is_initial:  # the same for all weights and rates, and for losses that share the term
            make = partial(_initial_gradient, task, term, views, context)
            gradients.append(task.recall((term, context.shape[1]), views, make))
        else:
            gradients.append(_term_gradient(task, term, views, context))
    return torch.stack(gradients, dim=1)


def _initial_gradient(task: Task, term: Term, views: Tensor, context: Tensor) -> Tensor:
    """The gradient of one term where all images have the same context.

    Features do not depend on the image there, so the text tower goes forward once for all.
    """
    key, tokens = (term, context.shape[1]), task.count_tokens(term.prompts)
    if tokens > TOKENS_AT_ONCE:
        features = task.remember(
            ("features", *key), lambda: task.encode_many(term.prompts, context[:1])
        )
        cotangents = _head(task, term, views, features)
        return task.pull_back(term.prompts, context, cotangents)
    leaf, features = task.remember(("graph", *key), lambda: _graph(task, term, context[:1]))
    cotangents = _head(task, term, views, features)
    size = 8 * TOKENS_AT_ONCE // tokens
    try:
        return torch.cat([_back(leaf, features, some) for some in cotangents.split(size)])
    except Exception:
        # Some operation cannot do many at once; layers of `torch.compile` can go back only once.
        return task.pull_back(term.prompts, context, cotangents)


def _back(leaf: Tensor, features: Tensor, cotangents: Tensor) -> Tensor:
    """One way back through a graph for many images: ``[images, ...] -> [images, ...]``."""
    many = len(cotangents) > 1
    (gradients,) = torch.autograd.grad(
        features,
        leaf,
        cotangents.unsqueeze(1) if many else cotangents,
        retain_graph=True,
        is_grads_batched=many,
    )
    return gradients.squeeze(1) if many else gradients


def _term_gradient(task: Task, term: Term, views: Tensor, context: Tensor) -> Tensor:
    """The gradient of one term where each image has a context of its own."""
    tokens = task.count_tokens(term.prompts)
    if tokens <= TOKENS_AT_ONCE:
        size = TOKENS_AT_ONCE // tokens
        pairs = zip(views.split(size), context.split(size), strict=True)
        return torch.cat([_whole_gradient(task, term, some, at) for some, at in pairs])
    # First through the small head to the features, then through the text tower part by part.
    features = task.encode_many(term.prompts, context)
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
    """The gradient of the loss with respect to each image's features of the prompts."""
    with torch.enable_grad():
        features = features.detach().expand(len(views), -1, -1).clone().requires_grad_()
        loss = term.loss(task, views, features).sum()
    return torch.autograd.grad(loss, features)[0]
