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
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from fair_tta._linalg import unit_features
from fair_tta.images._vision import probe_image
from fair_tta.models._loading import backend_name, model_origin
from fair_tta.models._stored_text import sees_images
from fair_tta.prompts._templates import Templates

_PACKAGES = (
    "torch transformers open_clip_torch torchjd numpy pillow opencv-python-headless"
)

ORIGIN = ("model", "prompts", "views", "seed")
"""Entries of a run's provenance beside the environment; None where they are not known."""

# Their versions are recorded, so their code needs no digest.
_VERSIONED_PACKAGES = {
    "fair_tta",
    "torch",
    "torchjd",
    "numpy",
    "PIL",
    "builtins",
    "typing",
    "functools",
}
# Of objects within objects, deeper ones are known by name only: cycles end here.
_MAX_DEPTH = 8
_USER_MODULE = re.compile(r"fair_tta_user_file_\w+\.")  # see `methods._user_files`


def content_digest(data: bytes) -> str:
    """Return the short digest by which contents are known."""
    return blake2b(data, digest_size=16).hexdigest()


def fingerprint(value: Any) -> str | None:
    """Return a digest of settings, of user-defined code, and of the order of names.

    None if two different values could have the same one, as with a lambda: what is neither a
    frozen dataclass nor defined in a file has no lasting identity.
    """
    describer = _Describer()
    described = json.dumps(describer.describe(value))
    if describer.known_by_name_only:
        return None
    return content_digest(described.encode())


def describe(value: Any) -> Any:
    """Return a value as JSON.

    Objects become their names, their settings and the digest of the file that defines them, if it
    is the user's; numbers that JSON lacks become strings.
    """
    return _Describer().describe(value)


def describe_adapter(adapter: Any) -> dict[str, Any]:
    """Return name, repr and settings of an adapter or of another frozen strategy."""
    described = describe(adapter)
    if not isinstance(described, dict):
        described = {"name": lasting_name(adapter), "settings": {}}
    return {**described, "repr": lasting_name(adapter)}


def lasting_name(value: Any) -> str:
    """Return a value's repr without memory addresses, or the name of its function or class."""
    text = _USER_MODULE.sub("", repr(value))
    if " at 0x" not in text:
        return text
    function = getattr(value, "func", value)  # the function of a partial
    return str(getattr(function, "__qualname__", type(value).__qualname__))


class _Describer:
    """Turns values into JSON and notes those of which only a name is known."""

    def __init__(self) -> None:
        self.known_by_name_only: list[str] = []

    def describe(self, value: Any, depth: int = 0) -> Any:
        """Return a value as JSON; `depth` objects are around it."""
        if value is None or isinstance(value, str | bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, np.generic):
            return self.describe(value.item(), depth)
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, Enum):
            return str(value)
        if isinstance(value, Mapping):
            return self._describe_items(value, depth)
        if isinstance(value, list | tuple):
            return [self.describe(element, depth + 1) for element in value]
        if isinstance(value, set | frozenset):
            # Sorted, because the order of a set differs from process to process.
            elements = [json.dumps(self.describe(e, depth + 1)) for e in value]
            settings = {"items": sorted(elements)}
            return {"name": type(value).__name__, "settings": settings}
        if isinstance(value, Templates):
            return self._describe_items(value.sentences, depth)
        if (
            isinstance(value, type)
            or inspect.isfunction(value)
            or inspect.isbuiltin(value)
        ):
            return self._describe_code(value)
        return self._describe_object(value, depth)

    def _describe_items(self, mapping: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        return {str(key): self.describe(mapping[key], depth + 1) for key in mapping}

    def _describe_code(self, function: Any) -> Any:
        """Return the name of a function or class, with the digest of the user's file."""
        code = _code_of(function)
        # "<lambda>" and "<locals>": two of them may have the same name.
        if code is None or "<" in function.__qualname__:
            return self._name_only(lasting_name(function))
        if code:
            return {"name": function.__qualname__, "settings": code}
        return f"{function.__module__}.{function.__qualname__}"

    def _describe_object(self, value: Any, depth: int) -> Any:
        """Return name and settings of an object, with the digest of the user's file."""
        code = _code_of(value)
        name, settings = self._name_and_settings(value, code, depth)
        if settings is None:
            return self._name_only(name)
        if code and not isinstance(value, functools.partial):
            settings = {**settings, **code}
        if settings or name != lasting_name(value):
            return {"name": name, "settings": settings}
        return name

    def _name_and_settings(
        self, value: Any, code: dict[str, str] | None, depth: int
    ) -> tuple[str, dict[str, Any] | None]:
        """Return settings by kind of object, None if they cannot be known."""
        type_name = type(value).__name__
        if depth >= _MAX_DEPTH:
            return lasting_name(value), None
        if hasattr(value, "_identity_settings"):  # large values know their digest
            return type_name, value._identity_settings()
        if dataclasses.is_dataclass(value):
            is_frozen = getattr(value, "__dataclass_params__").frozen  # noqa: B009
            if code is None and not is_frozen:
                return type_name, None
            names = [field.name for field in dataclasses.fields(value)]
            fields = {name: getattr(value, name) for name in names}
            return type_name, self._describe_items(fields, depth)
        name = lasting_name(value)
        if isinstance(value, functools.partial):
            call = {
                "function": value.func,
                "args": value.args,
                "keywords": value.keywords,
            }
            return name, self._describe_items(call, depth + 1)
        if isinstance(value, nn.Module):
            return name, _module_settings(value)
        if isinstance(value, Tensor | np.ndarray):
            return type_name, _array_settings(value)
        if code is not None and hasattr(value, "__dict__"):
            return name, self._describe_items(vars(value), depth + 1)
        return name, None

    def _name_only(self, name: str) -> str:
        self.known_by_name_only.append(name)
        return name


def _module_settings(module: nn.Module) -> dict[str, Any]:
    """Return the digest of the weights of a module, and its plain attributes."""
    settings: dict[str, Any] = {"weights_sha256": weights_hash(module)}
    for name, attribute in vars(module).items():
        if isinstance(attribute, str | bool | int | float):
            settings[name] = attribute
    return settings


def _array_settings(array: Tensor | npt.NDArray[Any]) -> dict[str, Any]:
    """Return shape and digest of numbers."""
    if isinstance(array, Tensor):
        array = array.detach().cpu().float().numpy()
    return {"shape": list(array.shape), "digest": content_digest(array.tobytes())}


def _code_of(value: Any) -> dict[str, str] | None:
    """Return ``{"my_file.py": "sha256:..."}`` of what the user defined.

    Empty for what belongs to a package with a version; None if the code cannot be found.
    """
    value = getattr(value, "func", value)  # the function of a partial
    is_code = isinstance(value, type) or inspect.isroutine(value)
    defined = value if is_code else type(value)
    module = sys.modules.get(getattr(defined, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    package = sys.modules.get((defined.__module__ or "").partition(".")[0])
    if package is not None and package.__name__ in _VERSIONED_PACKAGES:
        # A user's file may pretend to belong to a package: it has to lie in its folder.
        home = getattr(package, "__file__", None)
        if not file or not home or Path(file).is_relative_to(Path(home).parent):
            return {}
    try:
        if module is None or not file:
            source = inspect.getsource(defined).encode()
            return {"source": f"sha256:{sha256(source).hexdigest()}"}
        digests = {}
        for path in _files_of(module):
            digests[path.name] = f"sha256:{sha256(path.read_bytes()).hexdigest()}"
        return digests
    except (OSError, TypeError):
        return None


def _files_of(module: ModuleType) -> list[Path]:
    """Return the file of a module, and those beside it that it imports, and they in turn."""
    modules = [module]
    files: list[Path] = []
    for imported in modules:  # the list grows while it is read
        file = Path(getattr(imported, "__file__", None) or "")
        is_elsewhere = bool(files) and file.parent != files[0].parent
        if file in files or is_elsewhere:
            continue
        files.append(file)
        for attribute in list(vars(imported).values()):
            home = getattr(attribute, "__module__", None)
            if isinstance(attribute, ModuleType):
                modules.append(attribute)
            elif isinstance(home, str) and home in sys.modules:
                modules.append(sys.modules[home])
    return files


def weights_hash(model: nn.Module) -> str | None:
    """SHA-256 of all weights and buffers with their names, dtypes and shapes.

    The same on every device. None for weights that cannot be read (meta tensors) or are not plain
    tensors.
    """
    digest = sha256()
    # Sorted by name, so that the order in which modules were registered does not matter.
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
        "name": backend_name(backend),
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
    # A user-defined backend may have no module, or weights that cannot be read.
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
