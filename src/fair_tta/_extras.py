"""Optional packages, with an error that says how to get them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(module: str, extra: str) -> Any:
    """Import an optional module or say which pip line installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs the package {module.partition('.')[0]!r}: pip install 'fair-tta[{extra}]'"
        ) from error
