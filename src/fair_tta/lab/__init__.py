"""The resumable audit of a folder, and the app, from Python.

Both are imported on first use: neither needs the other. Everything else here is private.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fair_tta.lab._folder import audit_folder
    from fair_tta.lab.app._server import serve

__all__ = ["audit_folder", "serve"]

_MODULES = {"audit_folder": "_folder", "serve": "app._server"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
