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
def test_a_thread_that_has_the_model_is_not_kept_from_its_features(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One thread makes features of a task and waits for the model, which another has meanwhile."""
    backend = TransformersBackend(*families.seeded(families.clip))
    one, other = make_task(backend), make_task(backend)
    taken, asked = Event(), Event()

    @contextmanager
    def watched(of: Any) -> Iterator[Any]:
        if current_thread() is waits:
            asked.set()
        with eval_mode_no_grad(of) as model:
            yield model

    def construct() -> None:
        taken.wait(10)
        getattr(one, name)

    def predict() -> None:
        with eval_mode_no_grad(backend):
            taken.set()
            asked.wait(10)
            getattr(other, name)

    waits, has = (
        Thread(target=construct, daemon=True),
        Thread(target=predict, daemon=True),
    )
    monkeypatch.setattr("fair_tta.prompts._task.borrowed", watched)
    for thread in (has, waits):
        thread.start()
    for thread in (has, waits):
        thread.join(10)
        assert not thread.is_alive()
    assert asked.is_set()
