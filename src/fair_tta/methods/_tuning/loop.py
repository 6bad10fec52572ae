"""The loop that all prompt-tuning methods share, and its gradients."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn

from fair_tta._linalg import length_and_direction, wide
from fair_tta._prompts.task import TOKENS_AT_ONCE, Task
from fair_tta.methods._tuning.directions import Aggregated, Direction, combine
from fair_tta.methods._tuning.entropy import most_confident
from fair_tta.methods._tuning.losses import Loss, Objective, PromptLoss, objective_of
from fair_tta.methods._tuning.rates import RatePolicy, check_context, check_stepper


def graph_bytes(result: Tensor, weights: Iterable[Tensor]) -> int:
    """Bytes that the graph behind a result keeps alive.

    Args:
        result: of a computation that autograd has noted.
        weights: tensors that are there anyway.
    """
    found: dict[int, int] = {}
    names: dict[type, list[str]] = {}  # `dir` is slow, and a tower has few kinds of nodes
    nodes, seen = [result.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
            kind = type(node)
            if kind not in names:
                names[kind] = [n for n in dir(node) if n.startswith(("_saved_", "saved_tensors"))]
            for storage in map(_storage, _saved(node, names[kind])):
                found[storage.data_ptr()] = storage.nbytes()
    known = {_storage(weight).data_ptr() for weight in weights}
    return sum(size for place, size in found.items() if place not in known)


def _saved(node: Any, names: list[str]) -> Iterator[Tensor]:
    for name in names:
        value = None
        with suppress(RuntimeError):  # let go already
            value = getattr(node, name)
        values = value if isinstance(value, tuple) else (value,)
        yield from (tensor for tensor in values if isinstance(tensor, Tensor))


def _storage(tensor: Tensor) -> Any:
    return tensor.untyped_storage()


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
    key, tokens = (term, context.shape[1]), task.count_tokens(term.prompts)
    if tokens > TOKENS_AT_ONCE:
        features = task.remember(
            ("features", *key), lambda: task.encode_many(term.prompts, context[:1])
        )
        cotangents = _head(task, term, views, features)
        return task.pull_back(term.prompts, context, cotangents)
    leaf, features = task.remember(
        ("graph", *key), lambda: _graph(task, term, context[:1]), partial(_bytes, task)
    )
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


def term_gradient(task: Task, term: PromptLoss, views: Tensor, context: Tensor) -> Tensor:
    """The gradient of one term where each image has a context of its own."""
    tokens = task.count_tokens(term.prompts)
    if tokens <= TOKENS_AT_ONCE:
        size = TOKENS_AT_ONCE // tokens
        pairs = zip(views.split(size), context.split(size), strict=True)
        return torch.cat([_whole_gradient(task, term, some, at) for some, at in pairs])
    # First through the small head to the features, then through the text tower part by part.
    features = task.encode_many(term.prompts, context)
    return task.pull_back(term.prompts, context, _head(task, term, views, features))


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
        views: ``[images, views, dim]`` unit features of the images that the loss looks at.
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
