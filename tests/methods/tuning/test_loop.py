"""Gradients of many images at once, against those of each by itself."""

from __future__ import annotations

from typing import Any

import families
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, make_task, picture
from families_open_clip import OPEN_CLIP
from internals import (
    Cache,
    PromptLoss,
    SLoss,
    SuperTSLoss,
    TargetLoss,
    Task,
    TSLoss,
    graph_bytes,
    initial_gradient,
)
from torch import Tensor, nn
from torch.nn.functional import normalize

from fair_tta import TPT, FairTPT, FairTPTClassifier, FairTPTMO
from fair_tta.extend import AugMix
from fair_tta.models import OpenClipBackend, TransformersBackend

FAMILIES = [
    pytest.param(kind, make, id=f"{kind.__name__}-{name}", marks=families.marks(name))
    for kind, known in (
        (TransformersBackend, families.TRANSFORMERS),
        (OpenClipBackend, OPEN_CLIP),
    )
    for name, make in known.items()
]


def views_for(task: Task, images: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(images, 5, task.target_features.shape[-1], generator=generator)
    return normalize(views.to(task.target_features), dim=-1)


def one_by_one(task: Task, term: PromptLoss, views: Tensor, context: Tensor) -> Tensor:
    """Autograd through the whole loss, for each image anew."""
    gradients: list[Tensor] = []
    for image in views:
        leaf = context[0].clone().requires_grad_()
        loss = term.loss(task, image[None], task.encode(term.prompts, leaf)[None])
        gradients += torch.autograd.grad(loss.sum(), leaf)
    return torch.stack(gradients)


@pytest.fixture
def batched(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Notes for each way back that came to its end whether it was for many images."""
    original, are_batched = torch.autograd.grad, []

    def watch(*args: Any, **kwargs: Any) -> Any:
        gradients = original(*args, **kwargs)
        are_batched.append(kwargs.get("is_grads_batched", False))
        return gradients

    monkeypatch.setattr(torch.autograd, "grad", watch)
    return are_batched


@pytest.mark.parametrize(("kind", "make"), FAMILIES)
def test_every_family_goes_back_for_many_images_at_once(
    kind: Any, make: Any, batched: list[bool]
) -> None:
    model, *processor = families.seeded(make)
    task = make_task(kind(model.double(), *processor))
    views = views_for(task)
    for loss in (SLoss(), TSLoss(), SuperTSLoss()):
        objective = loss.objective(task)
        context = task.context.repeat(objective.copies, 1).expand(len(views), -1, -1)
        for term in objective.terms:
            batched.clear()
            gradients = initial_gradient(task, term, views, context)
            assert True in batched
            expected = one_by_one(task, term, views, context)
            # some towers work in float32 in places, whatever their dtype
            torch.testing.assert_close(
                gradients, expected, rtol=0, atol=1e-5 * float(expected.abs().max())
            )


class Stubborn(torch.autograd.Function):
    """Does nothing, but looks at its gradient's value, as no batch of gradients allows."""

    error: type[Exception] = RuntimeError

    @staticmethod
    def forward(ctx: Any, states: Tensor) -> Tensor:
        return states.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        try:
            assert float(gradient.sum()) < torch.inf
        except RuntimeError as error:
            raise Stubborn.error from error
        return gradient


class Forgetful(torch.autograd.Function):
    """Goes back once only, as layers of `torch.compile` do."""

    @staticmethod
    def forward(ctx: Any, states: Tensor) -> Tensor:
        ctx.ways = 0
        return states.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        ctx.ways += 1
        if ctx.ways > 1:
            raise RuntimeError
        return gradient


def task_with(function: Any) -> Task:
    """A task whose text tower ends with this function."""

    class Layer(nn.Module):
        def forward(self, states: Tensor) -> Tensor:
            return function.apply(states)  # type: ignore[no-any-return]

    model, *processor = families.seeded(families.clip)
    model.text_model.final_layer_norm = nn.Sequential(
        model.text_model.final_layer_norm, Layer()
    )
    return make_task(TransformersBackend(model, *processor))


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_a_tower_that_cannot_goes_back_for_each(
    error: type[Exception], batched: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stubborn, "error", error)
    task = task_with(Stubborn)
    views, (term,) = views_for(task), TargetLoss().objective(task).terms
    context = task.context.expand(len(views), -1, -1)
    batched.clear()
    gradients = initial_gradient(task, term, views, context)
    assert True not in batched
    expected = one_by_one(task, term, views, context)
    torch.testing.assert_close(
        gradients, expected, rtol=0, atol=1e-5 * float(expected.abs().max())
    )


@pytest.mark.parametrize("images", [1, 3])
def test_a_tower_that_goes_back_once_goes_forward_again(images: int) -> None:
    task = task_with(Forgetful)
    views, (term,) = views_for(task, images), TargetLoss().objective(task).terms
    context = task.context.expand(len(views), -1, -1)
    expected = one_by_one(task, term, views, context)
    for _ in range(2):
        gradients = initial_gradient(task, term, views, context)
        torch.testing.assert_close(
            gradients, expected, rtol=0, atol=1e-5 * float(expected.abs().max())
        )


def test_methods_share_the_gradients_of_terms_they_share(batched: list[bool]) -> None:
    """The target's is the same in all of them, the sensitive term's in those with one loss."""
    task = make_task(TransformersBackend(*families.seeded(families.clip)))
    views = views_for(task)
    ways = []
    for adapter in (
        TPT(rho=0.75),
        FairTPT(),
        FairTPTMO(lam=1),
        FairTPT(loss=TSLoss()),
        TPT(),
    ):
        batched.clear()
        adapter.adapt(task, views)
        ways.append(sum(batched))
    assert ways == [1, 1, 0, 1, 1]


def test_predictions_from_features() -> None:
    backend = TransformersBackend(*families.seeded(families.clip))
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))
    pictures = [picture(0), picture(1)]
    features = clf.encode(pictures)
    assert clf._predict_encoded(features) == clf.predict(pictures)
    assert clf._predict_encoded(features[:0]) == clf.predict([]) == []


def test_what_is_saved_is_counted_once_and_weights_are_not() -> None:
    leaf, layer = torch.ones(5, 100, requires_grad=True), nn.Linear(100, 100)
    assert graph_bytes(leaf, ()) == graph_bytes(leaf + 1, ()) == 0
    assert graph_bytes(leaf.exp(), ()) == 2000  # its result
    shared = leaf.exp()
    assert graph_bytes(shared.sin() + shared.cos(), ()) == 2000
    assert graph_bytes(layer(leaf), layer.parameters()) == 2000
    assert graph_bytes(layer(leaf), ()) == 42_000


def test_functions_of_ones_own_are_counted() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            ctx.save_for_backward(torch.zeros(7))  # type: ignore[attr-defined]
            return 2 * x

    assert graph_bytes(Double.apply(torch.ones(1, requires_grad=True)), ()) == 28


def test_a_graph_that_is_too_large_is_not_kept() -> None:
    backend = TransformersBackend(*families.seeded(families.clip))
    roomy = make_task(backend)
    cache = Cache(20_000)
    narrow = Task(backend, roomy.targets, roomy.sensitive, roomy.templates, cache=cache)
    (term,) = TargetLoss().objective(roomy).terms
    views = torch.nn.functional.normalize(torch.randn(2, 3, 16), dim=-1)
    context = roomy.context.expand(2, -1, -1)
    expected = initial_gradient(roomy, term, views, context)
    for _ in range(2):
        assert torch.equal(initial_gradient(narrow, term, views, context), expected)
    assert cache.bytes <= cache.limit < roomy.cache.bytes
