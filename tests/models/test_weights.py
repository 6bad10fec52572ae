"""Weights that change after the first prediction: answers are those of the changed model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from test_untouched import open_clip_clip, transformers_clip
from torch import nn

from fair_tta import AugMix, FairTPT, FairTPTClassifier, OrthCali, ZeroShot
from fair_tta._models.borrow import Watch

PICTURES = [picture(0), picture(1)]
look = Watch().fingerprint


@pytest.fixture(params=[transformers_clip, open_clip_clip])
def loaded(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    parts: tuple[Any, Any] = request.param()
    return parts


@torch.no_grad()
def in_place(model: Any) -> None:
    for parameter in model.parameters():
        parameter.mul_(1.1)


def behind_autograd(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(1.1)


def one_matrix(model: Any) -> None:
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if "proj" in name and p.ndim == 2).mul_(-1)


def scale(model: Any) -> None:
    with torch.no_grad():
        model.logit_scale.add_(0.5)


def scale_behind_autograd(model: Any) -> None:
    model.logit_scale.data.clamp_(0, 1)


def norms_behind_autograd(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.data.mul_(torch.linspace(0.5, 1.5, 32))


def rows_behind_autograd(model: Any) -> None:
    """All but the first row of the last matrix of the vision tower."""
    projection = getattr(model, "visual_projection", None)
    matrix = model.visual.proj if projection is None else projection.weight
    matrix.data[1:].mul_(-1)


def last_row_behind_autograd(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.LayerNorm):
            module.weight.data[-1:].mul_(3)


def optimizer_step(model: Any) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(model.parameters(), lr=0.02).step()
    model.zero_grad()


def other_state(model: Any) -> None:
    model.load_state_dict({k: v * 0.9 for k, v in model.state_dict().items()})


def assigned_state(model: Any) -> None:
    state = {k: v * 0.9 if v.is_floating_point() else v for k, v in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def new_parameter(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight = nn.Parameter(module.weight.detach() * torch.linspace(0.5, 1.5, 32))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": in_place,
    "behind autograd": behind_autograd,
    "one matrix": one_matrix,
    "scale": scale,
    "scale behind autograd": scale_behind_autograd,
    "norms behind autograd": norms_behind_autograd,
    "rows behind autograd": rows_behind_autograd,
    "last row behind autograd": last_row_behind_autograd,
    "optimiser": optimizer_step,
    "load_state_dict": other_state,
    "assigned": assigned_state,
    "new parameter": new_parameter,
    "double": lambda model: model.double(),
    "half": lambda model: model.half(),
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "there and back": lambda model: model.half().float(),
}


def classifier(parts: Any) -> FairTPTClassifier:
    return FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))


@pytest.mark.parametrize("change", CHANGES)
def test_answers_are_those_of_the_changed_model(loaded: tuple[Any, Any], change: str) -> None:
    model, parts = loaded
    clf = classifier(parts)
    methods: list[Any] = [ZeroShot(), FairTPT(), OrthCali(), FairTPT(steps=2) >> OrthCali(lam=1)]
    copies = [clf.with_adapter(method) for method in methods]
    before = [copy.predict_proba(PICTURES) for copy in copies]
    CHANGES[change](model)
    after = [copy.predict_proba(PICTURES) for copy in copies]
    fresh = classifier(parts)
    for method, old, new in zip(methods, before, after, strict=True):
        assert np.array_equal(new, fresh.with_adapter(method).predict_proba(PICTURES))
        assert not np.array_equal(new, old)


def test_features_of_images_are_those_of_the_changed_model(loaded: tuple[Any, Any]) -> None:
    model, parts = loaded
    clf = classifier(parts)
    kept = clf.encode(PICTURES)
    assert clf.predict_encoded(kept) == clf.predict(PICTURES)
    in_place(model)
    assert torch.equal(clf.encode(PICTURES), classifier(parts).encode(PICTURES))
    model.double()  # features that were kept elsewhere can still be used
    assert clf.predict_encoded(kept)[0].label in TARGETS


def test_changed_weights_have_another_task_and_nothing_of_the_old_is_kept(
    loaded: tuple[Any, Any],
) -> None:
    model, parts = loaded
    clf = classifier(parts)
    other, first = clf.with_adapter(ZeroShot()), clf.task
    clf.predict(PICTURES)
    kept = set(clf.cache._kept)
    assert clf.task is other.task is first
    context = first.context.clone()
    in_place(model)
    other.predict(PICTURES)
    assert clf.task is other.task is not first
    assert torch.equal(first.context, context)
    assert not torch.equal(clf.task.context, context)
    clf.predict(PICTURES)
    assert not {key for key in clf.cache._kept if key[0] is not clf.vision._owner} & kept


def test_nothing_is_computed_again_while_weights_stay(loaded: tuple[Any, Any]) -> None:
    model, parts = loaded
    clf = classifier(parts)
    clf.predict(PICTURES)
    text, calls = clf.backend.encode_text, []
    clf.backend.encode_text = lambda tokens: calls.append(1) or text(tokens)  # type: ignore[func-returns-value, method-assign]
    model.train()
    model.requires_grad_(False)
    clf.predict(PICTURES)
    clf.with_adapter(ZeroShot()).predict(picture(2))
    assert not calls


def test_fingerprint_of_odd_weights() -> None:
    """Weights made in inference mode, on the meta device, empty, not finite, or none at all."""
    with torch.inference_mode():
        frozen = nn.Linear(2, 2)
    odd = nn.Module()
    odd.register_parameter("none", None)
    odd.register_buffer("empty", torch.empty(0, 2))
    odd.register_buffer("whole", torch.ones(2, 2, dtype=torch.long))
    odd.register_buffer("nan", torch.full((2, 2), torch.nan))
    for module in (frozen, nn.Linear(2, 2, device="meta"), odd, nn.Identity()):
        assert look(module) == look(module)
    assert look(None) == look(None)
    first = look(odd)
    odd.get_buffer("whole").add_(1)
    assert look(odd) != first


@pytest.mark.parametrize("shape", [(), (1,), (5,), (8,), (9,), (3, 7), (64, 64)])
def test_the_first_number_and_one_near_the_last_are_looked_at(shape: tuple[int, ...]) -> None:
    module = nn.Module()
    module.register_buffer("numbers", torch.zeros(shape))
    numbers = module.get_buffer("numbers").data.view(-1)
    for some in (numbers[:1], numbers[-8:]):
        before = look(module)
        some += 1
        assert look(module) != before


def test_weights_with_gaps_or_repeats_have_a_fingerprint() -> None:
    module = nn.Module()
    module.register_buffer("gaps", torch.zeros(40, 40)[:, ::2])
    module.register_buffer("repeats", torch.zeros(1).expand(50))
    module.register_buffer("turned", torch.zeros(20, 30).T)
    before = look(module)
    assert before == look(module)
    module.get_buffer("gaps").data[0, 0] = 1
    assert look(module) != before
