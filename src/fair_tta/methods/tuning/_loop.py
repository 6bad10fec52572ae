"""Tuning prompts: the loop that such methods share, its gradients, and the answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn

from fair_tta._linalg import has_float64
from fair_tta.methods._base import (
    FindsTexts,
    Needs,
    Outcome,
    TextFeatures,
    probabilities,
)
from fair_tta.methods.tuning._directions import (
    Aggregator,
    WeightedSum,
    combine,
    needed_terms,
)
from fair_tta.methods.tuning._entropy import check_rho, most_confident
from fair_tta.methods.tuning._losses import (
    Loss,
    PromptLoss,
    objective_of,
    per_target_context,
)
from fair_tta.methods.tuning._rates import Descent, RatePolicy, check_tuning, descend
from fair_tta.prompts._context import concatenate_prompts
from fair_tta.prompts._task import TOKENS_AT_ONCE, Task

_TARGET_ALONE = WeightedSum(0)


def graph_bytes(result: Tensor, weights: Iterable[Tensor]) -> int:
    """Bytes that the graph behind a result keeps alive, but for weights, which are there anyway."""
    found: dict[int, int] = {}
    nodes, seen = [result.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
            for tensor in _saved(node):
                found[tensor.untyped_storage().data_ptr()] = (
                    tensor.untyped_storage().nbytes()
                )
    known = {weight.untyped_storage().data_ptr() for weight in weights}
    return sum(size for place, size in found.items() if place not in known)


@cache
def _saved_names(kind: type) -> list[str]:
    return [name for name in dir(kind) if name.startswith(("_saved_", "saved_tensors"))]


def _saved(node: Any) -> Iterator[Tensor]:
    for name in _saved_names(node.__class__):
        value = None
        with suppress(RuntimeError):  # let go already
            value = getattr(node, name)
        values = value if isinstance(value, tuple) else (value,)
        yield from (tensor for tensor in values if isinstance(tensor, Tensor))


def initial_gradient(
    task: Task, term: PromptLoss, views: Tensor, context: Tensor
) -> Tensor:
    """The gradient of one term where all images have the same context.

    Features do not depend on the image there, so the text tower goes forward once for all.
    """
    key, tokens = (term, context.shape[1]), task._count_tokens(term.prompts)
    if tokens > TOKENS_AT_ONCE:
        features = task.remember(
            ("features", *key), lambda: task.encode_many(term.prompts, context[:1])
        )
        cotangents = _head(task, term, views, features)
        return task._pull_back(term.prompts, context, cotangents)
    leaf, features = task.remember(
        ("graph", *key), lambda: _graph(task, term, context[:1]), partial(_bytes, task)
    )
    cotangents = _head(task, term, views, features)
    size = 8 * TOKENS_AT_ONCE // tokens
    try:
        return torch.cat(
            [_back(leaf, features, some) for some in cotangents.split(size)]
        )
    except Exception:
        # Some operation cannot do many at once; layers of `torch.compile` can go back only once.
        return task._pull_back(term.prompts, context, cotangents)


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


def term_gradient(
    task: Task, term: PromptLoss, views: Tensor, context: Tensor
) -> Tensor:
    """The gradient of one term where each image has a context of its own."""
    tokens = task._count_tokens(term.prompts)
    if tokens > TOKENS_AT_ONCE:
        # First through the small head to the features, then through the text tower part by part.
        features = task.encode_many(term.prompts, context)
        return task._pull_back(
            term.prompts, context, _head(task, term, views, features)
        )
    size = TOKENS_AT_ONCE // tokens
    gradients: list[Tensor] = []
    for some, at in zip(views.split(size), context.split(size), strict=True):
        leaf, features = _graph(task, term, at)
        gradients += torch.autograd.grad(
            features, leaf, _head(task, term, some, features)
        )
    return torch.cat(gradients)


def _graph(task: Task, term: PromptLoss, context: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = context.clone().requires_grad_()
        return leaf, task.encode(term.prompts, leaf)


def _bytes(task: Task, graph: tuple[Tensor, Tensor]) -> int:
    model = getattr(task.backend, "model", None)
    return graph_bytes(
        graph[1], model.parameters() if isinstance(model, nn.Module) else ()
    )


def _head(task: Task, term: PromptLoss, views: Tensor, features: Tensor) -> Tensor:
    """Return the gradient of the loss with respect to each image's features of the prompts.

    It is computed in float64: at the temperature of a real CLIP probabilities are so close to 0 and
    1 that in float32 the gradient of their entropy loses all digits, and ELRA divides by it.
    """
    dtype = torch.float64 if has_float64(views.device) else features.dtype
    with torch.enable_grad():
        leaf = (
            features.detach()
            .expand(len(views), -1, -1)
            .to(dtype, copy=True)
            .requires_grad_()
        )
        loss = term.loss(task, views.to(dtype), leaf).sum()
    return torch.autograd.grad(loss, leaf)[0].to(features.dtype)


def confident_views(task: Task, views: Tensor, rho: float) -> Tensor:
    """The fraction of the views of each image with the most certain target.

    ``[images, views, dim] -> [images, kept, dim]``
    """
    kept = most_confident(task.log_probabilities(views, task.target_features), rho)
    return views.take_along_dim(kept.unsqueeze(-1), 1)


def tune(
    task: Task,
    views: Tensor,
    *,
    loss: Loss,
    rate: RatePolicy,
    steps: int,
    aggregator: Aggregator = _TARGET_ALONE,
) -> Descent:
    """Fit the context to each image on its own: ``[images, copies * vectors, width]``.

    Args:
        task: the text side.
        views: ``[images, views, dim]`` unit features of the images that the loss looks at.
        loss: what is minimised.
        rate: how far to step.
        steps: how often to step.
        aggregator: how the terms' gradients become one.
    """
    objective = objective_of(loss, task)
    start = task.context.repeat(objective.copies, 1)
    start = (start if start.dtype == torch.float64 else start.float()).expand(
        len(views), -1, -1
    )
    target = objective.terms[0]

    def gradients(context: Tensor) -> tuple[Tensor, Tensor]:
        """Of the objective and of its target term, whose gradient is needed in any case."""
        wanted = [True, *needed_terms(aggregator, len(objective.terms))[1:]]
        found = []
        for term, is_wanted in zip(objective.terms, wanted, strict=True):
            if not is_wanted:
                found.append(torch.zeros_like(context))
            elif (
                context is start
            ):  # the same for all weights, rates and losses with the term
                make = partial(initial_gradient, task, term, views, context)
                digest = blake2b(views.cpu().numpy().tobytes(), digest_size=16).digest()
                key = "gradient", term, context.shape[1], views.shape, digest
                found.append(task.remember(key, make))
            else:
                found.append(term_gradient(task, term, views, context))
        return combine(aggregator, torch.stack(found, dim=1)), found[0]

    def target_at(points: Tensor) -> Tensor:
        repeated = views.repeat(len(points), 1, 1)
        return term_gradient(task, target, repeated, points.flatten(0, 1)).view_as(
            points
        )

    return descend(rate, steps, start, gradients, target_at)


class PromptTuning(FindsTexts):
    """A method that fits the context and then classifies view 0 with it.

    A subclass is a frozen dataclass with `rate`, `rho` and `steps`; it defines `recipe`.
    """

    needs = Needs(prompt_gradient=True, views=True)
    rate: RatePolicy
    rho: float
    steps: int

    def __post_init__(self) -> None:
        check_rho(self.rho)
        check_tuning(self.rate, self.steps)

    @abstractmethod
    def _recipe(self) -> tuple[Loss, Aggregator]:
        """Return what is minimised, and how several gradients become one."""

    def _check_task(self, task: Task) -> None:
        objective_of(self._recipe()[0], task)

    def find_texts(self, task: Task, features: Tensor) -> tuple[TextFeatures, Outcome]:
        loss, aggregator = self._recipe()
        views = confident_views(task, features, self.rho)
        tuned = tune(
            task,
            views,
            loss=loss,
            aggregator=aggregator,
            rate=self.rate,
            steps=self.steps,
        )
        texts, outcome = tuned_answer(task, features, tuned)
        return texts, replace(outcome, views_kept=views.shape[1])


def tuned_answer(
    task: Task, features: Tensor, tuned: Descent
) -> tuple[TextFeatures, Outcome]:
    """Features of prompts under tuned contexts, and the answer for view 0 with them."""
    target, sensitive = _features(task, tuned, features)
    outcome = Outcome(
        probabilities(task, features, target),
        {a: probabilities(task, features, texts) for a, texts in sensitive.items()},
        learning_rate=tuned.learning_rate,
        relative_step=tuned.relative_step,
        flags=tuned.flags,
    )
    return TextFeatures(
        target, sensitive, lambda attribute: _joint(task, tuned, attribute)
    ), outcome


def _features(
    task: Task, tuned: Descent, features: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Target and sensitive features under tuned contexts, ``[images, k, dim]``.

    With a context per target, each target is scored with its own, and the sensitive attribute
    with that of the answer.
    """
    context, copies = tuned.context, _copies(task, tuned)
    names, sets = list(task.sensitive_prompts), list(task.sensitive_prompts.values())
    if copies == 1:
        prompts = task.remember(
            "all", lambda: concatenate_prompts([task.target_prompts, *sets])
        )
        every = task.encode_many(prompts, context)
        target, *sensitive = every.split([len(task.targets), *map(len, sets)], dim=1)
        return target, dict(zip(names, sensitive, strict=True))
    own = task.remember(
        "own",
        lambda: per_target_context(task.target_prompts, copies, len(task.context)),
    )
    target = task.encode_many(own, context)
    answer = probabilities(task, features, target).nan_to_num().argmax(-1)
    each = context.unflatten(1, (copies, -1))
    context = each[torch.arange(len(answer), device=answer.device), answer]
    return target, {
        a: task.encode_many(p, context) for a, p in zip(names, sets, strict=True)
    }


def _joint(task: Task, tuned: Descent, attribute: str) -> Tensor:
    """Features of joint prompts under tuned contexts, ``[images, targets * values, dim]``."""
    copies = _copies(task, tuned)
    prompts = task.remember(
        ("own", "joint", attribute, copies),
        lambda: per_target_context(
            task.joint_prompts(attribute), copies, len(task.context)
        ),
    )
    return task.encode_many(prompts, tuned.context)


def _copies(task: Task, tuned: Descent) -> int:
    """Of the context: 1, or one per target."""
    return tuned.context.shape[1] // len(task.context)
