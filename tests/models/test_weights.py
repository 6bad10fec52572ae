"""Weights that change after the first prediction: answers are those of the changed model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from internals import state_of
from test_untouched import open_clip_clip, transformers_clip
from torch import nn
from torch.nn.utils import parametrize, prune

from fair_tta import FairTPT, FairTPTClassifier, OrthCali, ZeroShot
from fair_tta.extend import AugMix

PICTURES = [picture(0), picture(1)]


@pytest.fixture(params=[transformers_clip, open_clip_clip])
def loaded(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    parts: tuple[Any, Any] = request.param()
    return parts


@torch.no_grad()
def in_place(model: Any) -> None:
    for parameter in model.parameters():
        parameter.mul_(1.1)


def one_matrix(model: Any) -> None:
    with torch.no_grad():
        next(
            p for name, p in model.named_parameters() if "proj" in name and p.ndim == 2
        ).mul_(-1)


def scale(model: Any) -> None:
    with torch.no_grad():
        model.logit_scale.add_(0.5)


def optimizer_step(model: Any) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(model.parameters(), lr=0.02).step()
    model.zero_grad()


def other_state(model: Any) -> None:
    model.load_state_dict({k: v * 0.9 for k, v in model.state_dict().items()})


def assigned_state(model: Any) -> None:
    state = {
        k: v * 0.9 if v.is_floating_point() else v
        for k, v in model.state_dict().items()
    }
    model.load_state_dict(state, assign=True)


def new_parameter(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight = nn.Parameter(
                module.weight.detach() * torch.linspace(0.5, 1.5, 32)
            )


def new_numbers(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data * 0.9


def through_a_vector(model: Any) -> None:
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector.detach() * 0.9, model.parameters())


@torch.no_grad()
def through_another_module(model: Any) -> None:
    """Which shares the weights of the model, as a copy for training may."""
    for parameter in model.parameters():
        nn.Parameter(parameter.detach()).mul_(0.9)


def through_the_state(model: Any) -> None:
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor *= 0.9


def in_inference_mode(model: Any) -> None:
    with torch.inference_mode():
        for parameter in model.parameters():
            parameter.mul_(0.9)


def norms_of(model: Any) -> list[nn.LayerNorm]:
    return [module for module in model.modules() if isinstance(module, nn.LayerNorm)]


def ramp(*call: Any) -> Any:
    """The last argument, the input or output of a layer, with other numbers in each dimension."""
    states = call[-1][0] if isinstance(call[-1], tuple) else call[-1]
    return states * torch.linspace(0.5, 1.5, states.shape[-1])


def hooks(model: Any) -> None:
    for norm in norms_of(model):
        norm.register_forward_hook(ramp)


def hooks_before(model: Any) -> None:
    for norm in norms_of(model):
        norm.register_forward_pre_hook(ramp)


def parametrised(model: Any) -> None:
    for norm in norms_of(model):
        parametrize.register_parametrization(norm, "weight", Ramp())


class Ramp(nn.Module):
    def forward(self, states: torch.Tensor) -> Any:
        return ramp(states)


def pruned(model: Any) -> None:
    for norm in norms_of(model):
        prune.random_unstructured(norm, "weight", 0.5)


def another_activation(model: Any) -> None:
    """A module without any weight."""
    for module in model.modules():
        for name, child in module.named_children():
            if "GELU" in type(child).__name__:
                setattr(module, name, nn.ReLU())


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": in_place,
    "one matrix": one_matrix,
    "scale": scale,
    "optimiser": optimizer_step,
    "load_state_dict": other_state,
    "assigned": assigned_state,
    "new parameter": new_parameter,
    "double": lambda model: model.double(),
    "half": lambda model: model.half(),
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "there and back": lambda model: model.half().float(),
    "new numbers": new_numbers,
    "through a vector": through_a_vector,
    "through another module": through_another_module,
    "through the state": through_the_state,
    "in inference mode": in_inference_mode,
    "hooks": hooks,
    "hooks before": hooks_before,
    "parametrised": parametrised,
    "pruned": pruned,
    "another activation": another_activation,
}


def behind_autograd(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(0.9)


def through_numpy(model: Any) -> None:
    for parameter in model.parameters():
        parameter.detach().numpy()[...] *= 0.9


def settings(model: Any) -> None:
    for norm in norms_of(model):
        norm.eps = 1.0


def another_forward(model: Any) -> None:
    for norm in norms_of(model):
        vars(norm)["forward"] = ramp


# What PyTorch keeps no count of; docs/getting-started.md lists it beside `forget`.
UNCOUNTED: dict[str, Callable[[Any], Any]] = {
    "behind autograd": behind_autograd,
    "through numpy": through_numpy,
    "settings": settings,
    "another forward": another_forward,
}


def classifier(parts: Any) -> FairTPTClassifier:
    return FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))


@pytest.mark.parametrize("change", CHANGES)
def test_answers_are_those_of_the_changed_model(
    loaded: tuple[Any, Any], change: str
) -> None:
    model, parts = loaded
    clf = classifier(parts)
    methods: list[Any] = [ZeroShot(), FairTPT(steps=2) >> OrthCali(lam=1)]
    copies = [clf.with_adapter(method) for method in methods]
    before = [copy.predict_proba(PICTURES) for copy in copies]
    CHANGES[change](model)
    after = [copy.predict_proba(PICTURES) for copy in copies]
    fresh = classifier(parts)
    for method, old, new in zip(methods, before, after, strict=True):
        assert np.array_equal(new, fresh.with_adapter(method).predict_proba(PICTURES))
        assert not np.array_equal(new, old)


@pytest.mark.parametrize("change", UNCOUNTED)
def test_forget_is_enough_for_changes_that_are_not_counted(
    loaded: tuple[Any, Any], change: str
) -> None:
    model, parts = loaded
    clf = classifier(parts)
    before = clf.predict_proba(PICTURES)
    UNCOUNTED[change](model)
    clf.forget()
    after = clf.predict_proba(PICTURES)
    assert np.array_equal(after, classifier(parts).predict_proba(PICTURES))
    assert not np.array_equal(after, before)


def test_forget_is_enough_for_tensors_of_inference_mode() -> None:
    with torch.inference_mode():
        model, parts = transformers_clip()
        clf = FairTPTClassifier(parts, TARGETS)
        before = clf.predict_proba(PICTURES)
        in_place(model)
        clf.forget()
        after = clf.predict_proba(PICTURES)
        assert np.array_equal(
            after, FairTPTClassifier(parts, TARGETS).predict_proba(PICTURES)
        )
    assert not np.array_equal(after, before)


def test_a_hook_that_is_taken_away_is_noticed(loaded: tuple[Any, Any]) -> None:
    model, parts = loaded
    expected = classifier(parts).predict_proba(PICTURES)
    with norms_of(model)[-1].register_forward_hook(ramp):
        clf = classifier(parts)
        hooked = clf.predict_proba(PICTURES)
    assert not np.array_equal(hooked, expected)
    assert np.array_equal(clf.predict_proba(PICTURES), expected)


def test_features_of_images_are_those_of_the_changed_model(
    loaded: tuple[Any, Any],
) -> None:
    model, parts = loaded
    clf = classifier(parts)
    kept = clf.encode(PICTURES)
    assert clf._predict_encoded(kept) == clf.predict(PICTURES)
    in_place(model)
    assert torch.equal(clf.encode(PICTURES), classifier(parts).encode(PICTURES))
    model.double()  # features that were kept elsewhere can still be used
    assert clf._predict_encoded(kept)[0].label in TARGETS


def test_changed_weights_have_another_task_and_nothing_of_the_old_is_kept(
    loaded: tuple[Any, Any],
) -> None:
    model, parts = loaded
    clf = classifier(parts)
    other, first = clf.with_adapter(ZeroShot()), clf._task
    clf.predict(PICTURES)
    kept = set(clf._cache._entries)
    assert clf._task is other._task is first
    context = first.context.clone()
    in_place(model)
    other.predict(PICTURES)
    assert clf._task is other._task is not first
    assert torch.equal(first.context, context)
    assert not torch.equal(clf._task.context, context)
    clf.predict(PICTURES)
    assert (
        not {key for key in clf._cache._entries if key[0] is not clf._vision._owner}
        & kept
    )


def test_nothing_is_computed_again_while_weights_stay(loaded: tuple[Any, Any]) -> None:
    model, parts = loaded
    clf = classifier(parts)
    clf.predict(PICTURES)
    text, calls = clf._backend.encode_text, []
    clf._backend.encode_text = lambda tokens: calls.append(1) or text(tokens)  # type: ignore[func-returns-value, method-assign]
    model.train()
    model.requires_grad_(False)
    clf.predict(PICTURES)
    clf.with_adapter(ZeroShot()).predict(picture(2))
    assert not calls


def test_states_of_odd_weights() -> None:
    """Weights made in inference mode, on the meta device, empty, not finite, or none at all."""
    with torch.inference_mode():
        frozen = nn.Linear(2, 2)
    odd = nn.Module()
    odd.register_parameter("none", None)
    odd.register_buffer("empty", torch.empty(0, 2))
    odd.register_buffer("whole", torch.ones(2, 2, dtype=torch.long))
    odd.register_buffer("nan", torch.full((2, 2), torch.nan))
    odd.register_buffer("gaps", torch.zeros(40, 40)[:, ::2])
    for module in (frozen, nn.Linear(2, 2, device="meta"), odd, nn.Identity(), None):
        assert state_of(module) == state_of(module)
    for name in ("whole", "gaps"):
        before = state_of(odd)
        odd.get_buffer(name).add_(1)
        assert state_of(odd) != before


def test_hooks_of_one_call_are_no_change() -> None:
    """Or a thread with one view would wait for one that tunes the prompt."""
    model, parts = transformers_clip()
    clf = classifier(parts)
    layer = clf._backend.embedding_layer  # type: ignore[attr-defined]
    before = state_of(model)
    during = []
    with layer.register_forward_hook(lambda *_: during.append(state_of(model))):
        with_this_hook = state_of(model)
        clf._task.encode(clf._task.target_prompts, clf._task.context)
    assert set(during) == {with_this_hook} != {before}
    assert state_of(model) == before
