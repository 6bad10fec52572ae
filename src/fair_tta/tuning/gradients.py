"""Gradients of the terms of a loss with respect to the context."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from hashlib import blake2b

import torch
from torch import Tensor, nn

from fair_tta.text.encoder import TOKENS_AT_ONCE
from fair_tta.text.task import Task
from fair_tta.tuning.directions import Aggregated, Direction
from fair_tta.tuning.graphs import graph_bytes
from fair_tta.tuning.objectives import Objective, PromptLoss


def all_gradients(
    task: Task,
    objective: Objective,
    direction: Direction | Aggregated,
    views: Tensor,
    context: Tensor,
    is_initial: bool,
) -> Tensor:
    """The gradients of the terms, ``[images, terms, vectors, width]``, the target's in any case."""
    images = _content(views) if is_initial else None
    wanted = [True, *direction.wants(len(objective.terms))[1:]]
    gradients = []
    for term, is_wanted in zip(objective.terms, wanted, strict=True):
        if not is_wanted:
            gradients.append(torch.zeros_like(context))
        elif is_initial:  # the same for all weights and rates, and for losses that share the term
            make = partial(initial_gradient, task, term, views, context)
            key = "gradient", term, context.shape[1], images
            gradients.append(task.remember(key, make))
        else:
            gradients.append(term_gradient(task, term, views, context))
    return torch.stack(gradients, dim=1)


def initial_gradient(task: Task, term: PromptLoss, views: Tensor, context: Tensor) -> Tensor:
    """The gradient of one term where all images have the same context.

    Features do not depend on the image there, so the text tower goes forward once for all.
    """
    key, tokens = (term, context.shape[1]), task.encoder.count_tokens(term.prompts)
    if tokens > TOKENS_AT_ONCE:
        features = task.remember(
            ("features", *key), lambda: task.encode_many(term.prompts, context[:1])
        )
        cotangents = _head(task, term, views, features)
        return task.encoder.pull_back(term.prompts, context, cotangents)
    leaf, features = task.remember(
        ("graph", *key), lambda: _graph(task, term, context[:1]), partial(_bytes, task)
    )
    cotangents = _head(task, term, views, features)
    size = 8 * TOKENS_AT_ONCE // tokens
    try:
        return torch.cat([_back(leaf, features, some) for some in cotangents.split(size)])
    except Exception:
        # Some operation cannot do many at once; layers of `torch.compile` can go back only once.
        return task.encoder.pull_back(term.prompts, context, cotangents)


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


def term_gradient(task: Task, term: PromptLoss, views: Tensor, context: Tensor) -> Tensor:
    """The gradient of one term where each image has a context of its own."""
    tokens = task.encoder.count_tokens(term.prompts)
    if tokens <= TOKENS_AT_ONCE:
        size = TOKENS_AT_ONCE // tokens
        pairs = zip(views.split(size), context.split(size), strict=True)
        return torch.cat([_whole_gradient(task, term, some, at) for some, at in pairs])
    # First through the small head to the features, then through the text tower part by part.
    features = task.encode_many(term.prompts, context)
    return task.encoder.pull_back(term.prompts, context, _head(task, term, views, features))


def _whole_gradient(task: Task, term: PromptLoss, views: Tensor, context: Tensor) -> Tensor:
    """Forward and back at once."""
    leaf, features = _graph(task, term, context)
    return torch.autograd.grad(features, leaf, _head(task, term, views, features))[0]


def _graph(task: Task, term: PromptLoss, context: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = context.clone().requires_grad_()
        return leaf, task.encode(term.prompts, leaf)


def _bytes(task: Task, graph: tuple[Tensor, Tensor]) -> int:
    model = getattr(task.backend, "model", None)
    return graph_bytes(graph[1], model.parameters() if isinstance(model, nn.Module) else ())


def _content(views: Tensor) -> Hashable:
    """The same for the very same views only."""
    return views.shape, blake2b(views.cpu().numpy().tobytes(), digest_size=16).digest()


def _head(task: Task, term: PromptLoss, views: Tensor, features: Tensor) -> Tensor:
    """The gradient of the loss with respect to each image's features of the prompts."""
    with torch.enable_grad():
        features = features.detach().expand(len(views), -1, -1).clone().requires_grad_()
        loss = term.loss(task, views, features).sum()
    return torch.autograd.grad(loss, features)[0]
