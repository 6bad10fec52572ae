"""One lock for each model, and what becomes of it when the process forks.

A thread that works with a model has put it into eval mode and hooks into its layers. A child that
is forked meanwhile has neither that thread nor anybody who would give the model back: it would
wait for ever, or answer with another's hooks. So a fork waits until models are free.
"""

from __future__ import annotations

import os
import time
from threading import RLock, local
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from torch import nn

from fair_tta.errors import ModelError

PATIENCE = 30.0
"""Seconds that a fork waits. A thread that waits for the fork itself would never be done."""

_locks: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # an RLock for each model
_lost: WeakSet[nn.Module] = WeakSet()  # to threads that this process does not have
_forking = local()  # by each thread: models with locks, and whether it has got them


def lock_of(module: nn.Module) -> Any:
    """The lock of a model, which a thread may take again.

    Raises:
        ModelError: the process was forked in the middle of a long call with the model.
    """
    if module in _lost:
        raise ModelError(
            f"`model` ({type(module).__name__}) was being used by another thread for more than "
            f"{PATIENCE:.0f} s when this process was forked, and is half way through a call: "
            "load it again in this process, or fork before you predict."
        )
    return _locks.setdefault(module, RLock())


def _wait() -> None:
    end = time.monotonic() + PATIENCE
    _forking.taken = [
        (module, lock, lock.acquire(timeout=max(0.0, end - time.monotonic())))
        for module, lock in _snapshot()
    ]


def _go_on() -> None:
    for _, lock, is_taken in _forking.__dict__.pop("taken", ()):
        if is_taken:
            lock.release()


def _go_on_in_child() -> None:
    _lost.update(module for module, _, is_taken in getattr(_forking, "taken", ()) if not is_taken)
    _go_on()


def _snapshot() -> list[tuple[nn.Module, Any]]:
    while True:
        try:
            return list(_locks.items())
        except RuntimeError:  # another thread has just met a new model
            continue


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(before=_wait, after_in_parent=_go_on, after_in_child=_go_on_in_child)
