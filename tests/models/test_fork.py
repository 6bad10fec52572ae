"""A process that is forked while another of its threads predicts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
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
def test_children_predict_as_the_parent_does_or_raise(method: str, views: int, forks: int) -> None:
    script = Path(__file__).parents[1] / "helpers" / "fork_run.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, str(script), method, str(views), str(forks)],
        capture_output=True, text=True, env=environment, timeout=590,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def in_child(ask: Callable[[], bool]) -> bool:
    """What a forked child finds."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = int(ask())
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 1)
    return code == 1


def is_lost(model: nn.Module) -> bool:
    try:
        with locks._users_of(model).lock:
            return False
    except ModelError as error:
        return "`model` (Linear)" in str(error) and "load it again" in str(error)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_model_that_another_thread_used_is_lost_to_the_child_and_no_other() -> None:
    busy, free, own = nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1)
    started, stop = threading.Event(), threading.Event()

    def hold() -> None:
        with locks._users_of(busy).lock:
            started.set()
            stop.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    started.wait()
    try:
        assert not is_lost(free)
        with locks._users_of(own).lock:  # by the thread that forks
            found = [in_child(partial(is_lost, model)) for model in (busy, free, own)]
    finally:
        stop.set()
        thread.join()
    assert found == [True, False, False]
    assert not is_lost(busy)  # in the parent
