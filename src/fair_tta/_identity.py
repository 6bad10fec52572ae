"""Which weights, settings, code and machine a result comes from."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from hashlib import blake2b, sha256
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fair_tta._linalg import unit_features
from fair_tta.images._vision import probe_image
from fair_tta.models._loading import model_name, model_origin
from fair_tta.models._stored_text import sees_images
from fair_tta.prompts._templates import Templates

_PACKAGES = (
    "torch transformers open_clip_torch torchjd numpy pillow opencv-python-headless"
)

ORIGIN = ("model", "prompts", "views", "seed")
"""Entries that say where a run comes from, beside the environment; None if it is not known."""

_LASTING = {
    "fair_tta",
    "torch",
    "torchjd",
    "numpy",
    "PIL",
    "builtins",
    "typing",
    "functools",
}
_DEEPEST = 8  # objects within objects; what is deeper has only its name
_USER_MODULE = re.compile(r"fair_tta_user_file_\w+\.")  # see `methods._registry`


def content_digest(data: bytes) -> str:
    """The digest by which contents are known."""
    return blake2b(data, digest_size=16).hexdigest()


def fingerprint(value: Any) -> str | None:
    """A digest of settings, of code that the user defined, and of the order of names.

    None if two values that differ could have the same, as with a lambda: what is neither a frozen
    dataclass nor defined in a file has no lasting identity.
    """
    unknown: list[str] = []
    described = json.dumps(_described(value, unknown))
    return None if unknown else content_digest(described.encode())


def describe(value: Any) -> Any:
    """As JSON. Objects become their names, their settings and the digest of the file that defines
    them, if it is the user's; numbers that JSON lacks become strings."""
    return _described(value, [])


def describe_adapter(adapter: Any) -> dict[str, Any]:
    """Name, repr and settings of an adapter or of another frozen strategy."""
    described = describe(adapter)
    if not isinstance(described, dict):
        described = {"name": lasting_name(adapter), "settings": {}}
    return {**described, "repr": lasting_name(adapter)}


def lasting_name(value: Any) -> str:
    """Its repr without addresses and the modules of files, else the name of function or class."""
    text = _USER_MODULE.sub("", repr(value))
    if " at 0x" not in text:
        return text
    function = getattr(value, "func", value)  # of a partial
    return str(getattr(function, "__qualname__", type(value).__qualname__))


def _described(value: Any, unknown: list[str], depth: int = 0) -> Any:
    """As JSON; what is known by its name only is added to `unknown`."""
    inner = functools.partial(_described, unknown=unknown, depth=depth + 1)
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
    if isinstance(
        value, set | frozenset
    ):  # whose order differs from process to process
        items = sorted(json.dumps(inner(item)) for item in value)
        return {"name": type(value).__name__, "settings": {"items": items}}
    if isinstance(value, Templates):
        return inner(value.sentences)
    name, code = lasting_name(value), _code_of(value)
    settings: Any = None
    if isinstance(value, type) or inspect.isfunction(value) or inspect.isbuiltin(value):
        if code is not None and "<" not in value.__qualname__:  # "<lambda>", "<locals>"
            name = (
                value.__qualname__
                if code
                else f"{value.__module__}.{value.__qualname__}"
            )
            return {"name": name, "settings": code} if code else name
    elif depth >= _DEEPEST:
        pass
    elif hasattr(value, "_identity_settings"):  # large values know their digest
        name, settings = type(value).__name__, value._identity_settings()
    elif dataclasses.is_dataclass(value):
        name = type(value).__name__
        if code is not None or getattr(value, "__dataclass_params__").frozen:  # noqa: B009
            settings = {
                f.name: inner(getattr(value, f.name)) for f in dataclasses.fields(value)
            }
    elif isinstance(value, functools.partial):
        settings = inner(
            {"function": value.func, "args": value.args, "keywords": value.keywords}
        )
        code = {}
    elif isinstance(value, nn.Module):
        plainly = {
            k: v
            for k, v in vars(value).items()
            if isinstance(v, str | bool | int | float)
        }
        settings = {"weights_sha256": weights_hash(value), **plainly}
    elif isinstance(value, Tensor | np.ndarray):
        array = (
            value.detach().cpu().float().numpy() if isinstance(value, Tensor) else value
        )
        name = type(value).__name__
        settings = {
            "shape": list(array.shape),
            "digest": content_digest(array.tobytes()),
        }
    elif code is not None and hasattr(value, "__dict__"):
        settings = inner(vars(value))
    if settings is None:
        unknown.append(name)
        return name
    settings = {**settings, **(code or {})}
    return (
        {"name": name, "settings": settings}
        if settings or name != lasting_name(value)
        else name
    )


def _code_of(value: Any) -> dict[str, str] | None:
    """``{"my_file.py": "sha256:..."}`` of what the user defined, nothing for what lasts, None if
    the code cannot be found."""
    value = getattr(value, "func", value)  # of a partial
    defined = (
        value if isinstance(value, type) or inspect.isroutine(value) else type(value)
    )
    module = sys.modules.get(getattr(defined, "__module__", None) or "")
    package = sys.modules.get((defined.__module__ or "").partition(".")[0])
    file = getattr(module, "__file__", None)
    if package is not None and package.__name__ in _LASTING:
        home = getattr(package, "__file__", None)
        if not file or not home or Path(file).is_relative_to(Path(home).parent):
            return {}
    try:
        if module is None or not file:
            source = inspect.getsource(defined).encode()
            return {"source": f"sha256:{sha256(source).hexdigest()}"}
        files = _files_of(module)
        return {
            path.name: f"sha256:{sha256(path.read_bytes()).hexdigest()}"
            for path in files
        }
    except (OSError, TypeError):
        return None


def _files_of(module: ModuleType) -> list[Path]:
    """Return the file of a module, and those beside it that it imports, and they in turn."""
    modules = [module]
    files: list[Path] = []
    for each in modules:  # grows while it is read
        file = Path(getattr(each, "__file__", None) or "")
        if file in files or (files and file.parent != files[0].parent):
            continue
        files.append(file)
        for value in [*vars(each).values()]:
            home = getattr(value, "__module__", None)
            imported = value if isinstance(value, ModuleType) else None
            if imported is None and isinstance(home, str):
                imported = sys.modules.get(home)
            if imported is not None:
                modules.append(imported)
    return files


def weights_hash(model: nn.Module) -> str | None:
    """SHA-256 of all weights and buffers with their names, dtypes and shapes.

    The same on every device. None for weights that cannot be read (meta tensors) or are not plain
    tensors.
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


def model_identity(backend: Any) -> dict[str, Any]:
    """Name, size and hash of a model; None for what is not known.

    A model of a folder has the name of the folder, without its path.
    """
    model = getattr(backend, "model", None)
    model = model if isinstance(model, nn.Module) else None
    return {
        "name": model_name(backend),
        "class": type(backend if model is None else model).__name__,
        "origin": model_origin(backend) or None,
        "parameters": None
        if model is None
        else sum(p.numel() for p in model.parameters()),
        "weights_sha256": None if model is None else weights_hash(model),
        "device": str(backend.device),
        "dtype": str(backend.dtype),
    }


def feature_identity(backend: Any, views: Any) -> dict[str, Any]:
    """All that features depend on besides image and seed, as JSON.

    The preprocessing is known by its output for a test image. A model whose weights cannot be read
    is known by the features of that image; the others also by how they are built, as the same
    weights give other features with another activation.
    """
    model = getattr(backend, "model", None)
    weights = weights_hash(model) if isinstance(model, nn.Module) else None
    preprocess: Callable[[list[Image.Image]], Tensor | None] | None
    sees = sees_images(backend)  # else features are stored
    preprocess = getattr(backend, "preprocess", None) if sees else None
    pixels = None if preprocess is None else preprocess([probe_image()])
    with torch.no_grad():
        features = backend.encode_images([probe_image()]) if sees else torch.empty(0)
    return {
        "weights": weights
        or f"features {_tensor_digest(unit_features(features).half())}",
        "architecture": None
        if weights is None
        else content_digest(repr(model).encode()),
        "preprocessing": None if pixels is None else _tensor_digest(pixels.float()),
        "views": describe(views),
        "dim": features.shape[-1],
    }


def classifier_provenance(classifier: Any) -> dict[str, Any]:
    """Model, prompts, views and seed of a `FairTPTClassifier`."""
    task, vision = classifier._task, classifier._vision
    return {
        "model": {**model_identity(classifier._backend), "scale": task.scale},
        "prompts": {
            "targets": dict(task.targets),
            "sensitive": {a: dict(names) for a, names in task.sensitive.items()},
            "template": task.templates.sentences,
        },
        "views": {
            "repr": lasting_name(vision.views),
            "n": getattr(vision.views, "n", None),
        },
        "seed": vision.seed,
    }


def environment() -> dict[str, Any]:
    """Time, versions and machine."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "fair_tta": version("fair-tta"),
        "packages": {name: version(name) for name in _PACKAGES.split()},
        "python": platform.python_version(),
        "machine": {
            "platform": platform.platform(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
            "accelerator": torch.cuda.get_device_name()
            if torch.cuda.is_available()
            else None,
        },
    }


@cache
def version(package: str) -> str | None:
    """Of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _tensor_digest(tensor: Tensor) -> str:
    return content_digest(tensor.numpy(force=True).tobytes())
