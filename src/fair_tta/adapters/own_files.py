"""Adapters from files of one's own: to name one is to run it."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from fair_tta.adapters.contract import check_markers
from fair_tta.errors import FairTTAError

_MODULES = "fair_tta.adapters.file_modules"


def load_own(path: Path, name: str) -> Any:
    """An adapter with its defaults.

    Args:
        path: of the file, which is run.
        name: in the file: a class, a function that makes an adapter, or an adapter.

    Raises:
        FairTTAError: there is no such file or name, the file cannot be run, or this is no adapter.
    """
    module = _run(path)
    if not hasattr(module, name):
        offers = ", ".join(_candidates(module)) or "nothing with a method `adapt`"
        raise FairTTAError(
            f"{path.name!r} has no {name!r}: it has {offers}."
            if name
            else f"write what to take from {path.name!r} after a colon: it has {offers}."
        )
    what, found = f"{path.name}:{name}", getattr(module, name)
    if isinstance(found, type) or inspect.isroutine(found):
        found = _make(what, found, path)
    try:
        check_markers(found)
    except FairTTAError as error:
        raise FairTTAError(f"{what!r} is no adapter: {error}") from None
    return found


def cannot_run(what: str, path: Path, error: BaseException) -> FairTTAError:
    """An error of a file of one's own, in words."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    place = "" if line is None else f", line {line}"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return FairTTAError(f"{what!r} cannot be run: {type(error).__name__}: {text} ({path}{place}).")


def origin(value: Any) -> dict[str, str]:
    """``{"my_file.py": "sha256:..."}`` of what a file of one's own defines, else nothing."""
    value = getattr(value, "func", value)  # of a partial
    defined = value if isinstance(value, type) or inspect.isroutine(value) else type(value)
    package, _, name = (getattr(defined, "__module__", None) or "").rpartition(".")
    if package != _MODULES:
        return {}
    digest, _, path = name.partition("_")
    return {Path(os.fsdecode(bytes.fromhex(path))).name: f"sha256:{digest}"}


def lasting_repr(value: Any) -> str:
    """Its repr, without the modules of files of one's own, which say where the files are."""
    return re.sub(rf"{re.escape(_MODULES)}\.\w+\.", "", repr(value))


def _run(path: Path) -> ModuleType:
    from fair_tta.adapters.file_modules import module_name

    if not os.path.isfile(path):
        raise FairTTAError(f"there is no file {str(path)!r}: check the path.")
    try:
        return import_module(module_name(path))
    except (Exception, SystemExit) as error:
        raise cannot_run(path.name, path, error) from error


def _make(what: str, maker: Any, path: Path) -> Any:
    try:
        parameters = inspect.signature(maker).parameters.values()
        optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        bare = [p.name for p in parameters if p.default is p.empty and p.kind not in optional]
        made = None if bare else maker()
    except Exception as error:
        raise cannot_run(what, path, error) from error
    if bare:
        raise FairTTAError(
            f"{what!r} should have a default for each argument ({', '.join(bare)} has none)."
        )
    return made


def _candidates(module: ModuleType) -> list[str]:
    """What the file itself defines and looks like an adapter."""
    return [
        name
        for name, value in vars(module).items()
        if callable(getattr(value, "adapt", None))
        and (not isinstance(value, type) or value.__module__ == module.__name__)
    ]
