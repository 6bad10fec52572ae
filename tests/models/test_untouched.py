"""The user's model comes back as it was, item by item, also after an exception."""

from __future__ import annotations

import copy
import pickle
import random
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import families
import numpy as np
import open_clip
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from internals import eval_mode_lock, eval_mode_no_grad
from internals import model_lock_module as borrow

from fair_tta import FairTPT, FairTPTClassifier, ZeroShot
from fair_tta.errors import ModelError
from fair_tta.extend import AugMix


class Broken(Exception):
    pass


def transformers_clip() -> tuple[Any, Any]:
    model, images, tokenizer = families.seeded(families.clip)
    return model, (model, (images, tokenizer))


def open_clip_clip() -> tuple[Any, Any]:
    vision = {
        "image_size": 32,
        "layers": 2,
        "width": 32,
        "patch_size": 8,
        "head_width": 8,
    }
    text = {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 32,
        "heads": 4,
        "layers": 2,
    }
    model = families.seeded(lambda: (open_clip.CLIP(16, vision, text),))[0]
    preprocess = open_clip.image_transform(32, is_train=False)
    return model, (model, preprocess, open_clip.SimpleTokenizer())


@pytest.fixture(params=[transformers_clip, open_clip_clip])
def loaded(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    parts: tuple[Any, Any] = request.param()
    return parts


def use(model: Any) -> None:
    """Everything a user does: classify, and run the context through the text tower and back."""
    clf = FairTPTClassifier(model, TARGETS, SENSITIVE, TEMPLATE)
    clf.predict([picture(0), picture(1)])
    context = clf._task.context.clone().requires_grad_()
    features = clf._task.encode(clf._task.target_prompts, context)
    torch.autograd.grad(features.sum(), context)


def fail_in(module: Any, calls: int) -> Any:
    """Make a module raise on its n-th call."""
    remaining = [calls]

    def hook(*_: Any) -> None:
        remaining[0] -= 1
        if remaining[0] < 0:
            raise Broken

    return module.register_forward_hook(hook)


def layer_of(model: Any, tower: str) -> Any:
    names = {
        "text": ("text_model.encoder.layers.1", "transformer.resblocks.1"),
        "vision": ("vision_model.encoder.layers.1", "visual.transformer.resblocks.1"),
    }[tower]
    modules = dict(model.named_modules())
    return next(modules[name] for name in names if name in modules)


def draw_in(module: Any) -> Any:
    """Make a module draw from all global generators, as dropout does."""

    def hook(*_: Any) -> None:
        random.random()
        np.random.rand()
        torch.rand(1)

    return module.register_forward_hook(hook)


def use_and_fail(model: Any, parts: Any) -> None:
    """Fail in the middle of construction, of a prediction, and of a spliced call."""
    for tower, calls in (
        ("text", 0),
        ("text", 2),
        ("text", 4),
        ("text", 6),
        ("vision", 0),
    ):
        handle = fail_in(layer_of(model, tower), calls)
        with pytest.raises(Broken):
            for _ in range(4):
                use(parts)
        handle.remove()


def weights(model: Any) -> Any:
    return {name: value.clone() for name, value in model.state_dict().items()}


def hooks(model: Any) -> Any:
    kinds = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_backward_pre_hooks",
    )
    return [[list(getattr(m, kind)) for kind in kinds] for m in model.modules()]


def buffers(model: Any) -> Any:
    # identity too: the attention mask and the positions are swapped during a shortened call
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return [(name, id(t), tuple(t.shape)) for name, t in tensors]


def random_states(_model: Any) -> Any:
    return (
        random.getstate(),
        [np.asarray(part).tolist() for part in np.random.get_state()],
        torch.get_rng_state().tolist(),
    )


ITEMS: dict[str, Callable[[Any], Any]] = {
    "weights": weights,
    "requires_grad": lambda model: [p.requires_grad for p in model.parameters()],
    "gradients": lambda model: [p.grad for p in model.parameters()],
    "mode": lambda model: [m.training for m in model.modules()],
    "hooks": hooks,
    "dtype and device": lambda model: [(p.dtype, p.device) for p in model.parameters()],
    "tables": buffers,
    "random states": random_states,
    "attributes": lambda model: [
        {
            k: v
            for k, v in vars(m).items()
            if isinstance(v, int | float | str | bool | None)
        }
        for m in model.modules()
    ],
}


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    return bool(a == b)


@pytest.mark.parametrize("fails", [False, True], ids=["used", "failed"])
def test_comes_back_as_it_was(loaded: tuple[Any, Any], fails: bool) -> None:
    model, parts = loaded
    model.train()
    layer_of(model, "text").eval()  # a mixture of modes
    for i, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(i % 2 == 0)
    before = {name: copy.copy(look(model)) for name, look in ITEMS.items()}
    if fails:
        use_and_fail(model, parts)
    else:
        use(parts)
    assert [
        name for name, look in ITEMS.items() if not is_same(before[name], look(model))
    ] == []


def test_a_model_in_training_mode_gives_the_same_answer(
    loaded: tuple[Any, Any],
) -> None:
    model, parts = loaded
    clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE)
    expected = clf.predict_proba([picture()])
    for module in model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.5
    model.train()
    assert np.array_equal(clf.predict_proba([picture()]), expected)


def interrupt_at(moment: int, block: Callable[[], None]) -> bool:
    """Run a block with Ctrl-C at one of its moments; False if it has fewer.

    Moments are all lines and calls of Python code, in any file.
    """
    count = 0

    def trace(_frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        count += event in ("line", "call")
        if count == moment:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:  # `suppress` would be traced, too
        block()
    except KeyboardInterrupt:
        assert count == moment
    sys.settrace(None)
    return count == moment


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # in a finaliser
@pytest.mark.parametrize("exclusive", [True, False])
def test_modes_are_restored_wherever_ctrl_c_comes(
    exclusive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted anywhere on the way into the model, inside, or out of it."""
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(4)))
    backend = SimpleNamespace(model=model)

    def use_model() -> None:
        with eval_mode_no_grad(backend, exclusive=exclusive), eval_mode_lock(model):
            assert not any(module.training for module in model.modules())

    moment = 1
    while interrupt_at(moment, use_model):
        assert all(module.training for module in model.modules()), moment
        torch.set_grad_enabled(True)
        # A tracer, unlike a signal, can stop a lock from being released.
        monkeypatch.setattr(borrow, "_registry_lock", threading.RLock())
        borrow._users.clear()
        moment += 1
    assert moment > 100


def test_works_inside_inference_mode_and_no_grad(loaded: tuple[Any, Any]) -> None:
    _, parts = loaded
    expected = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE).predict_proba(
        [picture()]
    )
    with torch.inference_mode():
        clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE)
        assert np.array_equal(clf.predict_proba([picture()]), expected)
        context = clf._task.context
    assert not context.is_inference()
    clf._task.encode(
        clf._task.target_prompts, context.clone().requires_grad_()
    ).sum().backward()
    with torch.no_grad():
        assert np.array_equal(clf.predict_proba([picture()]), expected)


def test_embeddings_of_the_user_are_not_written_to() -> None:
    """BLIP adds positions in place; that must not reach what was spliced in."""
    model, images, tokenizer = families.seeded(families.blip)
    clf = FairTPTClassifier((model, (images, tokenizer)), TARGETS, SENSITIVE, TEMPLATE)
    prompts = clf._task.target_prompts
    embeddings = clf._backend.embed_tokens(prompts.tokens.ids)
    before = embeddings.clone()
    with torch.no_grad():
        clf._backend.encode_prompts(prompts.tokens, embeddings)
    assert torch.equal(embeddings, before)


def test_features_that_are_not_finite_are_an_error(loaded: tuple[Any, Any]) -> None:
    model, parts = loaded
    clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE)
    handle = layer_of(model, "vision").register_forward_hook(
        lambda _m, _a, out: (
            torch.full_like(out, torch.nan)
            if isinstance(out, torch.Tensor)
            else (torch.full_like(out[0], torch.nan), *out[1:])
        )
    )
    with pytest.raises(ModelError, match="not finite"):
        clf.predict(picture())
    handle.remove()


def test_autocast_of_the_caller_does_not_reach_the_answers(
    loaded: tuple[Any, Any],
) -> None:
    _, parts = loaded
    expected = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE).predict_proba(
        [picture()]
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE)
        assert np.array_equal(clf.predict_proba([picture()]), expected)
    assert np.array_equal(clf.predict_proba([picture()]), expected)


def test_a_prediction_borrows_the_model_once(
    loaded: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, parts = loaded
    clf = FairTPTClassifier(
        parts, TARGETS, SENSITIVE, TEMPLATE, adapter="association-correction"
    )
    clf.predict(picture(0))  # features of prompts are made here
    entered: list[object] = []
    enter = borrow._Users.enter

    def counted(users: Any, module: Any, key: object, exclusive: bool) -> None:
        entered.append(module)
        enter(users, module, key, exclusive)

    monkeypatch.setattr(borrow._Users, "enter", counted)
    clf.predict(picture(1))
    assert len(entered) == 1


def test_within_a_block_others_still_wait_for_who_has_to_be_alone() -> None:
    model = torch.nn.Linear(2, 2)
    is_alone: list[bool] = []

    def try_to_be_alone() -> None:
        with eval_mode_lock(model):
            is_alone.append(True)

    with eval_mode_lock(model, exclusive=False), eval_mode_lock(model):
        other = threading.Thread(target=try_to_be_alone)
        other.start()
        other.join(timeout=0.2)
        assert not is_alone
    other.join(timeout=60)
    assert is_alone


@pytest.mark.parametrize(
    "context", [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
def test_a_mode_that_is_entered_within_a_block_does_not_reach_an_inner_one(
    context: Any,
) -> None:
    model = torch.nn.Linear(2, 2)
    with eval_mode_lock(model), context(), eval_mode_lock(model):
        outcome = model(torch.ones(1, 2))
    assert outcome.dtype == torch.float32
    assert not outcome.is_inference()


def test_threads_take_turns(loaded: tuple[Any, Any]) -> None:
    _, parts = loaded
    clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))
    pictures = [picture(i) for i in range(12)]
    expected = [clf.predict(p) for p in pictures]
    fresh = clf.with_views(AugMix(4))
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(fresh.predict, p) for p in pictures]
        assert [job.result() for job in jobs] == expected


def test_threads_with_one_view_are_in_the_vision_tower_together(
    loaded: tuple[Any, Any],
) -> None:
    """Each waits there for the other, so that a lock around the model would never end."""
    model, parts = loaded
    clf = FairTPTClassifier(
        parts, TARGETS, SENSITIVE, TEMPLATE, adapter="association-correction"
    )
    expected = [clf.predict(picture(i)).label for i in range(2)]
    clf._vision.forget()
    model.train()  # one mode for both, until the last has left
    modes: list[bool] = []
    barrier = threading.Barrier(2, timeout=60)

    def wait(*_: Any) -> None:
        barrier.wait()
        modes.append(model.training)

    with (
        layer_of(model, "vision").register_forward_hook(wait),
        ThreadPoolExecutor(2) as pool,
    ):
        predictions = pool.map(clf.predict, [picture(0), picture(1)])
        assert [prediction.label for prediction in predictions] == expected
    assert modes == [False, False]
    assert all(module.training for module in model.modules())


def test_one_thread_tunes_the_prompt_while_others_predict(
    loaded: tuple[Any, Any],
) -> None:
    """Tensors that it exchanges for a while are not taken for other weights."""
    _, parts = loaded
    clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(2))
    plain = clf.with_adapter("zero-shot")
    expected = [[c.predict(picture(i)) for i in range(6)] for c in (clf, plain)]
    task = clf._task
    clf._vision.forget()
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(c.predict, picture(i)) for i in range(6) for c in (clf, plain)
        ]
        predictions = [job.result() for job in jobs]
    assert [predictions[0::2], predictions[1::2]] == expected
    assert clf._task is task


def test_a_thread_that_loads_a_model_leaves_the_filters_of_warnings_alone(
    loaded: tuple[Any, Any],
) -> None:
    """They are those of all threads: of two that set them, the last would take back the first's."""
    model, parts = loaded
    filters_inside: list[Any] = []
    before, norms = list(warnings.filters), (torch.nn.LayerNorm,)
    for layer in [module for module in model.modules() if isinstance(module, norms)]:
        layer.register_forward_hook(
            lambda *_: filters_inside.append(list(warnings.filters))
        )
    arguments = (parts, TARGETS, SENSITIVE, TEMPLATE)
    thread = threading.Thread(target=FairTPTClassifier, args=arguments)
    thread.start()
    thread.join(10)
    assert filters_inside
    assert all(filters == before for filters in filters_inside)


def test_numbers_that_another_thread_draws_do_not_come_twice(
    loaded: tuple[Any, Any],
) -> None:
    """Nothing is rewound: of numbers drawn meanwhile none is a repeat."""
    _, parts = loaded
    done = threading.Event()
    drawn: list[tuple[int, int, int]] = []

    def draw() -> None:
        while not done.is_set():
            a, b = random.getrandbits(62), int(np.random.randint(2**62))
            drawn.append((a, b, int(torch.randint(2**62, ()))))

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))
        for i in range(10):
            clf.predict(picture(i))
    finally:
        done.set()
        thread.join()
    assert len(drawn) > 100
    for numbers in zip(*drawn, strict=True):
        assert len(set(numbers)) == len(drawn)


def test_code_of_the_user_draws_as_it_would_anywhere(loaded: tuple[Any, Any]) -> None:
    """A layer that draws moves the global states on; we add nothing and take nothing back."""
    model, parts = loaded
    clf = FairTPTClassifier(parts, TARGETS, SENSITIVE, TEMPLATE, adapter=ZeroShot())
    clf.predict(picture())
    draw_in(layer_of(model, "vision"))
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    clf.predict(picture(1))
    after = random_states(model)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    random.random()
    np.random.rand()
    torch.rand(1)
    assert after == random_states(model)


def test_nothing_keeps_the_backend_alive(loaded: tuple[Any, Any]) -> None:
    clf = FairTPTClassifier(loaded[1], TARGETS, SENSITIVE, TEMPLATE, adapter=ZeroShot())
    clf.predict(picture())
    backend = weakref.ref(clf._backend)
    del clf
    assert backend() is None


@pytest.mark.parametrize("adapter", [ZeroShot(), FairTPT()])
@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_a_classifier_can_be_copied_and_sent(
    loaded: tuple[Any, Any], adapter: Any, how: str
) -> None:
    views = [picture(5), picture(6)]
    clf = FairTPTClassifier(
        loaded[1], TARGETS, SENSITIVE, TEMPLATE, adapter=adapter, views=views
    )
    expected = clf.predict(picture())
    other = pickle.loads(pickle.dumps(clf)) if how == "pickle" else copy.deepcopy(clf)
    backends: tuple[Any, Any] = other._backend, clf._backend
    assert backends[0].model is not backends[1].model
    with torch.no_grad():
        for parameter in loaded[0].parameters():
            parameter.zero_()  # the copy does not hang on the original
    assert other.predict(picture()) == expected
    other._vision.forget()
    assert other.predict(picture()) == expected
