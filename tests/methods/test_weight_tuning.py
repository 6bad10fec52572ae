"""Methods that tune weights only borrow the model: also after an exception, also with threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from plain_towers import classifier, open_clip_resnet

from fair_tta import ELRA, FairTPTClassifier, ZeroShot
from fair_tta.extend import Adapter, AugMix
from fair_tta.methods import MEMO, SAR, Tent

METHODS: list[Any] = [Tent(), MEMO(every_weight=True), SAR(margin=2.0)]


def state(model: Any) -> dict[str, Any]:
    return {
        **{name: value.clone() for name, value in model.state_dict().items()},
        "flags": torch.tensor([p.requires_grad for p in model.parameters()]),
        "modes": torch.tensor([m.training for m in model.modules()]),
        "places": torch.tensor([p.data_ptr() for p in model.parameters()]),
        "hooks": torch.tensor([len(m._forward_hooks) for m in model.modules()]),
    }


def assert_same(before: dict[str, Any], model: Any) -> None:
    after = state(model)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_weights_are_the_same_bits_afterwards(method: Adapter) -> None:
    model, clf = classifier(torch.float32)
    model.train()
    before = state(model)
    predictions = clf.with_adapter(method).predict([picture(0), picture(1)])
    assert_same(before, model)
    assert clf.with_adapter(method).predict([picture(0), picture(1)]) == predictions
    assert all(p.distance > 0 for p in predictions)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_also_after_an_exception(method: Adapter) -> None:
    model, clf = classifier(torch.float32)
    expected = clf.with_adapter(method).predict(picture())
    before = state(model)
    calls_left = [5]

    def fail(*_: Any) -> None:
        calls_left[0] -= 1
        if calls_left[0] == 0:
            raise KeyError("in the middle")

    chosen = clf.with_adapter(method)
    clf.forget()
    handle = model.vision_model.encoder.layers[1].register_forward_hook(fail)
    with pytest.raises(KeyError, match="in the middle"):
        for _ in range(5):
            chosen.predict(picture())
    handle.remove()
    assert_same(before, model)
    assert clf.with_adapter(method).predict(picture()) == expected


def test_batch_norms_keep_their_statistics() -> None:
    backend = open_clip_resnet()
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4))
    before = state(backend.model.train())
    prediction = clf.with_adapter(Tent()).predict(picture())
    assert_same(before, backend.model)
    assert prediction.distance > 0


def test_a_thread_that_uses_the_model_itself_notices_nothing() -> None:
    """Not through this library, so without its lock; every answer is the same bits."""
    model, clf = classifier(torch.float32)
    model.eval()
    pixels = clf._vision.pixels(picture(7))
    done, wrong, count = threading.Event(), [], [0]

    def ask() -> Any:
        with torch.no_grad():
            output = model.get_image_features(pixel_values=pixels)
        return output if isinstance(output, torch.Tensor) else output.pooler_output

    expected = ask()

    def use() -> None:
        while not done.is_set():
            count[0] += 1
            if not torch.equal(ask(), expected):
                wrong.append(count[0])

    thread = threading.Thread(target=use)
    thread.start()
    try:
        for method in METHODS:
            clf.with_adapter(method).predict([picture(0), picture(1)])
    finally:
        done.set()
        thread.join()
    assert count[0] > 3
    assert wrong == []


def test_threads_have_the_answers_that_each_would_have_alone() -> None:
    _, clf = classifier(torch.float32)
    methods: list[Adapter] = [Tent(), ZeroShot(), SAR(margin=2.0), Tent(steps=2)]
    pictures = [picture(i) for i in range(3)]
    expected = [clf.with_adapter(m).predict(p) for m in methods for p in pictures]
    fresh = clf.with_views(AugMix(6))
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(fresh.with_adapter(m).predict, p)
            for m in methods
            for p in pictures
        ]
        assert [job.result() for job in jobs] == expected


def test_any_rate_policy_will_do() -> None:
    """ELRA changes the method's own loss by beta: here a mean entropy in nats."""
    _, clf = classifier(adapter=Tent(rate=ELRA(beta=1e-3)))
    prediction = clf.predict(picture())
    assert prediction.learning_rate is not None
    assert prediction.learning_rate > 0
    assert prediction.relative_step is not None
    assert 0 < prediction.relative_step < 2
