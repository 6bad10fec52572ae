"""Notice that weights have changed, without reading all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor, nn

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
