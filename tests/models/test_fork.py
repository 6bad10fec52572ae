"""A process that is forked while another of its threads predicts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch import nn

from fair_tta._models import borrow as locks
from fair_tta.errors import ModelError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
]


@pytest.mark.parametrize(("method", "views", "forks"), [("zero-shot", 1, 8), ("fair-tpt", 8, 8)])
def test_children_predict_as_the_parent_does(method: str, views: int, forks: int) -> None:
    script = Path(__file__).parents[1] / "helpers" / "fork_run.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, str(script), method, str(views), str(forks)],
        capture_output=True, text=True, env=environment, timeout=590,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@contextmanager
def in_use(module: nn.Module) -> Iterator[None]:
    """Another thread has the model."""
    started, stop = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.lock_of(module):
            started.set()
            stop.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    started.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def is_free(module: nn.Module) -> bool:
    """Whether another thread could have the model."""
    found: list[bool] = []

    def ask() -> None:
        lock = locks.lock_of(module)
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0]


def test_a_fork_waits_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    busy, free = nn.Linear(1, 1), nn.Linear(1, 1)
    assert is_free(free)
    with in_use(busy):
        locks._wait()
        assert not is_free(free)
        locks._go_on()
        assert is_free(free)
        locks._wait()
        locks._go_on_in_child()
    assert is_free(free)
    with pytest.raises(ModelError, match=r"`model` \(Linear\) was being used .* load it again"):
        locks.lock_of(busy)


def test_the_thread_that_forks_may_have_the_model_itself() -> None:
    model = nn.Linear(1, 1)
    with locks.lock_of(model):
        locks._wait()
        locks._go_on_in_child()
        assert not is_free(model)
    assert is_free(model)
