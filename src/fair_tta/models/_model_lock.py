"""Borrow the user's model and return it unchanged: eval mode, one exclusive user at a time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from threading import RLock, current_thread, get_ident, main_thread
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from fair_tta.models._weights import modules_of


class _OpenBlock(NamedTuple):
    """A `with` block of `eval_mode_lock` that has not ended."""

    thread: int
    is_exclusive: bool


class _Users:
    """The blocks in which threads hold a model, and the modules to return to training mode."""

    def __init__(self) -> None:
        self.lock = RLock()  # held in exclusive blocks
        self.blocks: dict[object, _OpenBlock] = {}
        self.training: list[nn.Module] = []

    def has_this_thread(self, exclusive: bool = False) -> bool:
        """Return whether this thread is in a block, in an exclusive one if that is needed."""
        thread = get_ident()
        with _registry_lock:
            return any(
                block.thread == thread and (block.is_exclusive or not exclusive)
                for block in self.blocks.values()
            )

    def enter(self, module: nn.Module | None, key: object, exclusive: bool) -> None:
        """Begin a block; the first one of a thread sets the model to eval mode."""
        with _registry_lock:
            is_nested = self.has_this_thread()
            self.blocks[key] = _OpenBlock(get_ident(), exclusive)
            if is_nested:
                return
            training = [part for part in modules_of(module) if part.training]
            self.training += training
            for part in training:
                part.training = False

    def leave(self, key: object) -> None:
        """End a block, and restore all modes after the last one; a second call changes nothing."""
        with _registry_lock:
            self.blocks.pop(key, None)
            if not self.blocks:
                for part in self.training:
                    part.training = True
                self.training = []


# One lock for the lists of blocks of all models, held only while they are read or changed. It is
# reentrant because the garbage collector may close an abandoned block at any moment.
_registry_lock = RLock()
_users: WeakKeyDictionary[nn.Module, _Users] = WeakKeyDictionary()


def _users_of(module: nn.Module) -> _Users:
    users = _users.get(module)
    return _users.setdefault(module, _Users()) if users is None else users


@contextmanager
def eval_mode_lock(
    module: nn.Module | None = None, *, exclusive: bool = True
) -> Iterator[None]:
    """Hold a model in eval mode for a block; afterwards its train/eval flags are as before.

    One thread at a time may hold a model exclusively, which it must to add hooks or to exchange
    tensors for a while (in the text tower only). Others, which run the vision tower, do not wait.

    Tensors made inside can enter autograd later, also if the caller is in `torch.inference_mode`;
    the caller's autocast does not reach inside, so that predictions do not depend on it. Weights,
    `requires_grad`, dtype, device and the global random states are never changed at all.
    """
    parameter = None if module is None else next(module.parameters(), None)
    device = "cpu" if parameter is None else parameter.device.type
    users = None if module is None else _users_of(module)

    # Within a block of the same thread, such as that of a whole `predict`, nothing is left to do
    # unless the caller has entered autocast or inference mode there.
    is_inference = torch.is_inference_mode_enabled()
    is_plain = not is_inference and not torch.is_autocast_enabled(device)
    if is_plain and (users is None or users.has_this_thread(exclusive)):
        yield
        return

    users = _Users() if users is None else users
    key = object()
    with users.lock if exclusive else nullcontext():
        has_gradients = torch.is_grad_enabled()
        try:
            try:
                users.enter(module, key, exclusive)
                # Leaving inference mode turns gradients on, hence their own context.
                with (
                    torch.inference_mode(False) if is_inference else nullcontext(),
                    torch.set_grad_enabled(has_gradients),
                    torch.autocast(device, enabled=False),
                ):
                    yield
            finally:
                users.leave(key)
        finally:
            users.leave(key)  # again, as Ctrl-C may have interrupted the first


@contextmanager
def eval_mode_no_grad(
    backend: object, *, exclusive: bool = True
) -> Iterator[nn.Module | None]:
    """Hold the model of a backend, if it has one, in eval mode and without gradients."""
    model = getattr(backend, "model", None)
    module = model if isinstance(model, nn.Module) else None
    with eval_mode_lock(module, exclusive=exclusive), torch.no_grad():
        yield module


@contextmanager
def ignore_warnings_of(module_pattern: str = "") -> Iterator[None]:
    """Ignore warnings of modules whose names match a pattern, in the main thread.

    Filters are global: other threads could not restore them safely, so these warn as always.
    """
    if current_thread() is not main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=module_pattern)
        yield


Owner = TypeVar("Owner")
Value = TypeVar("Value")


def computed_once(compute: Callable[[Owner], Value]) -> Callable[[Owner], Value]:
    """Keep a property's value in its instance; apply it below `@property`.

    `functools.cached_property` of Python 3.11 holds one lock for all instances while it computes
    a value, which deadlocks with the lock of a model. Here two threads may both compute the value,
    and both get that of the first.
    """
    name = compute.__name__

    @wraps(compute)
    def get(instance: Owner) -> Value:
        values: dict[str, Value] = vars(instance)
        if name in values:
            return values[name]
        return values.setdefault(name, compute(instance))

    return get
