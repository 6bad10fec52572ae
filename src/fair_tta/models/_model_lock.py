"""Borrow the user's model and return it unchanged: locks, modes, changed weights, copies."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from itertools import chain
from operator import attrgetter
from threading import RLock, current_thread, get_ident, main_thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fair_tta.errors import ModelError, TowerError


class _Users:
    """The threads that hold a model, and the modules that they took out of training mode."""

    def __init__(self) -> None:
        self.lock: Any = RLock()  # of the one that changes it
        self.blocks: dict[object, int] = {}  # the outermost block of each thread
        self.training: list[nn.Module] = []  # modules that the last of them sets back

    def has_this_thread(self, exclusive: bool) -> bool:
        """Return whether this thread is in a block already, and alone if it has to be."""
        with _moment:
            is_inside = get_ident() in self.blocks.values()
        return is_inside and (
            not exclusive or self.lock._is_owned()
        )  # as `Condition` asks an RLock

    def enter(self, module: nn.Module | None, block: object) -> None:
        """Set a model to eval mode for a block, unless this thread holds it already."""
        with _moment:
            if get_ident() in self.blocks.values():
                return
            self.blocks[block] = get_ident()
            training = [inside for inside in _modules(module) if inside.training]
            self.training += training
            for inside in training:
                inside.training = False

    def leave(self, block: object) -> None:
        """End a block; after the last one all modes are as before. May be called repeatedly."""
        with _moment:
            self.blocks.pop(block, None)
            if not self.blocks:
                for inside in self.training:
                    inside.training = True
                self.training = []


# For all models, held for moments. It can be entered again because the garbage collector may close
# an abandoned block at any moment.
_moment = RLock()
_users: WeakKeyDictionary[nn.Module, _Users] = WeakKeyDictionary()


def _users_of(module: nn.Module) -> _Users:
    users = _users.get(module)
    return _users.setdefault(module, _Users()) if users is None else users


@contextmanager
def eval_mode_lock(
    module: nn.Module | None = None, *, exclusive: bool = True
) -> Iterator[None]:
    """Hold a model in eval mode for a block; afterwards its train/eval flags are as before.

    One thread at a time is `exclusive` with a model: whoever adds hooks or exchanges tensors for a
    while, in the text tower only. Others, who run the vision tower, need not wait for it.

    Tensors made inside can enter autograd later, also if the caller is in `torch.inference_mode`;
    the caller's autocast does not reach inside, so that predictions do not depend on it. Weights,
    `requires_grad`, dtype, device and the global random states are never changed at all.
    """
    parameter = None if module is None else next(module.parameters(), None)
    device = "cpu" if parameter is None else parameter.device.type
    users = None if module is None else _users_of(module)

    # Within a block of the same thread, such as that of a whole `predict`, nothing is left to do
    # unless the caller has entered autocast or inference mode there.
    is_plain = not torch.is_inference_mode_enabled() and not torch.is_autocast_enabled(
        device
    )
    if is_plain and (users is None or users.has_this_thread(exclusive)):
        yield
        return

    users = _Users() if users is None else users
    block = object()
    with users.lock if exclusive else nullcontext():
        grad = torch.is_grad_enabled()
        is_inference = torch.is_inference_mode_enabled()
        try:
            try:
                users.enter(module, block)
                with (
                    torch.inference_mode(False) if is_inference else nullcontext(),
                    torch.set_grad_enabled(
                        grad
                    ),  # leaving inference mode turns gradients on
                    torch.autocast(device, enabled=False),
                ):
                    yield
            finally:
                users.leave(block)
        finally:
            users.leave(block)  # again, as Ctrl-C may have interrupted the first


def _modules(module: nn.Module | None) -> list[nn.Module]:
    """All modules; faster than `nn.Module.modules`, which removes repeats."""
    found: list[nn.Module] = []
    waiting: list[nn.Module | None] = [module]
    while waiting:
        inside = waiting.pop()
        if inside is not None:
            found.append(inside)
            waiting += inside._modules.values()
    return found


@contextmanager
def eval_mode_no_grad(
    backend: object, *, exclusive: bool = True
) -> Iterator[nn.Module | None]:
    """`eval_mode_lock` for the model of a backend, if it has one, and without gradients."""
    model = getattr(backend, "model", None)
    module = model if isinstance(model, nn.Module) else None
    with eval_mode_lock(module, exclusive=exclusive), torch.no_grad():
        yield module


@contextmanager
def ignore_warnings_of(module: str = "") -> Iterator[None]:
    """Ignore warnings of modules that match a pattern, in the main thread.

    Filters are global, so other threads, which could not restore them safely, warn as always.
    """
    if current_thread() is not main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=module)
        yield


_ODD = (RuntimeError, NotImplementedError, TypeError)
"""What tensors raise that are on several devices, or not plain ones."""


class WeightChangeDetector:
    """Compares a model with an earlier state by what PyTorch counts, without reading any weight.

    A copy starts anew, so that it finds its model changed.
    """

    def __init__(self) -> None:
        self._accepted: Hashable = None
        # What the accepted state refers to, so that nothing new gets its identity or address.
        self._kept: tuple[list[nn.Module], list[Tensor], list[Tensor]] = [], [], []

    def __reduce__(self) -> tuple[type[WeightChangeDetector], tuple[()]]:
        return WeightChangeDetector, ()

    def has_changed(self, model: nn.Module | None) -> bool:
        """Return whether modules, hooks or weights differ from the accepted state."""
        return state_of(model) != self._accepted

    def accept(self, model: nn.Module | None) -> None:
        """Compare with the present state from now on."""
        modules = _modules(model)
        tensors = _tensors(modules)
        storages = [tensor.detach() for tensor in tensors]
        self._kept = modules, tensors, storages
        self._accepted = state_of(model)


def state_of(model: nn.Module | None) -> Hashable:
    """Return a value that changes with the modules, forward hooks or weights of a model.

    Of each parameter and buffer it has the identity, the address and PyTorch's count of changes in
    place. That count misses what is written through ``.data`` or NumPy, and tensors made in
    inference mode have none.
    """
    modules = _modules(model)
    tensors = _tensors(modules)
    identities = tuple(map(id, modules)), tuple(map(id, tensors))
    numbers = _of_each(Tensor.data_ptr, tensors), _of_each(_version, tensors)
    return identities, numbers, _hooks(modules)


def _of_each(
    read: Callable[[Tensor], int], tensors: list[Tensor]
) -> tuple[int | None, ...]:
    """Read a number of each tensor; None where a tensor has no such number."""
    try:
        return tuple(map(read, tensors))
    except _ODD:
        return tuple([_number_or_none(read, tensor) for tensor in tensors])


def _number_or_none(read: Callable[[Tensor], int], tensor: Tensor) -> int | None:
    try:
        return read(tensor)
    except _ODD:
        return None


_version = attrgetter("_version")


def _tensors(modules: list[nn.Module]) -> list[Tensor]:
    """Return all parameters and buffers."""
    tensors: list[Tensor | None] = []
    for module in modules:
        tensors += module._parameters.values()
        tensors += module._buffers.values()
    return [tensor for tensor in tensors if tensor is not None]


def _hooks(modules: list[nn.Module]) -> tuple[int, ...]:
    """Return the numbers of the user's forward hooks, each of which PyTorch gives out once.

    Hooks of this package are there for one call, and other threads need not wait for its end.
    """
    numbers: list[int] = []
    for module in modules:
        if module._forward_pre_hooks or module._forward_hooks:
            hooks = {**module._forward_pre_hooks, **module._forward_hooks}
            numbers += [number for number, hook in hooks.items() if not _is_ours(hook)]
    return tuple(numbers)


def _is_ours(hook: Callable[..., Any]) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("fair_tta.")


def check_present(model: nn.Module) -> None:
    """Raise `ModelError` if some weights have no values, as on the meta device."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    absent = next((name for name, tensor in tensors if tensor.is_meta), None)
    if absent is not None:
        raise ModelError(
            f"weights of `model` ({type(model).__name__}) have no values, such as {absent!r}: "
            "load it on a CPU or GPU, without `device_map` and offloading.",
            argument="model",
        )


_finite: WeakKeyDictionary[nn.Module, Hashable] = (
    WeakKeyDictionary()
)  # states that were checked


def check_finite(model: nn.Module | None) -> None:
    """Raise `ModelError` if weights are not finite, unless this state of them was checked before.

    Attention without a mask may swallow a NaN, so that answers do not show it.
    """
    if model is None:
        return
    state = state_of(model)
    if _finite.get(model) == state:
        return
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and weight.numel() and not _is_finite(weight):
            raise ModelError(
                f"weights of `model` ({type(model).__name__}) are not finite, such as {name!r}: "
                "they are damaged; if the model runs in half precision, try float32.",
                argument="model",
            )
    _finite[model] = state


@torch.no_grad()
def _is_finite(weight: Tensor) -> bool:
    try:
        return bool(torch.stack(torch.aminmax(weight)).isfinite().all())
    except _ODD:
        return True


def scale_from_log(log_scale: Any, name: str) -> float:
    """The inverse temperature from its logarithm, which a model keeps."""
    try:
        return math.exp(float(log_scale))
    except OverflowError as error:
        raise ModelError(
            f"the logit scale of {name} is too large for a number, so its weights may be damaged: "
            "load it again, or pass `scale`."
        ) from error


@contextmanager
def advise_on_error(model: nn.Module, tower: str) -> Iterator[None]:
    """Turn an error that comes of a tower's weights into a `ModelError` with advice.

    Any other error stays as it is: it may be about one image only.
    """
    try:
        yield
    except RuntimeError as error:
        advice = advice_for(model, str(error))
        if not advice:
            raise
        raise ModelError(f"{tower} fails: {error}{advice}") from error


def advice_for(model: nn.Module, error: str) -> str:
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


def computed_once(make: Callable[[Owner], Value]) -> Callable[[Owner], Value]:
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
        shared[id(weight)] = (
            nn.Parameter(weight.detach(), False) if is_plain else weight
        )
    try:
        return CallModule(copy.deepcopy(model, shared), call).eval()
    except Exception as error:  # modules may hold anything
        reason = f"{type(error).__name__}: {error}"
        raise TowerError(f"its modules cannot be copied ({reason})") from error
