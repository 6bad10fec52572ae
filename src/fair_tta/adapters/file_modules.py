"""Files of one's own as modules, under names that every process understands.

``fair_tta.adapters.file_modules.SHA256_PATH``, both in hexadecimal digits, is the file at that path
with that content. Pickle knows a class by the name of its module, so worker processes find it too.
Python learns to import such names when this module is imported, which is when one is asked for.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from fair_tta.errors import FairTTAError

__path__: list[str] = []  # for Python this is a package


def module_name(path: Path) -> str:
    """The name of the file as it is now."""
    return f"{__name__}.{sha256(path.read_bytes()).hexdigest()}_{os.fsencode(path).hex()}"


class _FileLoader(Loader):
    """Runs a file if it has the content that its name says. Writes nothing beside it."""

    def __init__(self, path: str, digest: str) -> None:
        self._path, self._digest = path, digest

    def exec_module(self, module: ModuleType) -> None:
        source = Path(self._path).read_bytes()
        if sha256(source).hexdigest() != self._digest:
            raise FairTTAError(
                f"{self._path!r} was changed while it was in use: run the same command again."
            )
        exec(compile(source, self._path, "exec", dont_inherit=True), vars(module))


class _FileFinder(MetaPathFinder):
    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        package, _dot, name = fullname.rpartition(".")
        if package != __name__:
            return None
        digest, _bar, path = name.partition("_")
        file = os.fsdecode(bytes.fromhex(path))
        return spec_from_file_location(fullname, file, loader=_FileLoader(file, digest))


sys.meta_path.append(_FileFinder())
