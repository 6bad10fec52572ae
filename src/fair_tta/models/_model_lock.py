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
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fair_tta.errors import ModelError, TowerError


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
            training = [part for part in _modules(module) if part.training]
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


def _modules(module: nn.Module | None) -> list[nn.Module]:
    """Return all modules, faster than `nn.Module.modules`, which removes repeats."""
    modules: list[nn.Module] = []
    waiting: list[nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is not None:
            modules.append(part)
            waiting += part._modules.values()
    return modules


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


_TENSOR_ERRORS = (RuntimeError, NotImplementedError, TypeError)
"""Errors of tensors that are sharded over devices or otherwise not plain ones."""


class WeightChangeDetector:
    """Comparison of a model with an accepted state by PyTorch's counts, without reading weights.

    A copy starts without an accepted state, so that it finds its model changed.
    """

    def __init__(self) -> None:
        self._accepted: Hashable = None
        # Objects of the accepted state, kept alive so that nothing new gets their ids or addresses.
        self._kept_alive: tuple[list[nn.Module], list[Tensor], list[Tensor]] = (
            [],
            [],
            [],
        )

    def __reduce__(self) -> tuple[type[WeightChangeDetector], tuple[()]]:
        return WeightChangeDetector, ()

    def has_changed(self, model: nn.Module | None) -> bool:
        """Return whether modules, hooks or weights differ from the accepted state."""
        return state_of(model) != self._accepted

    def accept(self, model: nn.Module | None) -> None:
        """Compare with the present state from now on."""
        modules = _modules(model)
        tensors = _parameters_and_buffers(modules)
        storages = [tensor.detach() for tensor in tensors]
        self._kept_alive = modules, tensors, storages
        self._accepted = state_of(model)


def state_of(model: nn.Module | None) -> Hashable:
    """Return a value that changes with the modules, forward hooks or weights of a model.

    Of each parameter and buffer it has the identity, the address and PyTorch's count of changes in
    place. That count misses what is written through ``.data`` or NumPy, and tensors made in
    inference mode have none.
    """
    modules = _modules(model)
    tensors = _parameters_and_buffers(modules)
    return (
        tuple(map(id, modules)),
        tuple(map(id, tensors)),
        _read_each(Tensor.data_ptr, tensors),
        _read_each(_version, tensors),
        _user_hooks(modules),
    )


def _read_each(
    read: Callable[[Tensor], int], tensors: list[Tensor]
) -> tuple[int | None, ...]:
    """Read a number of each tensor; None where a tensor has no such number."""
    try:
        return tuple(map(read, tensors))
    except _TENSOR_ERRORS:
        return tuple([_number_or_none(read, tensor) for tensor in tensors])


def _number_or_none(read: Callable[[Tensor], int], tensor: Tensor) -> int | None:
    try:
        return read(tensor)
    except _TENSOR_ERRORS:
        return None


_version = attrgetter("_version")


def _parameters_and_buffers(modules: list[nn.Module]) -> list[Tensor]:
    """Return all parameters and buffers."""
    tensors: list[Tensor | None] = []
    for module in modules:
        tensors += module._parameters.values()
        tensors += module._buffers.values()
    return [tensor for tensor in tensors if tensor is not None]


def _user_hooks(modules: list[nn.Module]) -> tuple[int, ...]:
    """Return PyTorch's numbers of the user's forward hooks, none of which is used twice.

    Hooks of this package last for one call, during which other threads may look at the model.
    """
    numbers: list[int] = []
    for module in modules:
        if module._forward_pre_hooks or module._forward_hooks:
            hooks = {**module._forward_pre_hooks, **module._forward_hooks}
            numbers += [number for number, hook in hooks.items() if not _is_ours(hook)]
    return tuple(numbers)


def _is_ours(hook: Callable[..., Any]) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("fair_tta.")


def check_weights_present(model: nn.Module) -> None:
    """Raise `ModelError` if some weights have no values, as on the meta device."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    absent = next((name for name, tensor in tensors if tensor.is_meta), None)
    if absent is not None:
        raise ModelError(
            f"weights of `model` ({type(model).__name__}) have no values, such as {absent!r}: "
            "load it on a CPU or GPU, without `device_map` and offloading.",
            argument="model",
        )


# The state in which each model was last found finite.
_finite_states: WeakKeyDictionary[nn.Module, Hashable] = WeakKeyDictionary()


def check_weights_finite(model: nn.Module | None) -> None:
    """Raise `ModelError` if weights are not finite, unless this state was checked before.

    Attention without a mask may hide a NaN, so that answers do not show it.
    """
    if model is None:
        return
    state = state_of(model)
    if _finite_states.get(model) == state:
        return
    for name, weight in model.named_parameters():
        if weight.is_floating_point() and weight.numel() and not _is_finite(weight):
            raise ModelError(
                f"weights of `model` ({type(model).__name__}) are not finite, such as {name!r}: "
                "they are damaged; if the model runs in half precision, try float32.",
                argument="model",
            )
    _finite_states[model] = state


@torch.no_grad()
def _is_finite(weight: Tensor) -> bool:
    try:
        return bool(torch.stack(torch.aminmax(weight)).isfinite().all())
    except _TENSOR_ERRORS:
        return True


def scale_from_log(log_scale: Any, name: str) -> float:
    """Return the inverse temperature from the logarithm that a model stores."""
    try:
        return math.exp(float(log_scale))
    except OverflowError as error:
        raise ModelError(
            f"the logit scale of {name} is too large for a float, so its weights may be damaged: "
            "load it again, or pass `scale`."
        ) from error


@contextmanager
def advise_on_error(model: nn.Module, tower: str) -> Iterator[None]:
    """Turn an error caused by the state of a tower's weights into a `ModelError` with advice.

    Any other error passes unchanged: it may be about one image only.
    """
    try:
        yield
    except RuntimeError as error:
        advice = advice_for(model, str(error))
        if not advice:
            raise
        raise ModelError(f"{tower} fails: {error}{advice}") from error


def advice_for(model: nn.Module, error: str) -> str:
    """Return advice if weights of several dtypes or devices explain the error, else ""."""
    # Single numbers, such as the temperature, keep their precision in half-precision models.
    weights = [p for p in model.parameters() if p.is_floating_point() and p.ndim > 0]
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in weights})
    devices = sorted({str(p.device) for p in weights})
    if len(dtypes) > 1 and "type" in error:
        advice = "convert all to one, as `model.float()` does"
        return f" (Its weights are in {' and '.join(dtypes)}: {advice}.)"
    if len(devices) > 1 and "device" in error:
        advice = "move all to one, as `model.to('cpu')` does"
        return f" (Its weights are on {' and '.join(devices)}: {advice}.)"
    return ""


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


TowerCall = Callable[[Any, Tensor], Tensor]


class CallModule(nn.Module):
    """A module whose forward is the call of a tower, as `functional_call` needs."""

    def __init__(self, model: nn.Module, call: TowerCall) -> None:
        super().__init__()
        self.model = model
        self._call = call

    def forward(self, inputs: Tensor) -> Tensor:
        return self._call(self.model, inputs)


def image_twin(model: nn.Module, call: TowerCall) -> nn.Module:
    """Return a private module from pixels to features, in eval mode.

    `torch.func.functional_call` puts other weights into modules while it runs, which other threads
    would see. A twin has its own modules, and shares the memory of the weights, so it takes next
    to none. Make one per call: it does not notice when the model gets other tensors.
    """
    # `deepcopy` takes what its memo has under an object's id instead of copying the object.
    memo: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    for weight in model.parameters():
        is_plain = type(weight) is nn.Parameter  # quantised ones are not
        memo[id(weight)] = (
            nn.Parameter(weight.detach(), requires_grad=False) if is_plain else weight
        )
    try:
        return CallModule(copy.deepcopy(model, memo), call).eval()
    except Exception as error:  # modules may hold anything
        reason = f"{type(error).__name__}: {error}"
        raise TowerError(f"its modules cannot be copied ({reason})") from error
