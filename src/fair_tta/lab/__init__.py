"""The resumable audit of a folder and the app, from Python; the commands and pages are private.

Names are imported on first use: neither needs the other.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fair_tta.lab._folder import audit_folder
    from fair_tta.lab.app._server import serve

__all__ = ["audit_folder", "serve"]

_MODULE = {"audit_folder": "_folder", "serve": "app._server"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
