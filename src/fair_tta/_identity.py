"""Which weights, settings and machine a result comes from."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from dis import get_instructions
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib import metadata
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fair_tta._models.load import model_name, model_origin
from fair_tta._prompts.templates import Templates
from fair_tta.methods._reference import Reference
from fair_tta.methods._registry import lasting_repr, origin


def weights_hash(model: nn.Module) -> str | None:
    """SHA-256 of all weights and buffers with their names, dtypes and shapes.

    The same on every device. None for weights that are not there to be read (meta tensors) or are
    not plain tensors.
    """
    digest = sha256()
    try:
        for name, tensor in sorted(model.state_dict().items()):
            if not isinstance(tensor, Tensor):
                continue  # extra state of a module
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            plain = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(plain.view(torch.uint8).numpy().data)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return digest.hexdigest()


_LASTING = ("fair_tta", "torch", "torchjd", "numpy", "PIL", "builtins", "typing", "functools")
_PLAIN = (str, bool, int, float, tuple)
_GLOBAL = "LOAD_GLOBAL"  # not `co_names`: these are names of attributes too
_DEEPEST = 8  # objects within objects; what is deeper has only its name


def adapter_settings(adapter: Any) -> dict[str, Any]:
    """Name, repr and fields of an adapter or of another frozen strategy."""
    described = plain(adapter)
    if not isinstance(described, dict):
        described = {"name": lasting_name(adapter), "settings": {}}
    return {**described, "repr": lasting_name(adapter)}


def plain(value: Any, depth: int = 0) -> Any:
    """As JSON. Objects become names and what they hold, functions and classes of others also
    digests of their code, and numbers that JSON lacks strings.

    What code calls in other modules is not looked at.
    """
    inner = functools.partial(plain, depth=depth + 1)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.generic):
        return inner(value.item())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): inner(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [inner(item) for item in value]
    if isinstance(value, set | frozenset):  # whose order differs from process to process
        items = sorted(json.dumps(inner(item)) for item in value)
        return {"name": type(value).__name__, "settings": {"items": items}}
    if isinstance(value, Templates):
        return inner(value.sentences)
    if isinstance(value, Reference):
        return {"name": "Reference", "settings": {"images": value.images, "sha256": value.digest}}
    return _of_object(value, inner) if depth < _DEEPEST else lasting_name(value)


def _of_object(value: Any, inner: Any) -> Any:
    file = origin(value)
    if isinstance(value, type):
        settings = file or _class_code(value, inner)
        name = f"{value.__module__}.{value.__qualname__}"
        return {"name": value.__qualname__, "settings": settings} if settings else name
    settings = {**_settings(value, inner), **(file or _class_code(type(value), inner))}
    if not settings and not dataclasses.is_dataclass(value):
        return lasting_name(value)
    name = type(value).__name__ if dataclasses.is_dataclass(value) else lasting_name(value)
    return {"name": name, "settings": settings}


def _settings(value: Any, inner: Any) -> dict[str, Any]:
    """What an object holds besides its name."""
    if dataclasses.is_dataclass(value):
        return {f.name: inner(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, functools.partial):
        parts = {"function": value.func, "args": value.args, "keywords": value.keywords}
        return dict(inner(parts))
    if isinstance(value, nn.Module):
        plainly = {k: v for k, v in vars(value).items() if isinstance(v, str | bool | int | float)}
        return {"weights_sha256": weights_hash(value), "built": _digest(repr(value)), **plainly}
    if isinstance(value, Tensor):
        value = value.detach().cpu().float().numpy()
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "sha256": _digest(value.tobytes())}
    if isinstance(value, Image.Image):
        return {"size": list(value.size), "mode": value.mode, "sha256": _digest(value.tobytes())}
    if inspect.isfunction(value):
        return _of_function(value, inner)
    if inspect.ismethod(value):
        return {"of": inner(value.__self__), "function": inner(value.__func__)}
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return dict(inner(held | getattr(value, "__dict__", {})))


def _of_function(function: FunctionType, inner: Any) -> dict[str, Any]:
    """Its code, defaults, what it holds, and what it finds around it."""
    if origin(function):
        return {}
    held = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            held.append(cell.cell_contents)
    parts = {
        "defaults": inner([function.__defaults__, function.__kwdefaults__]),
        "held": inner(held),
        "around": _around(function, inner),
    }
    found = {name: part for name, part in parts.items() if part not in ([], {}, [None, None])}
    return {"code_sha256": _digest(repr(_code(function.__code__))), **found}


def _around(function: FunctionType, inner: Any) -> dict[str, Any]:
    """The plain values and functions that it names, and those that functions of its module name."""
    found: dict[str, Any] = {}
    waiting = [function.__code__]
    for code in waiting:
        waiting += [part for part in code.co_consts if isinstance(part, CodeType)]
        for name in (step.argval for step in get_instructions(code) if step.opname == _GLOBAL):
            value = None if name in found else function.__globals__.get(name)
            if isinstance(value, _PLAIN):
                found[name] = inner(value)
            elif inspect.isfunction(value):
                found[name] = _digest(repr(_code(value.__code__)))
                waiting += [value.__code__] * (value.__globals__ is function.__globals__)
    return found


def _class_code(kind: type, inner: Any) -> dict[str, str]:
    """Of classes of others, whose code may change while their name and fields stay."""
    parts: list[Any] = []
    for base in kind.__mro__:
        if base.__module__.split(".")[0] in _LASTING:
            continue
        for name, member in vars(base).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if inspect.isfunction(function):
                parts += [_code(function.__code__), _around(function, inner)]
            elif isinstance(member, _PLAIN) and not name.startswith("__"):
                parts.append([name, inner(member)])
    return {"code_sha256": _digest(repr(parts))} if parts else {}


def lasting_name(value: Any) -> str:
    """Its repr if that says something lasting, else the name of the function or class."""
    text = lasting_repr(value)
    if " at 0x" not in text:
        return text
    function = getattr(value, "func", value)  # of a partial
    return str(getattr(function, "__qualname__", type(value).__qualname__))


def _code(code: CodeType) -> list[Any]:
    """What a function does, wherever its file is."""
    return [code.co_code, code.co_names, [_constant(constant) for constant in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(map(repr, value))  # in no order that lasts
    return _code(value) if isinstance(value, CodeType) else repr(value)


def _digest(data: bytes | str) -> str:
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return sha256(data).hexdigest()[:16]


PACKAGES = (
    "torch",
    "transformers",
    "open_clip_torch",
    "torchjd",
    "numpy",
    "pillow",
    "opencv-python-headless",
)

ORIGIN = ("model", "prompts", "views", "seed")
"""Entries that say where a run comes from, beside the environment; None if it is not known."""


def environment() -> dict[str, Any]:
    """Time, versions and machine."""
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "fair_tta": version("fair-tta"),
        "packages": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": {
            "platform": platform.platform(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
            "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def classifier_provenance(classifier: Any) -> dict[str, Any]:
    """Model, prompts, views and seed of a `FairTPTClassifier`."""
    task, vision = classifier.task, classifier.vision
    return {
        "model": {**model_identity(classifier.backend), "scale": task.scale},
        "prompts": {
            "targets": dict(task.targets),
            "sensitive": {a: dict(names) for a, names in task.sensitive.items()},
            "template": task.templates.sentences,
        },
        "views": {"repr": lasting_name(vision.views), "n": getattr(vision.views, "n", None)},
        "seed": vision.seed,
    }


def model_identity(backend: Any) -> dict[str, Any]:
    """Name, size and hash of a model. What a backend does not tell is None.

    A model of a folder has the name of the folder, without the way to it.
    """
    model = getattr(backend, "model", None)
    model = model if isinstance(model, nn.Module) else None
    return {
        "name": model_name(backend),
        "class": type(backend if model is None else model).__name__,
        "origin": model_origin(backend) or None,
        "parameters": None if model is None else sum(p.numel() for p in model.parameters()),
        "weights_sha256": None if model is None else weights_hash(model),
        "device": str(backend.device),
        "dtype": str(backend.dtype),
    }


@cache
def version(package: str) -> str | None:
    """Of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
