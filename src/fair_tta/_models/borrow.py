"""Borrow the user's model and return it unchanged: locks, modes, changed weights, copies."""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from itertools import chain
from threading import RLock, current_thread, local, main_thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from fair_tta.errors import ModelError, TowerError

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


@contextmanager
def untouched(module: nn.Module | None = None) -> Iterator[None]:
    """Run a block in eval mode; afterwards train/eval flags are as before.

    One thread at a time may borrow a model. Tensors made inside can enter autograd later, also if
    the caller is in `torch.inference_mode`; a caller's autocast does not reach inside, because
    answers must not depend on it. Weights, `requires_grad`, dtype and device are never changed by
    the library at all: gradients are taken with respect to the context only. Nor are the global
    random states: we draw from generators of our own, and rewinding what the user's own code draws
    would rewind the numbers of other threads too.
    """
    parameter = None if module is None else next(module.parameters(), None)
    device = "cpu" if parameter is None else parameter.device.type
    with nullcontext() if module is None else lock_of(module):
        training = [] if module is None else [m for m in module.modules() if m.training]
        grad = torch.is_grad_enabled()
        try:
            for m in training:
                m.training = False
            with (
                torch.inference_mode(False),
                torch.set_grad_enabled(grad),
                torch.autocast(device, enabled=False),
            ):
                yield
        finally:
            for m in training:
                m.training = True


@contextmanager
def borrowed(backend: object) -> Iterator[nn.Module | None]:
    """`untouched` for the model of a backend, if it has one, and without gradients."""
    model = getattr(backend, "model", None)
    module = model if isinstance(model, nn.Module) else None
    with untouched(module), torch.no_grad():
        yield module


@contextmanager
def quiet(module: str = "") -> Iterator[None]:
    """While it lasts no warnings, in the main thread.

    Filters are those of all threads: what another thread sets or takes back, the caller's code
    would find or keep. What is done elsewhere warns as the caller's filters say.

    Args:
        module: a pattern of the names of modules whose warnings are meant; all of them if empty.
    """
    if current_thread() is not main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=module)
        yield


_NUMBERS = 8  # of each tensor


@torch.no_grad()
def fingerprint(module: nn.Module | None) -> Hashable:
    """Something that is another after the weights of a module have changed.

    Of each parameter and buffer it holds place, dtype and PyTorch's own count of changes in place.
    That count misses changes through ``.data``, so some numbers of each are looked at too; others
    that change so are not seen.
    """
    tensors = [] if module is None else _tensors(module)
    return _read(_marks, tensors), _read(_numbers, tensors)


def _tensors(module: nn.Module) -> list[Tensor]:
    """All parameters and buffers; faster than `nn.Module.parameters`, which looks for repeats."""
    tensors: list[Tensor | None] = []
    modules: list[nn.Module | None] = [module]
    while modules:
        inside = modules.pop()
        if inside is not None:
            tensors += inside._parameters.values()
            tensors += inside._buffers.values()
            modules += inside._modules.values()
    return [tensor for tensor in tensors if tensor is not None]


def _marks(tensors: list[Tensor]) -> Hashable:
    return tuple([(t.data_ptr(), t.dtype, t._version) for t in tensors])


def _numbers(tensors: list[Tensor]) -> Hashable:
    some = [_spread(tensor) for tensor in tensors]
    return torch.cat(some).cpu().double().numpy().tobytes() if some else b""


def _spread(tensor: Tensor) -> Tensor:
    """Some numbers of a tensor, from the first to about the last; only the first if it has gaps."""
    numbers = tensor.numel()
    count = min(numbers, _NUMBERS) if tensor.is_contiguous() else 1
    return tensor.as_strided((count,), (max(0, numbers - 1) // max(1, count - 1),))


def _read(how: Callable[[list[Tensor]], Hashable], tensors: list[Tensor]) -> Hashable:
    """All at once, or one by one where some are on other devices, empty or not plain tensors."""
    try:
        return how(tensors)
    except (RuntimeError, NotImplementedError, TypeError):
        return tuple([_read(how, [t]) for t in tensors]) if len(tensors) > 1 else id(tensors[0])


def check_present(model: nn.Module) -> None:
    """Raise `ModelError` if some weights are elsewhere: on the meta device there are no numbers."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    absent = next((name for name, tensor in tensors if tensor.is_meta), None)
    if absent is None:
        return
    is_offloaded = any(hasattr(module, "_hf_hook") for module in model.modules())
    why, what = (
        ("accelerate has moved them out", "without `device_map` and offloading")
        if is_offloaded
        else ("they are on the meta device", "with its weights, on a CPU or GPU")
    )
    raise ModelError(
        f"the weights of `model` ({type(model).__name__}) are not there, such as {absent!r}: "
        f"{why}. Load it {what}."
    )


@contextmanager
def explained(model: nn.Module, tower: str) -> Iterator[None]:
    """What a tower raises because of its weights is a `ModelError` that says what to do.

    Everything else stays what it is: it may be about one picture only.
    """
    try:
        yield
    except RuntimeError as error:
        advice = remedy(model, str(error))
        if not advice:
            raise
        raise ModelError(f"{tower} fails: {error}{advice}") from error


def remedy(model: nn.Module, error: str) -> str:
    """What to do if an error comes of weights in several precisions or places; else empty."""
    weights = [p for p in model.parameters() if p.is_floating_point() and p.ndim > 0]
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in weights})
    places = sorted({str(p.device) for p in weights})
    if len(kinds) > 1 and "type" in error:
        advice = "give all one precision, as `model.float()` does"
        return f" (Its weights are in {' and '.join(kinds)}: {advice}.)"
    if len(places) > 1 and "device" in error:
        advice = "bring all to one, as `model.to('cpu')` does"
        return f" (Its weights are on {' and '.join(places)}: {advice}.)"
    return ""


Owner = TypeVar("Owner")
Value = TypeVar("Value")


def made_once(make: Callable[[Owner], Value]) -> Callable[[Owner], Value]:
    """For use under `property`: the value is kept in the instance.

    `functools.cached_property` of Python 3.10 and 3.11 holds a lock, the same for all instances,
    while it makes a value. If that takes the lock of a model, and another thread holds the model
    and asks for such a value, both wait for ever. Here two threads may both make the value, and
    get the one that was done first.
    """
    name = make.__name__

    @wraps(make)
    def get(instance: Owner) -> Value:
        kept = vars(instance)
        if name not in kept:
            kept.setdefault(name, make(instance))
        value: Value = kept[name]
        return value

    return get


ImageCall = Callable[[Any, Tensor], Tensor]


class _ImageModule(nn.Module):
    """`functional_call` needs a module whose forward is the image call."""

    def __init__(self, model: nn.Module, call: ImageCall) -> None:
        super().__init__()
        self.model = model
        self._call = call

    def forward(self, pixels: Tensor) -> Tensor:
        return self._call(self.model, pixels)


def image_twin(model: nn.Module, call: ImageCall) -> nn.Module:
    """A module from pixels to features, in eval mode, that nobody else runs.

    `torch.func.functional_call` puts other weights into modules while it lasts, which every thread
    that runs them would see. Those of a twin are nobody else's, so that the model is not touched
    at all; and since no number is copied, a twin takes next to no memory. It is made for one call:
    it does not notice when tensors of the model are exchanged for others.

    Args:
        model: the model.
        call: its own image features.

    Raises:
        TowerError: its modules cannot be copied.
    """
    shared: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    for weight in model.parameters():
        is_plain = type(weight) is nn.Parameter  # quantised ones are not
        shared[id(weight)] = nn.Parameter(weight.detach(), False) if is_plain else weight
    try:
        return _ImageModule(copy.deepcopy(model, shared), call).eval()
    except Exception as error:  # modules may hold anything
        reason = f"{type(error).__name__}: {error}"
        raise TowerError(f"its modules cannot be copied ({reason})") from error
