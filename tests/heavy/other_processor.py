"""A processor that nobody has: `pytest -p other_processor` rounds torch's products otherwise.

What a product or a sum gives is moved by up to three units in its last place, by an amount that
depends on its shape and place: the same call gives the same bits, but another batch, or another
place in it, does not. So do real processors, each in its own way. Exact zeros stay.
Only in this process: tests that compare with what another process computes are not for it.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

UNITS = {torch.float32: 2e-7, torch.float64: 4e-16}
ROUNDING = set(
    "linear matmul mm mv dot bmm addmm addmv baddbmm conv2d convolution convolution_backward "
    "layer_norm native_layer_norm native_layer_norm_backward native_group_norm linalg_vector_norm "
    "softmax _softmax _softmax_backward_data log_softmax _log_softmax _log_softmax_backward_data "
    "exp logsumexp gelu scaled_dot_product_attention _scaled_dot_product_attention_math "
    "_scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward".split()
)


def moved(value: Any) -> Any:
    """A tensor, or each of several, in other last digits."""
    if isinstance(value, tuple):
        return tuple(map(moved, value))
    if not isinstance(value, Tensor) or value.dtype not in UNITS:
        return value
    seed = zlib.crc32(repr(tuple(value.shape)).encode())
    generator = torch.Generator().manual_seed(seed)
    amount = 2 * torch.rand(value.shape, generator=generator, dtype=value.dtype) - 1
    return value + UNITS[value.dtype] * amount * value


class OtherProcessor(TorchDispatchMode):
    """Every result of an operation of `ROUNDING` is moved."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        value = func(*args, **(kwargs or {}))
        return moved(value) if func.overloadpacket.__name__ in ROUNDING else value


@pytest.fixture(autouse=True, scope="session")
def _other_processor() -> Iterator[None]:
    """In this thread and in every new one."""
    run = threading.Thread.run

    def otherwise(thread: threading.Thread) -> None:
        with OtherProcessor():
            run(thread)

    with pytest.MonkeyPatch.context() as patch, OtherProcessor():
        patch.setattr(threading.Thread, "run", otherwise)
        yield
