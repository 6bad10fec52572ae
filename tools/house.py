"""How large the house is and how far an image walks through it; and the list of public names.

``python tools/house.py`` prints the numbers, ``--write-api`` writes tests/public_api.txt again.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import importlib
import inspect
import io
import pkgutil
import re
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fair_tta"
API = ROOT / "tests" / "public_api.txt"
# One file each by design: methods, dataset readers, commands, tabs of the app.
_ONE_EACH = re.compile(r"\.(methods|data|_cli|app)\.")


def sizes() -> dict[str, tuple[int, int]]:
    """``{folder: (lines, files)}`` of the Python files."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        folder = path.parent.relative_to(PACKAGE.parent).as_posix()
        lines[folder] += len(path.read_text("utf-8").splitlines())
        files[folder] += 1
    return {folder: (lines[folder], files[folder]) for folder in sorted(lines)}


def single_importers() -> list[str]:
    """Modules that exactly one other module imports; an ``__init__`` does not count."""
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        paths[".".join(p for p in parts if p != "__init__")] = path
    importers = defaultdict(set)
    for module, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and path.stem != "__init__"
            ):
                for alias in node.names:
                    full_name = f"{node.module}.{alias.name}"
                    importers[full_name if full_name in paths else node.module].add(
                        module
                    )
    return sorted(
        module
        for module, path in paths.items()
        if len(importers[module] - {module}) == 1
        and path.stem != "__init__"
        and not _ONE_EACH.search(module)
    )


def modules_through(act: Callable[[], object]) -> set[str]:
    """Our modules whose functions run during an act, in any thread."""
    visited: set[str] = set()
    prefix = str(PACKAGE)

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        file = code.co_filename
        # <module>, <lambda> and <listcomp> are not functions that a reader opens.
        if event == "call" and code.co_name[0] != "<" and file.startswith(prefix):
            visited.add(file)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = (Path(file).relative_to(PACKAGE) for file in visited)
    return {
        file.as_posix() for file in files if file.suffix == ".py"
    }  # not page templates


def predict_modules() -> set[str]:
    """What the second image passes through in `clf.predict` with `ZeroShot`."""
    from fair_tta import FairTPTClassifier, ZeroShot
    from fair_tta.miniature import BIRDS

    clf = FairTPTClassifier(
        "miniature", BIRDS.targets, BIRDS.sensitive, BIRDS.template, adapter=ZeroShot()
    )
    first, second = (drawn.image for drawn in BIRDS.draw(2, seed=0))
    clf.predict(first)
    return modules_through(lambda: clf.predict(second))


def audit_modules() -> set[str]:
    """What ``fair-tta audit`` of eight rows passes through; a run before it has imported all."""
    from fair_tta.lab.cli import app
    from fair_tta.miniature import BIRDS

    with (
        tempfile.TemporaryDirectory() as name,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        folder = Path(name)
        rows = []
        for i, drawn in enumerate(BIRDS.draw(8, seed=0)):
            drawn.image.save(folder / f"{i}.png")
            rows.append((f"{i}.png", drawn.target, *drawn.sensitive.values()))
        with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("file", "bird", "place"), *rows])
        (values,) = BIRDS.sensitive.values()

        def audit(out: str) -> None:
            arguments = [
                "audit",
                "--images",
                name,
                "--labels",
                str(folder / "labels.csv"),
            ]
            arguments += ["--target-column", "bird", "--sensitive-column", "place"]
            arguments += ["--model", "miniature", "--template", BIRDS.template]
            arguments += ["--adapters", "zero-shot,tpt", "--out", str(folder / out)]
            for option, names in (
                ("--targets", BIRDS.targets),
                ("--sensitive", values),
            ):
                for label, phrase in names.items():
                    arguments += [option, f"{label}={phrase}"]
            code = app(arguments, standalone_mode=False)
            assert not code, code

        audit("first")
        return modules_through(lambda: audit("second"))


def public_modules() -> list[str]:
    """Modules without an underscore in their path."""
    import fair_tta

    names = [
        info.name for info in pkgutil.walk_packages(fair_tta.__path__, "fair_tta.")
    ]
    return ["fair_tta", *(name for name in names if "._" not in name)]


def public_api() -> str:
    """Every public name with its parameters, and what classes add to their public bases."""
    lines: list[str] = []
    listed_types: set[object] = set()
    exports = {
        name: [
            getattr(module, public)
            for public in module.__all__
            if public != "__version__"
        ]
        for name in public_modules()
        if hasattr(module := importlib.import_module(name), "__all__")
    }
    kinds = {
        thing
        for things in exports.values()
        for thing in things
        if isinstance(thing, type)
    }
    for name, things in exports.items():
        lines.append(name)
        names = [n for n in importlib.import_module(name).__all__ if n != "__version__"]
        for public, thing in sorted(zip(names, things, strict=True)):
            lines.append(f"    {public}{_parameters(thing)}")
            if isinstance(thing, type) and thing not in listed_types:
                lines += [f"        {line}" for line in _members(thing, kinds)]
                listed_types.add(thing)
    return "\n".join(lines) + "\n"


def _members(owner_type: type, public: set[type]) -> Iterator[str]:
    known = {
        name for base in owner_type.__mro__[1:] if base in public for name in dir(base)
    }
    with contextlib.suppress(TypeError, ValueError):
        known |= set(inspect.signature(owner_type).parameters)
    for name in sorted(set(dir(owner_type)) - known):
        owner = next((k for k in owner_type.__mro__ if name in vars(k)), object)
        if not name.startswith("_") and owner.__module__.startswith("fair_tta"):
            yield f".{name}{_parameters(getattr(owner_type, name))}"


def _parameters(thing: Any) -> str:
    """Names and plain defaults; annotations are mypy's affair."""
    if not callable(thing):
        return ""
    if isinstance(thing, type) and (
        issubclass(thing, Enum | Exception | dict)
        or getattr(thing, "_is_protocol", False)
    ):
        return ""
    signature = inspect.signature(thing)
    parameters = []
    for parameter in signature.parameters.values():
        default = parameter.default
        if default is not parameter.empty and not isinstance(
            default, int | float | str | None
        ):
            default = ...
        parameters.append(
            parameter.replace(annotation=parameter.empty, default=default)
        )
    plain = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return str(plain).replace("Ellipsis", "...")


def main() -> None:
    """Print the numbers, or write the list of public names."""
    if "--write-api" in sys.argv:
        API.write_text(public_api(), "utf-8")
        return
    folders = sizes()
    for folder, (lines, files) in folders.items():
        print(f"{lines:7,} lines {files:4} files  {folder}")
    print(f"{sum(lines for lines, _ in folders.values()):7,} lines in all")
    print("modules with a single importer:", *single_importers(), sep="\n    ")
    predict = predict_modules()
    print(f"{len(predict)} modules of predict:", *sorted(predict))
    print(f"{len(audit_modules())} modules of an audit")


if __name__ == "__main__":
    main()
