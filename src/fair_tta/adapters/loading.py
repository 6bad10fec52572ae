"""Fitted methods of this library from their files."""

from __future__ import annotations

import os
from typing import Any

from fair_tta import adapters
from fair_tta.adapters.contract import Adapter
from fair_tta.adapters.fitting import FittedMethod, load_one_of


def fitted_kinds() -> list[type[Any]]:
    """The methods of this library that are fitted on reference images."""
    kinds = (getattr(adapters, name) for name in adapters.__all__)
    return [kind for kind in kinds if issubclass(kind, FittedMethod) and hasattr(kind, "adapt")]


def load_adapter(path: str | os.PathLike[str]) -> Adapter:
    """A fitted method from the file that its `save` has written.

    The file says which method it is. No code is run: of other classes than those of this library a
    file is refused, `load` of the class itself reads it.

    Args:
        path: of the file.

    Raises:
        FairTTAError: there is no such file, it is damaged, or not of a method of this library.
    """
    loaded: Adapter = load_one_of(path, fitted_kinds())
    return loaded
