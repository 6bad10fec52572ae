"""Load a model onto a device and in a precision; only one that is ours to change."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

from fair_tta.backends.protocol import Backend
from fair_tta.backends.resolve import resolve
from fair_tta.errors import FairTTAError

_DTYPES = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16", "float64")}

_AS_GOOD_AS_SAME = 0.02  # of the length of features: half precision differs by less


def load(
    model: Any,
    processor: Any = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Backend:
    """Make a `Backend` of whatever the user has, where and as it is wanted.

    Args:
        model: as for `resolve`.
        processor: as for `resolve`.
        device: such as ``"cuda"``; ``"auto"`` for an accelerator if there is one. None to leave the
            model where it is loaded.
        dtype: ``"bfloat16"``, ``"float16"``, ``"float32"`` or ``"float64"``, of torch too;
            ``"auto"`` for what the device is fast in. None for that of the file.

    Raises:
        FairTTAError: the model is an object, which stays as it is, or it cannot be moved.
    """
    for name, value in (("device", device), ("dtype", dtype)):
        if value is not None and not isinstance(model, str | Path):
            raise FairTTAError(
                f"`{name}` goes with a model that is loaded from a string. An object stays as it "
                f"is: move it yourself, as in model.to({str(value)!r}) (got {name}={value!r} and a "
                f"{type(model).__name__})."
            )
    where = None if device is None else find_device(device)
    what = None if dtype is None else find_dtype(dtype, where)
    backend = resolve(model, processor)
    if where is not None or what is not None:
        move(backend, where, what)
    return backend


def with_compiled_vision(backend: Backend) -> Backend:
    """The same model with its vision tower compiled.

    Some compilers make wrong code for some processors, or none, so a picture goes through both
    first; if they differ, a warning says so and the model comes back as it was.
    """
    make = getattr(backend, "with_compiled_vision", None)
    if make is None:
        raise FairTTAError(
            f"`compile_vision` needs a model of transformers or open_clip ({backend.name} is a "
            "backend of your own): compile its vision tower yourself."
        )
    compiled: Backend = make()
    picture = [Image.linear_gradient("L").convert("RGB")]
    own, result = backend.encode_images(picture).float(), "gives other features"
    try:
        other = compiled.encode_images(picture).float()
        if (other - own).norm() <= _AS_GOOD_AS_SAME * own.norm():  # not if anything is NaN
            return compiled
    except Exception as error:  # of a compiler: of any kind
        result = f"fails ({type(error).__name__})"
    warnings.warn(
        f"torch.compile (torch {torch.__version__}) {result} on this machine: the vision tower "
        "stays as it is.",
        stacklevel=3,
    )
    return backend


def move(backend: Backend, device: torch.device | None, dtype: torch.dtype | None = None) -> None:
    """Move a model; its single numbers, such as the temperature, keep their precision."""
    model = getattr(backend, "model", None)
    if not isinstance(model, nn.Module):
        raise FairTTAError(
            f"`device` and `dtype` need a model of torch to move ({backend.name} shows none)."
        )
    numbers = [(p, p.detach().clone()) for p in model.parameters() if p.ndim == 0]
    try:
        model.to(device=device, dtype=dtype)
        for parameter, value in numbers:
            parameter.data = value.to(parameter.device)
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        raise FairTTAError(f"`device` {str(device)!r} cannot be used: {error}") from error


def find_device(device: str | torch.device) -> torch.device:
    """The device of a name; of "auto" the accelerator of this machine, or its CPU."""
    if device == "auto":
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return torch.device("cpu") if found is None else found
    try:
        found = torch.device(device)
        if found.type == "meta":
            raise TypeError("it holds no numbers")
    except (RuntimeError, TypeError) as error:
        raise FairTTAError(
            f"`device` {str(device)!r} cannot be used: it should be 'auto', 'cpu', 'cuda', 'mps' "
            "or another device of torch."
        ) from error
    return found


def find_dtype(dtype: str | torch.dtype, device: torch.device | None) -> torch.dtype:
    """The dtype of a name; of "auto" bfloat16 on accelerators that have it, else float16.

    On a CPU "auto" is float32: few are faster in less.
    """
    if isinstance(dtype, torch.dtype) and dtype in _DTYPES.values():
        return dtype
    if dtype == "auto":
        if device is None or device.type == "cpu":
            return torch.float32
        has_bfloat16 = device.type != "cuda" or torch.cuda.is_bf16_supported(False)
        return torch.bfloat16 if has_bfloat16 else torch.float16
    if isinstance(dtype, str) and dtype in _DTYPES:
        found: torch.dtype = _DTYPES[dtype]
        return found
    raise FairTTAError(
        f"`dtype` should be 'auto', {', '.join(map(repr, _DTYPES))} (got {dtype!r})."
    )
