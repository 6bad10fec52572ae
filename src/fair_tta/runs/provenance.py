"""Where a result comes from: versions, machine, model, prompts and settings, as plain JSON."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from typing import Any

import torch
from torch import nn

from fair_tta.backends.naming import model_name, model_origin
from fair_tta.runs.plain_form import lasting_name
from fair_tta.runs.weights_hash import weights_hash

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
