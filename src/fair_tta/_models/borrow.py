"""Borrow the user's model and return it unchanged: locks, modes, changed weights, copies."""

from __future__ import annotations

import copy
import math
import os
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from itertools import chain
from threading import RLock, current_thread, main_thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from fair_tta.errors import ModelError, TowerError

_locks: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # an RLock for each model
_lost: WeakSet[nn.Module] = WeakSet()  # in use by another thread when this process was forked


def lock_of(module: nn.Module) -> Any:
    """The lock of a model, which a thread may take again."""
    if module in _lost:
        raise ModelError(
            f"another thread was using `model` ({type(module).__name__}) when this process was "
            "forked, in the middle of a call: load it again in this process, or fork before you "
            "predict."
        )
    return _locks.setdefault(module, RLock())


def _after_fork() -> None:
    """The child has no other threads, so what they were using stays half way through a call."""
    _lost.update(module for module, lock in _locks.items() if not lock.acquire(blocking=False))
    _locks.clear()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def untouched(module: nn.Module | None = None) -> Iterator[None]:
    """Hold a model in eval mode for a block; afterwards its train/eval flags are as before.

    One thread at a time holds a model. Tensors made inside can enter autograd later, also if the
    caller is in `torch.inference_mode`; the caller's autocast does not reach inside, so that
    predictions do not depend on it. Weights, `requires_grad`, dtype, device and the global random
    states are never changed at all.
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
            try:
                _set_training(training)
            finally:  # Ctrl-C may have come in the middle of it
                _set_training(training)


def _set_training(modules: list[nn.Module]) -> None:
    for module in modules:
        module.training = True


@contextmanager
def borrowed(backend: object) -> Iterator[nn.Module | None]:
    """`untouched` for the model of a backend, if it has one, and without gradients."""
    model = getattr(backend, "model", None)
    module = model if isinstance(model, nn.Module) else None
    with untouched(module), torch.no_grad():
        yield module


@contextmanager
def quiet(module: str = "") -> Iterator[None]:
    """Ignore warnings of modules that match a pattern, in the main thread.

    Filters are global, so other threads, which could not restore them safely, warn as always.
    """
    if current_thread() is not main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=module)
        yield


_NUMBERS = 8  # of each tensor that are read


@torch.no_grad()
def fingerprint(module: nn.Module | None) -> Hashable:
    """A value that changes with the weights of a module.

    It holds the address, dtype and PyTorch's count of in-place changes of each parameter and
    buffer. That count misses changes through ``.data``, so some numbers of each are in it too.
    """
    tensors = [] if module is None else _tensors(module)
    return _read(_marks, tensors), _read(_numbers, tensors)


def _tensors(module: nn.Module) -> list[Tensor]:
    """All parameters and buffers; faster than `nn.Module.parameters`, which removes repeats."""
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
    """Numbers spread over a tensor, or its first one if it is not contiguous."""
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
    """Raise `ModelError` if some weights have no values, as on the meta device."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    absent = next((name for name, tensor in tensors if tensor.is_meta), None)
    if absent is not None:
        raise ModelError(
            f"weights of `model` ({type(model).__name__}) have no values, such as {absent!r}: "
            "load it on a CPU or GPU, without `device_map` and offloading."
        )


_finite: WeakKeyDictionary[nn.Module, Hashable] = WeakKeyDictionary()  # weights that were checked


def checked_fingerprint(model: nn.Module | None) -> Hashable:
    """The `fingerprint` of a model, once its weights are seen to be finite.

    Attention without a mask may swallow a NaN, so that answers do not show it.
    """
    weights = fingerprint(model)
    if model is None or _finite.get(model) == weights:
        return weights
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and weight.numel() and not _is_finite(weight):
            raise ModelError(
                f"weights of `model` ({type(model).__name__}) are not finite, such as {name!r}: "
                "they are damaged; if the model runs in half precision, try float32."
            )
    _finite[model] = weights
    return weights


@torch.no_grad()
def _is_finite(weight: Tensor) -> bool:
    try:
        return bool(torch.stack(torch.aminmax(weight)).isfinite().all())
    except (RuntimeError, NotImplementedError, TypeError):  # not plain numbers
        return True


def exponential(log_scale: Any, name: str) -> float:
    """The inverse temperature from its logarithm, which a model keeps."""
    try:
        return math.exp(float(log_scale))
    except OverflowError as error:
        raise ModelError(
            f"the logit scale of {name} is too large for a number, so its weights may be damaged: "
            "load it again, or pass `scale`."
        ) from error


@contextmanager
def explained(model: nn.Module, tower: str) -> Iterator[None]:
    """Turn an error that comes of a tower's weights into a `ModelError` with advice.

    Any other error stays as it is: it may be about one image only.
    """
    try:
        yield
    except RuntimeError as error:
        advice = remedy(model, str(error))
        if not advice:
            raise
        raise ModelError(f"{tower} fails: {error}{advice}") from error


def remedy(model: nn.Module, error: str) -> str:
    """Advice if an error comes of weights in several precisions or on several devices, or ""."""
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
    """For use under `property`: keep the value in the instance.

    `functools.cached_property` of Python 3.10 and 3.11 holds a lock for all instances while it
    computes a value, which deadlocks with the lock of a model. Here two threads may both compute
    it, and get the value of the first.
    """
    name = make.__name__

    @wraps(make)
    def get(instance: Owner) -> Value:
        kept: dict[str, Value] = vars(instance)
        return kept[name] if name in kept else kept.setdefault(name, make(instance))

    return get


TowerCall = Callable[[Any, Tensor], Tensor]


class CallModule(nn.Module):
    """`functional_call` needs a module whose forward is the call of a tower."""

    def __init__(self, model: nn.Module, call: TowerCall) -> None:
        super().__init__()
        self.model = model
        self._call = call

    def forward(self, inputs: Tensor) -> Tensor:
        return self._call(self.model, inputs)


def image_twin(model: nn.Module, call: TowerCall) -> nn.Module:
    """A module from pixels to features, in eval mode, that nobody else runs.

    `torch.func.functional_call` puts other weights into modules while it runs, which other threads
    would see. A twin has its own modules, and shares the numbers of the weights, so it takes next
    to no memory. Make one per call: it does not notice when the model gets other tensors.
    """
    shared: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    for weight in model.parameters():
        is_plain = type(weight) is nn.Parameter  # quantised ones are not
        shared[id(weight)] = nn.Parameter(weight.detach(), False) if is_plain else weight
    try:
        return CallModule(copy.deepcopy(model, shared), call).eval()
    except Exception as error:  # modules may hold anything
        reason = f"{type(error).__name__}: {error}"
        raise TowerError(f"its modules cannot be copied ({reason})") from error
