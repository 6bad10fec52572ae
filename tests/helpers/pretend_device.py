"""A second device written in Python, to test device code on a machine without an accelerator.

Tensors on "pretend" hold CPU data, refuse to be mixed with CPU tensors and have no float64, as MPS
has none. They run autograd. Registering a device changes the process for good, and models are to be
built before, since transformers fills their buffers with functions that are exchanged here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._pytree import tree_map

NAME = "pretend"


class _Module(backend_registration._DummyBackendModule):
    """What torch asks of a device besides its operations."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.zeros(8, dtype=torch.uint8)

    def set_rng_state(self, state: Any, device: Any = None) -> None:
        pass


class Pretend(Tensor):
    """A tensor on the device; `raw` is where its numbers are."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor, requires_grad: bool = False) -> Pretend:
        if raw.dtype == torch.float64:
            raise TypeError(f"the device {NAME!r} has no float64")
        tensor: Pretend = Tensor._make_wrapper_subclass(
            cls, raw.size(), strides=raw.stride(), dtype=raw.dtype,
            device=torch.device(NAME, 0), requires_grad=requires_grad,
        )  # fmt: skip
        tensor.raw = raw
        return tensor

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.raw.data_ptr()

    def untyped_storage(self) -> Any:
        return self.raw.untyped_storage()

    def new_tensor(self, data: Any, dtype: Any = None, **_: Any) -> Tensor:  # type: ignore[override]
        return _tensor(data, dtype=dtype or self.dtype).to(NAME)

    def __getitem__(self, index: Any) -> Tensor:
        """Lists as indices go through a constructor that this device lacks."""
        indices = index if isinstance(index, tuple) else (index,)
        indices = tuple(
            _tensor(i).to(NAME) if isinstance(i, list) else i for i in indices
        )
        return Tensor.__getitem__(
            self, indices if isinstance(index, tuple) else indices[0]
        )

    def __deepcopy__(self, memo: Any) -> Pretend:
        return Pretend(self.raw.clone(), self.requires_grad)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation, on the CPU, if all its tensors are where they should be."""
    name = func.__name__
    tensors: list[Tensor] = []
    tree_map(
        lambda x: tensors.append(x) if isinstance(x, Tensor) else None, (args, kwargs)
    )
    ours = [tensor for tensor in tensors if isinstance(tensor, Pretend)]
    if name.startswith("_to_copy"):
        source, device = args[0], kwargs.get("device")
        if _is_ours(device):
            return Pretend(func(_bare(source), **{**kwargs, "device": "cpu"}))
        copied = func(_bare(source), **kwargs)
        return (
            Pretend(copied)
            if isinstance(source, Pretend) and device is None
            else copied
        )
    if name.startswith("_local_scalar_dense"):
        return func(_bare(args[0]))
    if name.startswith("copy_"):
        _bare(args[0]).copy_(_bare(args[1]))
        return args[0]
    plain_tensors = [t for t in tensors if not isinstance(t, Pretend) and t.dim()]
    if ours and plain_tensors and not name.startswith(("index", "_index")):
        raise RuntimeError(f"{name} mixes devices")
    known = {id(tensor.raw): tensor for tensor in ours}
    result = func(*tree_map(_bare, args), **tree_map(_bare, kwargs))

    def wrap(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return known[id(x)] if id(x) in known else Pretend(x)

    return tree_map(wrap, result)


def _bare(x: Any) -> Any:
    if isinstance(x, Pretend):
        return x.raw
    return torch.device("cpu") if isinstance(x, torch.device) and x.type == NAME else x


def _is_ours(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


_tensor, _as_tensor = torch.tensor, torch.as_tensor
_library: list[Any] = []  # to be kept


def register() -> None:
    """Make the device; once, in a process of its own."""
    backend_registration._setup_privateuseone_for_python_backend(
        rename=NAME, backend_module=_Module()
    )
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs), "PrivateUse1")
    _library.append(library)

    def tensor(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        is_pretend = _is_ours(device)
        tensor_made = _tensor(data, device=None if is_pretend else device, **options)
        return tensor_made.to(NAME) if is_pretend else tensor_made

    def as_tensor(data: Any, device: Any = None, **options: Any) -> Tensor:
        is_pretend = _is_ours(device)
        tensor_made = _as_tensor(data, device=None if is_pretend else device, **options)
        return tensor_made.to(NAME) if is_pretend else tensor_made

    vars(torch).update(tensor=tensor, as_tensor=as_tensor)
