"""Borrow the user's model and return it unchanged: locks, modes, changed weights, copies."""

from __future__ import annotations

import copy
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from itertools import chain
from operator import attrgetter
from threading import Lock, RLock, current_thread, get_ident, main_thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from fair_tta.errors import ModelError, TowerError


class _Users:
    """The threads that hold a model, and what its modes were before."""

    def __init__(self) -> None:
        self.lock: Any = RLock()  # of the one that changes it
        self.blocks: Counter[int] = Counter()  # in which a thread holds it in eval mode
        self.training: list[nn.Module] = []  # modules that the last of them sets back

    def enter(self, module: nn.Module) -> None:
        with _moment:
            self.blocks[get_ident()] += 1
            if self.blocks[get_ident()] == 1:  # else this thread has looked
                training = [m for m in _modules(module) if m.training]
                self.training += training
                for m in training:
                    m.training = False

    def leave(self, threads: Iterable[int]) -> None:
        with _moment:
            self.blocks -= Counter(threads)  # drops those that are in none
            if not self.blocks:
                try:
                    _set_training(self.training)
                finally:  # Ctrl-C may have come in the middle of it
                    _set_training(self.training)
                    self.training = []


_moment = Lock()  # for all models, held for moments
_users: WeakKeyDictionary[nn.Module, _Users] = WeakKeyDictionary()
_lost: WeakSet[nn.Module] = WeakSet()  # changed by another thread when this process was forked


def _users_of(module: nn.Module) -> _Users:
    if module in _lost:
        raise ModelError(
            f"another thread was using `model` ({type(module).__name__}) when this process was "
            "forked, in the middle of a call: load it again in this process, or fork before you "
            "predict."
        )
    users = _users.get(module)
    return _users.setdefault(module, _Users()) if users is None else users


def _after_fork() -> None:
    """The child has no other threads, so what they were changing stays half way through a call."""
    global _moment
    _moment = Lock()
    for module, users in _users.items():
        if not users.lock.acquire(blocking=False):
            _lost.add(module)
        users.lock = RLock()
        users.leave(thread for thread in users.blocks.elements() if thread != get_ident())


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def untouched(module: nn.Module | None = None, *, alone: bool = True) -> Iterator[None]:
    """Hold a model in eval mode for a block; afterwards its train/eval flags are as before.

    One thread at a time is `alone` with a model: whoever adds hooks or exchanges tensors for a
    while, in the text tower only. Others, who run the vision tower, need not wait for it.

    Tensors made inside can enter autograd later, also if the caller is in `torch.inference_mode`;
    the caller's autocast does not reach inside, so that predictions do not depend on it. Weights,
    `requires_grad`, dtype, device and the global random states are never changed at all.
    """
    parameter = None if module is None else next(module.parameters(), None)
    device = "cpu" if parameter is None else parameter.device.type
    users = None if module is None else _users_of(module)
    with users.lock if users is not None and alone else nullcontext():
        grad = torch.is_grad_enabled()
        try:
            if users is not None and module is not None:
                users.enter(module)
            with (
                torch.inference_mode(False),
                torch.set_grad_enabled(grad),
                torch.autocast(device, enabled=False),
            ):
                yield
        finally:
            if users is not None:
                users.leave([get_ident()])


def _modules(module: nn.Module) -> list[nn.Module]:
    """All modules; faster than `nn.Module.modules`, which removes repeats."""
    found: list[nn.Module] = []
    waiting: list[nn.Module | None] = [module]
    while waiting:
        inside = waiting.pop()
        if inside is not None:
            found.append(inside)
            waiting += inside._modules.values()
    return found


def _set_training(modules: list[nn.Module]) -> None:
    for module in modules:
        module.training = True


@contextmanager
def borrowed(backend: object, *, alone: bool = True) -> Iterator[nn.Module | None]:
    """`untouched` for the model of a backend, if it has one, and without gradients."""
    model = getattr(backend, "model", None)
    module = model if isinstance(model, nn.Module) else None
    with untouched(module, alone=alone), torch.no_grad():
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
_ODD = (RuntimeError, NotImplementedError, TypeError)
"""What tensors raise that are on several devices, or not plain ones."""


class Watch:
    """Notices when the weights of a model change. A copy starts anew."""

    def __init__(self) -> None:
        # Views take longer to make than to read. They keep replaced weights until the next call.
        self._views: tuple[Hashable, Callable[[], bytes]] = None, bytes

    def __reduce__(self) -> tuple[type[Watch], tuple[()]]:
        return Watch, ()

    @torch.no_grad()
    def fingerprint(self, module: nn.Module | None) -> Hashable:
        """A value that changes with the weights of a module.

        It holds the address and PyTorch's count of in-place changes of each parameter and buffer.
        That count misses changes through ``.data``, so some numbers of each are in it too.
        """
        tensors = [] if module is None else _tensors(module)
        try:
            return self._look(tensors)
        except _ODD:
            return tuple([_look_at(tensor) for tensor in tensors])

    def _look(self, tensors: list[Tensor]) -> Hashable:
        places, views = tuple(map(Tensor.data_ptr, tensors)), self._views
        if places != views[0]:
            views = self._views = places, _reader(tensors)
        return places, tuple(map(_version, tensors)), views[1]()


_version = attrgetter("_version")


def _look_at(tensor: Tensor) -> Hashable:
    try:
        return Watch()._look([tensor])
    except _ODD:
        return id(tensor)


def _tensors(module: nn.Module) -> list[Tensor]:
    """All parameters and buffers."""
    tensors: list[Tensor | None] = []
    for inside in _modules(module):
        tensors += inside._parameters.values()
        tensors += inside._buffers.values()
    return [tensor for tensor in tensors if tensor is not None]


def _reader(tensors: list[Tensor]) -> Callable[[], bytes]:
    """What reads some numbers of these tensors, as they are then."""
    some = [_spread(tensor.detach()) for tensor in tensors]
    if all(t.device.type == "cpu" and t.dtype != torch.bfloat16 for t in some):
        arrays = [tensor.numpy() for tensor in some]
        return lambda: b"".join([array.tobytes() for array in arrays])
    return lambda: torch.cat(some).cpu().double().numpy().tobytes()


def _spread(tensor: Tensor) -> Tensor:
    """Numbers spread over a tensor, or its first one if it is not contiguous."""
    numbers = tensor.numel()
    count = min(numbers, _NUMBERS) if tensor.is_contiguous() else 1
    return tensor.as_strided((count,), (max(0, numbers - 1) // max(1, count - 1),))


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


def check_finite(model: nn.Module | None, weights: Hashable) -> None:
    """Raise `ModelError` if weights are not finite, unless this fingerprint of them was checked.

    Attention without a mask may swallow a NaN, so that answers do not show it.
    """
    if model is None or _finite.get(model) == weights:
        return
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and weight.numel() and not _is_finite(weight):
            raise ModelError(
                f"weights of `model` ({type(model).__name__}) are not finite, such as {name!r}: "
                "they are damaged; if the model runs in half precision, try float32."
            )
    _finite[model] = weights


@torch.no_grad()
def _is_finite(weight: Tensor) -> bool:
    try:
        return bool(torch.stack(torch.aminmax(weight)).isfinite().all())
    except _ODD:
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

    `functools.cached_property` of Python 3.11 holds a lock for all instances while it
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
