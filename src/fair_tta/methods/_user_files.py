"""Methods from the user's own Python files, here and in other processes."""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from fair_tta.errors import FairTTAError
from fair_tta.methods._base import check_instance

# Followed by the SHA-256 of the file's content and that of its path: another version of a file is
# another module.
_MODULE_PREFIX = "fair_tta_user_file_"


def load_file(path: str, digest: str | None = None) -> ModuleType:
    """Run a user file, once for each content, and return its module.

    Nothing is written beside the file.

    Args:
        path: of the file.
        digest: SHA-256 that the content has to have; None for any.
    """
    source = Path(path).read_bytes()
    content_digest = sha256(source).hexdigest()
    if digest not in (None, content_digest):
        raise FairTTAError(
            f"{path!r} was changed while it was in use: run the same command again."
        )
    path_digest = sha256(os.fsencode(path)).hexdigest()
    name = f"{_MODULE_PREFIX}{content_digest}_{path_digest}"
    if name not in sys.modules:
        module = ModuleType(name)
        module.__file__ = path
        # Dataclasses look up their module while they are defined.
        sys.modules[name] = module
        try:
            exec(compile(source, path, "exec", dont_inherit=True), vars(module))
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


class PackedWithUserFiles:
    """Objects for another process, which runs the user files that define them first.

    Args:
        value: the objects.
    """

    def __init__(self, value: Any) -> None:
        self._pickled = pickle.dumps(value)
        self._files: list[tuple[str, str]] = []
        for name in sys.modules:
            # A pickle names the modules of its classes.
            if name.startswith(_MODULE_PREFIX) and name.encode() in self._pickled:
                path = str(sys.modules[name].__file__)
                digest, _, _ = name.removeprefix(_MODULE_PREFIX).partition("_")
                self._files.append((path, digest))

    def unpack(self) -> Any:
        """Return the objects."""
        for path, digest in self._files:
            load_file(path, digest)
        return pickle.loads(self._pickled)


def load_user_method(path: Path, name: str) -> Any:
    """Return a user-defined adapter with its default settings.

    Args:
        path: of the file, which is run.
        name: in the file: an adapter, or a class or function that makes one without arguments.
    """
    if not os.path.isfile(path):
        raise FairTTAError(f"there is no file {str(path)!r}: check the path.")
    with user_code(path.name, path):
        module = load_file(str(path))
    if not hasattr(module, name):
        offers = ", ".join(_adapters_in(module)) or "nothing with a method `adapt`"
        if not name:
            raise FairTTAError(
                f"write what to take from {path.name!r} after a colon: it has {offers}."
            )
        raise FairTTAError(f"{path.name!r} has no {name!r}: it has {offers}.")

    title = f"{path.name}:{name}"
    method = getattr(module, name)
    if isinstance(method, type) or inspect.isroutine(method):
        with user_code(title, path):
            method = method()
    try:
        return check_instance(method)
    except FairTTAError as error:
        raise FairTTAError(f"{title!r} is not a method: {error}") from None


@contextmanager
def user_code(
    title: str, path: Path, let_through: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn errors of a user file into a `FairTTAError` that names the line.

    Args:
        title: the name of the code in messages.
        path: of the file.
        let_through: errors that are raised unchanged.
    """
    try:
        yield
    except let_through:
        raise
    except (Exception, SystemExit) as error:
        text = str(error)
        line = None
        if isinstance(error, SyntaxError):
            text = error.msg
            line = error.lineno
        else:
            for frame in traceback.extract_tb(error.__traceback__):
                if frame.filename == str(path):
                    line = frame.lineno
        position = "" if line is None else f", line {line}"
        raise FairTTAError(
            f"{title!r} cannot be run: {type(error).__name__}: {text} ({path}{position})."
        ) from error


def _adapters_in(module: ModuleType) -> list[str]:
    """Return the names that the file itself defines and that look like adapters."""
    names = []
    for name, value in vars(module).items():
        is_imported = isinstance(value, type) and value.__module__ != module.__name__
        if callable(getattr(value, "adapt", None)) and not is_imported:
            names.append(name)
    return names
