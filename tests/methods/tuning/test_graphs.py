"""How many bytes a graph of autograd holds."""

from __future__ import annotations

import families
import torch
from checks import make_task
from internals import Cache, TargetLoss, Task, graph_bytes, initial_gradient
from torch import Tensor, nn

from fair_tta.models import TransformersBackend


def test_what_is_saved_is_counted_once_and_weights_are_not() -> None:
    leaf, layer = torch.ones(5, 100, requires_grad=True), nn.Linear(100, 100)
    assert graph_bytes(leaf, ()) == graph_bytes(leaf + 1, ()) == 0
    assert graph_bytes(leaf.exp(), ()) == 2000  # its result
    both = leaf.exp()
    assert graph_bytes(both.sin() + both.cos(), ()) == 2000
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
