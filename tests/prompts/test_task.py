"""A task that several threads use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, current_thread
from typing import Any

import families
import pytest
from checks import make_task
from internals import eval_mode_no_grad

from fair_tta.models import TransformersBackend


@pytest.mark.parametrize("name", ["context", "target_features", "sensitive_features"])
def test_features_do_not_wait_for_a_thread_that_waits_for_the_model(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Two tasks of one model: the thread that holds it computes the same features meanwhile."""
    backend = TransformersBackend(*families.seeded(families.clip))
    waiting_task = make_task(backend)
    holding_task = make_task(backend)
    model_is_held = Event()
    model_is_wanted = Event()

    @contextmanager
    def watched_lock(locked: Any) -> Iterator[Any]:
        if current_thread() is waiting:
            model_is_wanted.set()
        with eval_mode_no_grad(locked) as model:
            yield model

    def wait_for_model() -> None:
        model_is_held.wait(10)
        getattr(waiting_task, name)

    def hold_model() -> None:
        with eval_mode_no_grad(backend):
            model_is_held.set()
            model_is_wanted.wait(10)
            getattr(holding_task, name)

    waiting = Thread(target=wait_for_model, daemon=True)
    holding = Thread(target=hold_model, daemon=True)
    monkeypatch.setattr("fair_tta.prompts._task.eval_mode_no_grad", watched_lock)
    for thread in (holding, waiting):
        thread.start()
    for thread in (holding, waiting):
        thread.join(10)
        assert not thread.is_alive()
    assert model_is_wanted.is_set()
