"""The device that tests in `on_device` run on, and what goes to and from it.

FAIR_TTA_TEST_DEVICE=cuda (or mps, xpu) runs them on a real one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fair_tta.models import Backend

PRETEND = "pretend"
NAME = os.environ.get("FAIR_TTA_TEST_DEVICE", PRETEND)

# They wait for the device without a copy that shows: for a count, a number or an error code.
_WAIT = (
    "_local_scalar_dense", "nonzero", "masked_select", "unique", "_linalg_check_errors",
    "_linalg_svd", "_linalg_eigh", "equal", "is_nonzero", "bincount", "repeat_interleave.Tensor",
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """The same model on the CPU and on the device."""

    cpu: Backend
    there: Backend


def why_not() -> str | None:
    """Why the tests cannot run here, in words."""
    if NAME == PRETEND:
        if hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
            return None
        return f"torch {torch.__version__} cannot register a device written in Python"
    device_module: Any = getattr(torch, NAME, None) or getattr(
        torch.backends, NAME, None
    )
    if device_module is None:
        return f"torch does not know FAIR_TTA_TEST_DEVICE={NAME}"
    return None if device_module.is_available() else f"there is no device {NAME!r} here"


def open_device() -> torch.device:
    """The device, made first if it is the one in Python. Models are to be built before."""
    if NAME == PRETEND:
        import pretend_device

        pretend_device.register()
    return torch.device(NAME, 0)


@dataclass
class Traffic(TorchDispatchMode):
    """Counts operations on the device, copies to the host and uploads while it is entered."""

    device: torch.device
    operations: int = 0
    to_host: int = 0
    uploads: int = 0
    uploaded: int = 0
    """Bytes."""
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.__name__
        before, after = self._places((args, kwargs)), self._places(result)
        if name.startswith(("_to_copy", "copy_")):
            target, source = (result, args[0]) if name.startswith("_to") else args[:2]
            if self._here(source) and not self._here(target):
                self._note_copy(name, source)
            elif self._here(target) and not self._here(source):
                self.uploads += 1
                self.uploaded += source.nbytes
        elif before and (name.startswith(_WAIT) or self._by_mask(name, args)):
            self._note_copy(name, args[0])
        self.operations += bool(before or after)
        return result

    def _note_copy(self, name: str, tensor: Tensor) -> None:
        self.to_host += 1
        self.names.append(f"{name} {list(tensor.shape)}")

    def _here(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.device.type == self.device.type

    def _places(self, values: Any) -> bool:
        return any(self._here(leaf) for leaf in tree_leaves(values))

    def _by_mask(self, name: str, args: Any) -> bool:
        """Indexing with a mask has to know how many are True."""
        masks = args[1] if name.startswith("index") and len(args) > 1 else ()
        mask_list = masks if isinstance(masks, list | tuple) else ()
        return any(isinstance(m, Tensor) and m.dtype == torch.bool for m in mask_list)


skip_without_device = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
