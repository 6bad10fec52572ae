"""The tuning of prompts: gradients of the context, the steps, and the answer under them."""

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
from fair_tta.prompts._task import MORE_WITHOUT_GRADIENT, TOKENS_AT_ONCE, Task

_TARGET_ONLY = WeightedSum(0)


def graph_bytes(result: Tensor, weights: Iterable[Tensor]) -> int:
    """Return how many bytes the graph behind a result keeps alive, besides the weights."""
    size_of_storage: dict[int, int] = {}
    nodes = [result.grad_fn]
    visited = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        nodes += [next_node for next_node, _ in node.next_functions]
        for tensor in _saved_tensors(node):
            storage = tensor.untyped_storage()
            size_of_storage[storage.data_ptr()] = storage.nbytes()
    for weight in weights:
        size_of_storage.pop(weight.untyped_storage().data_ptr(), None)
    return sum(size_of_storage.values())


@cache
def _saved_names(node_type: type) -> list[str]:
    """Return the attributes by which autograd shows what a node has saved."""
    prefixes = ("_saved_", "saved_tensors")
    return [name for name in dir(node_type) if name.startswith(prefixes)]


def _saved_tensors(node: Any) -> Iterator[Tensor]:
    for name in _saved_names(node.__class__):
        saved = None
        with suppress(RuntimeError):  # the graph was freed
            saved = getattr(node, name)
        candidates = saved if isinstance(saved, tuple) else (saved,)
        for candidate in candidates:
            if isinstance(candidate, Tensor):
                yield candidate


def initial_gradient(
    task: Task, term: PromptLoss, views: Tensor, context: Tensor
) -> Tensor:
    """Return the gradient of one term where all images have the same context.

    The features of prompts do not depend on the image there, so the text tower goes forward once
    for all images, and the graph is kept for later ones.

    Args:
        task: the text side.
        term: the loss.
        views: ``[images, kept, dim]``.
        context: ``[images, vectors, width]``, the same for all images.
    """
    key = term, context.shape[1]
    n_tokens = task._count_tokens(term.prompts)

    # A graph of so many tokens would take too much memory: only the features are kept.
    if n_tokens > TOKENS_AT_ONCE:
        features = task.remember(
            ("features", *key), lambda: task.encode_many(term.prompts, context[:1])
        )
        cotangents = _feature_gradients(task, term, views, features)
        return task._pull_back(term.prompts, context, cotangents)

    leaf, features = task.remember(
        ("graph", *key),
        lambda: _encode_with_graph(task, term, context[:1]),
        partial(_graph_size, task),
    )
    cotangents = _feature_gradients(task, term, views, features)
    # Going back keeps no graph per image, so more images fit than in a forward pass with one.
    images_at_once = MORE_WITHOUT_GRADIENT * TOKENS_AT_ONCE // n_tokens
    try:
        gradients = [
            _backward(leaf, features, batch)
            for batch in cotangents.split(images_at_once)
        ]
        return torch.cat(gradients)
    except Exception:
        # Some operations cannot go back for several images at once, and layers of `torch.compile`
        # can go back only once.
        return task._pull_back(term.prompts, context, cotangents)


def _backward(leaf: Tensor, features: Tensor, cotangents: Tensor) -> Tensor:
    """Go back through one graph for several images: ``[images, ...] -> [images, ...]``."""
    # Not every operation can go back for several images at once; one image can do without.
    is_batched = len(cotangents) > 1
    (gradients,) = torch.autograd.grad(
        features,
        leaf,
        cotangents.unsqueeze(1) if is_batched else cotangents,
        retain_graph=True,
        is_grads_batched=is_batched,
    )
    return gradients.squeeze(1) if is_batched else gradients


def term_gradient(
    task: Task, term: PromptLoss, views: Tensor, context: Tensor
) -> Tensor:
    """Return the gradient of one term where each image has a context of its own.

    Args:
        task: the text side.
        term: the loss.
        views: ``[images, kept, dim]``.
        context: ``[images, vectors, width]``.
    """
    n_tokens = task._count_tokens(term.prompts)
    if n_tokens > TOKENS_AT_ONCE:
        # Back from the loss to the features first, then through the text tower part by part.
        features = task.encode_many(term.prompts, context)
        cotangents = _feature_gradients(task, term, views, features)
        return task._pull_back(term.prompts, context, cotangents)

    images_at_once = TOKENS_AT_ONCE // n_tokens
    view_batches = views.split(images_at_once)
    context_batches = context.split(images_at_once)
    gradients: list[Tensor] = []
    for some_views, some_contexts in zip(view_batches, context_batches, strict=True):
        leaf, features = _encode_with_graph(task, term, some_contexts)
        cotangents = _feature_gradients(task, term, some_views, features)
        gradients += torch.autograd.grad(features, leaf, cotangents)
    return torch.cat(gradients)


def _encode_with_graph(
    task: Task, term: PromptLoss, context: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a context that gradients can be taken of, and the features of prompts under it."""
    with torch.enable_grad():
        leaf = context.clone().requires_grad_()
        return leaf, task.encode(term.prompts, leaf)


def _graph_size(task: Task, graph: tuple[Tensor, Tensor]) -> int:
    """Return the bytes that `_encode_with_graph` keeps alive."""
    _, features = graph
    model = getattr(task.backend, "model", None)
    weights = model.parameters() if isinstance(model, nn.Module) else ()
    return graph_bytes(features, weights)


def _feature_gradients(
    task: Task, term: PromptLoss, views: Tensor, features: Tensor
) -> Tensor:
    """Return the gradient of the loss with respect to each image's features of the prompts.

    It is computed in float64: at the temperature of a real CLIP probabilities are so close to 0 and
    1 that in float32 the gradient of their entropy loses all digits, and ELRA divides by it.
    """
    dtype = torch.float64 if has_float64(views.device) else features.dtype
    with torch.enable_grad():
        of_each_image = features.detach().expand(len(views), -1, -1)
        leaf = of_each_image.to(dtype, copy=True).requires_grad_()
        loss = term.loss(task, views.to(dtype), leaf).sum()
    (gradient,) = torch.autograd.grad(loss, leaf)
    return gradient.to(features.dtype)


def confident_views(task: Task, views: Tensor, rho: float) -> Tensor:
    """Return the fraction `rho` of the views of each image with the most certain target.

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
    aggregator: Aggregator = _TARGET_ONLY,
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
    context = task.context.repeat(objective.copies, 1)
    if context.dtype != torch.float64:
        context = context.float()
    start = context.expand(len(views), -1, -1)
    target = objective.terms[0]
    # The target's gradient is needed in any case, because the rate depends on it.
    is_needed = needed_terms(aggregator, len(objective.terms))
    is_needed[0] = True

    def gradient_of_term(term: PromptLoss, context: Tensor) -> Tensor:
        if context is not start:
            return term_gradient(task, term, views, context)
        # At the start it is the same for all weights, rates and losses that have the term.
        content = views.cpu().numpy().tobytes()
        digest = blake2b(content, digest_size=16).digest()
        key = "gradient", term, context.shape[1], views.shape, digest
        make = partial(initial_gradient, task, term, views, context)
        return task.remember(key, make)

    def gradients(context: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the objective and of its target term."""
        of_terms = []
        for term, term_is_needed in zip(objective.terms, is_needed, strict=True):
            if term_is_needed:
                of_terms.append(gradient_of_term(term, context))
            else:
                of_terms.append(torch.zeros_like(context))
        combined = combine(aggregator, torch.stack(of_terms, dim=1))
        return combined, of_terms[0]

    def target_gradient_at(points: Tensor) -> Tensor:
        """Return the target's gradients at ``[points, images, vectors, width]`` contexts."""
        repeated_views = views.repeat(len(points), 1, 1)
        contexts = points.flatten(0, 1)
        gradient = term_gradient(task, target, repeated_views, contexts)
        return gradient.view_as(points)

    return descend(rate, steps, start, gradients, target_gradient_at)


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
    """Return features of prompts under tuned contexts, and the answer for view 0 with them."""
    target, sensitive = _tuned_features(task, tuned, features)
    outcome = Outcome(
        probabilities(task, features, target),
        {
            attribute: probabilities(task, features, texts)
            for attribute, texts in sensitive.items()
        },
        learning_rate=tuned.learning_rate,
        relative_step=tuned.relative_step,
        flags=tuned.flags,
    )

    def joint(attribute: str) -> Tensor:
        return _joint_features(task, tuned, attribute)

    return TextFeatures(target, sensitive, joint), outcome


def _tuned_features(
    task: Task, tuned: Descent, features: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return target and sensitive features under tuned contexts, ``[images, prompts, dim]``.

    With a context per target, each target is scored with its own, and the sensitive attributes
    with that of the predicted target.
    """
    attributes = list(task.sensitive_prompts)
    prompt_sets = list(task.sensitive_prompts.values())
    copies = _count_copies(task, tuned)

    # One context: the tower takes all prompts at once.
    if copies == 1:
        all_prompts = task.remember(
            "all prompts",
            lambda: concatenate_prompts([task.target_prompts, *prompt_sets]),
        )
        sizes = [len(task.targets)]
        sizes += [len(prompts) for prompts in prompt_sets]
        encoded = task.encode_many(all_prompts, tuned.context)
        target, *sensitive = encoded.split(sizes, dim=1)
        return target, dict(zip(attributes, sensitive, strict=True))

    # A context per target.
    target_prompts = task.remember(
        "target prompts, each with a context of its own",
        lambda: per_target_context(task.target_prompts, copies, len(task.context)),
    )
    target = task.encode_many(target_prompts, tuned.context)
    predicted = probabilities(task, features, target).nan_to_num().argmax(-1)
    contexts = tuned.context.unflatten(1, (copies, -1))
    images = torch.arange(len(predicted), device=predicted.device)
    context = contexts[images, predicted]
    of_attributes = {}
    for attribute, prompts in task.sensitive_prompts.items():
        of_attributes[attribute] = task.encode_many(prompts, context)
    return target, of_attributes


def _joint_features(task: Task, tuned: Descent, attribute: str) -> Tensor:
    """Return features of joint prompts, ``[images, targets * values, dim]``."""
    copies = _count_copies(task, tuned)
    prompts = task.remember(
        ("joint prompts per context", attribute, copies),
        lambda: per_target_context(
            task.joint_prompts(attribute), copies, len(task.context)
        ),
    )
    return task.encode_many(prompts, tuned.context)


def _count_copies(task: Task, tuned: Descent) -> int:
    """Return how many contexts each image has: 1, or one per target."""
    return tuned.context.shape[1] // len(task.context)
