"""Where a result comes from: versions, machine, model, prompts and settings, as plain JSON."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fair_tta.miniature.model import FOLDER
from fair_tta.prompts import Templates

PACKAGES = (
    "torch",
    "transformers",
    "open_clip_torch",
    "torchjd",
    "numpy",
    "pillow",
    "opencv-python-headless",
)


def environment() -> dict[str, Any]:
    """Time, versions and machine."""
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "fair_tta": _version("fair-tta"),
        "packages": {name: _version(name) for name in PACKAGES},
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
            "template": _sentences(task.templates),
        },
        "views": {"repr": _name(vision.views), "n": getattr(vision.views, "n", None)},
        "seed": vision.seed,
    }


def model_identity(backend: Any) -> dict[str, Any]:
    """Name, size and hash of a model. What a backend does not tell is None.

    A model of a folder has the name of the folder, without the way to it.
    """
    model = getattr(backend, "model", None)
    model = model if isinstance(model, nn.Module) else None
    path = str(getattr(model, "name_or_path", None) or "")
    origin = _without_way(path)
    return {
        "name": backend.name.replace(path, origin) if path else backend.name,
        "class": type(backend if model is None else model).__name__,
        "origin": origin or None,
        "parameters": None if model is None else sum(p.numel() for p in model.parameters()),
        "weights_sha256": None if model is None else weights_hash(model),
        "device": str(backend.device),
        "dtype": str(backend.dtype),
    }


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


def preprocessing_hash(backend: Any) -> str | None:
    """SHA-256 of what the preprocessing makes of a test picture; None if it cannot be asked."""
    preprocess = getattr(backend, "preprocess", None)
    picture = np.random.default_rng(0).integers(0, 256, (61, 83, 3), np.uint8)
    pixels = None if preprocess is None else preprocess([Image.fromarray(picture)])
    return None if pixels is None else sha256(pixels.float().cpu().numpy().tobytes()).hexdigest()


def adapter_settings(adapter: Any) -> dict[str, Any]:
    """Name, repr and fields of an adapter or of another frozen strategy."""
    described = plain(adapter)
    if not isinstance(described, dict):
        described = {"name": _name(adapter), "settings": {}}
    return {**described, "repr": _name(adapter)}


def plain(value: Any) -> Any:
    """Settings as JSON: dataclasses become names and fields, numbers that JSON lacks strings."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Enum):
        return str(value)
    if dataclasses.is_dataclass(value):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"name": type(value).__name__, "settings": fields}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return _name(value)


def _name(value: Any) -> str:
    """Its repr if that says something lasting, else the name of the function or class."""
    text = repr(value)
    if " at 0x" not in text:
        return text
    function = getattr(value, "func", value)  # of a partial
    return str(getattr(function, "__qualname__", type(value).__qualname__))


def _without_way(origin: str) -> str:
    """The last part of the path of a folder; ids of hubs stay as they are."""
    if not os.path.isdir(origin) and not os.path.isabs(origin):
        return origin
    return "miniature" if Path(origin) == FOLDER else Path(origin).resolve().name


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _sentences(templates: Templates) -> dict[str, str | None]:
    lines = dict(line.split(": ", 1) for line in str(templates).splitlines())
    return {name: lines.get(name) for name in ("target", "sensitive", "joint")}
