"""What a model is called where others read it: without the way to its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fair_tta.miniature.model import FOLDER


def model_origin(backend: Any) -> str:
    """Hub id of a model, or the name of its folder; empty if it does not tell."""
    path = _path(backend)
    if not os.path.isdir(path) and not os.path.isabs(path):
        return path
    return "miniature" if Path(path) == FOLDER else Path(path).resolve().name


def model_name(backend: Any) -> str:
    """The name of a backend."""
    name, path = str(backend.name), _path(backend)
    return name.replace(path, model_origin(backend)) if path else name


def _path(backend: Any) -> str:
    return str(getattr(getattr(backend, "model", None), "name_or_path", None) or "")
