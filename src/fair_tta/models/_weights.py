"""Weights of the user's model: changes since the last look, damage, mixed dtypes and devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fair_tta.errors import ModelError

# Errors of tensors that are sharded over devices or otherwise not plain.
_TENSOR_ERRORS = (RuntimeError, NotImplementedError, TypeError)


class WeightChangeDetector:
    """Comparison of a model with an accepted state by PyTorch's counts, without reading weights.

    A copy starts without an accepted state, so that it finds its model changed.
    """

    def __init__(self) -> None:
        self._accepted: Hashable = None
        # Objects of the accepted state, kept alive so that nothing new gets their ids or addresses.
        self._kept_alive: list[object] = []

    def __reduce__(self) -> tuple[type[WeightChangeDetector], tuple[()]]:
        return WeightChangeDetector, ()

    def has_changed(self, model: nn.Module | None) -> bool:
        """Return whether modules, hooks or weights differ from the accepted state."""
        return state_of(model) != self._accepted

    def accept(self, model: nn.Module | None) -> None:
        """Compare with the present state from now on."""
        modules = modules_of(model)
        tensors = _parameters_and_buffers(modules)
        storages = [tensor.detach() for tensor in tensors]
        self._kept_alive = [modules, tensors, storages]
        self._accepted = state_of(model)


def state_of(model: nn.Module | None) -> Hashable:
    """Return a value that changes with the modules, forward hooks or weights of a model.

    Of each parameter and buffer it has the identity, the address and PyTorch's count of changes in
    place. That count misses what is written through ``.data`` or NumPy, and tensors made in
    inference mode have none.
    """
    modules = modules_of(model)
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
        return tuple(_number_or_none(read, tensor) for tensor in tensors)


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
    # All weights are read, so once per state is enough.
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


def modules_of(module: nn.Module | None) -> list[nn.Module]:
    """Return all modules, faster than `nn.Module.modules`, which removes repeats."""
    modules: list[nn.Module] = []
    waiting: list[nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is not None:
            modules.append(part)
            waiting += part._modules.values()
    return modules
