"""Habits: importing does nothing, public names are documented, docs and README run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fair_tta
import house
from release_check import check_version

ROOT = Path(__file__).parents[1]
MODULES = [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(fair_tta.__path__, "fair_tta.")
]


def run(code: str) -> str:
    process = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_importing_defines_names_on_first_use_and_does_nothing_else() -> None:
    """In a new process, where no other test has imported their modules."""
    out = run(
        "import random, sys, fair_tta\n"
        "ours = lambda: [m for m in sys.modules if m.startswith('fair_tta')]\n"
        "assert set(fair_tta.__all__) <= set(dir(fair_tta))\n"
        "from fair_tta.errors import DatasetError\n"
        "from fair_tta import Prediction\n"
        "assert 'torch' not in sys.modules and len(ours()) <= 10, ours()\n"
        "import fair_tta.metrics\n"
        "assert 'torch' not in sys.modules, 'metrics are functions of arrays'\n"
        "import numpy, torch\n"
        "state = torch.get_rng_state(), random.getstate()\n"
        "finders = [*sys.meta_path]\n"
        "from fair_tta import FairTPTClassifier\n"
        "assert not [m for m in ours() if '.lab' in m], ours()\n"
        "for name in fair_tta.__all__: getattr(fair_tta, name)\n"
        "assert fair_tta.metrics.simplex.__name__ == 'fair_tta.metrics.simplex'\n"
        "from fair_tta import *\n"
        "assert audit is fair_tta.auditing.audit\n"
        "import fair_tta.methods._registry\n"
        "assert sys.meta_path == finders\n"
        "assert torch.equal(state[0], torch.get_rng_state()) and state[1] == random.getstate()\n"
        "heavy = {'transformers', 'open_clip', 'torchjd', 'torchvision', 'matplotlib'}\n"
        "print(sorted((heavy | {'typer', 'rich'}) & set(sys.modules)))"
    )
    assert out == "[]\n"
    with pytest.raises(
        AttributeError, match="module 'fair_tta' has no attribute 'FairTPX'"
    ):
        fair_tta.FairTPX  # type: ignore[attr-defined]  # noqa: B018


def test_names_have_one_home_and_are_few() -> None:
    modules, names, members = counted_api(house.API.read_text("utf-8"))
    assert (
        modules["fair_tta"] == len(fair_tta.__all__) - 1 <= 20
    )  # without `__version__`
    assert modules["fair_tta.extend"] <= 20
    assert modules["fair_tta.methods"] <= 23
    assert modules["fair_tta.metrics"] <= 24
    assert names <= 122
    assert members <= 150
    top = set(fair_tta.__all__)
    assert not top & set(all_of("fair_tta.methods"))
    assert not top & set(all_of("fair_tta.extend"))


def counted_api(listing: str) -> tuple[Counter[str], int, int]:
    """Names of each module, all names and all members; a name that is listed twice counts twice."""
    modules: Counter[str] = Counter()
    members, module = 0, ""
    for line in listing.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            module = line
        elif indent == 4:
            modules[module] += 1
        else:
            members += 1
    return modules, modules.total(), members


def test_names_are_counted_as_listed() -> None:
    listing = (
        "a\n    f(x)\n    Kind()\n        .one\n        .two(self)\na.b\n    f(x)\n"
    )
    assert counted_api(listing) == (Counter({"a": 2, "a.b": 1}), 3, 2)


def test_what_is_private_lists_no_names() -> None:
    private = {module.__name__ for module in MODULES} - set(house.public_modules())
    assert not [name for name in sorted(private) if all_of(name)]


def test_the_public_names_are_those_on_record() -> None:
    """After a change on purpose: ``python tools/house.py --write-api``, and the changelog."""
    assert house.public_api() == house.API.read_text("utf-8")
    for name in house.public_modules():
        public = all_of(name)
        assert all(
            hasattr(importlib.import_module(name), name_of_member)
            for name_of_member in public
        ), name


def test_nothing_but_the_command_and_the_app_needs_the_command() -> None:
    paths = [p for p in house.PACKAGE.rglob("*.py") if not {"cli", "app"} & {*p.parts}]
    needing = [p.name for p in paths if "fair_tta.lab.cli" in p.read_text("utf-8")]
    assert needing == ["__main__.py"]


@pytest.mark.usefixtures("loaded_once")
@pytest.mark.parametrize(
    "package", sorted({m.__name__.rpartition(".")[0] for m in MODULES})
)
def test_docstrings_are_there_and_run(package: str) -> None:
    for module in MODULES:
        if module.__name__.rpartition(".")[0] == package:
            assert module.__doc__
            assert doctest.testmod(module).failed == 0


def test_every_public_name_is_documented() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    named = set(re.findall(r"^::: ([\w.]+)$", reference, flags=re.MULTILINE))
    documented = {
        id(getattr(importlib.import_module(m), n)) for m in named for n in all_of(m)
    }
    for module in house.public_modules():
        for name in all_of(module):
            thing = getattr(importlib.import_module(module), name)
            assert id(thing) in documented, f"{module}.{name} is not in the reference"
            assert inspect.getdoc(thing), name


def all_of(module: str) -> list[str]:
    return getattr(importlib.import_module(module), "__all__", [])


def test_the_version_is_the_same_everywhere() -> None:
    check_version(ROOT, fair_tta.__version__)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.usefixtures("few_views", "loaded_once", "tiny_hub")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.stem != "speed"], ids=lambda p: p.name
)
def test_python_on_pages_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of one page run in order, in one namespace; models of the hub are tiny stand-ins."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(
        r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )
    for block in blocks:
        exec(compile(block, str(page), "exec", dont_inherit=True), namespace)


@pytest.mark.usefixtures("loaded_once")
@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "index.md"])
def test_the_first_lines_print_two_answers_that_differ(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block = re.findall(
        r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    )[0]
    exec(compile(block, str(page), "exec", dont_inherit=True), {})
    before, after = capsys.readouterr().out.splitlines()
    assert re.findall(r"# (\w+)$", block, flags=re.MULTILINE) == ["square", "circle"]
    assert (before.split()[0], after.split()[0]) == ("square", "circle")


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.name)
def test_examples_are_short(script: Path) -> None:
    assert len(script.read_text().splitlines()) <= 65


def code_for_readers() -> Iterator[tuple[str, str]]:
    """Code of examples, pages and the notebook, each with the name of its file."""
    for script in (ROOT / "examples").rglob("*.py"):
        yield script.name, script.read_text("utf-8")
    for page in PAGES:
        text = page.read_text("utf-8")
        for block in re.findall(
            r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE
        ):
            yield page.name, block
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                lines = [
                    line for line in cell["source"] if not line.startswith(("%", "!"))
                ]
                yield notebook.name, "".join(lines)


def test_readers_are_shown_public_names_only() -> None:
    public = house.public_modules()
    for name, code in code_for_readers():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                modules = [a.name for a in node.names if a.name.startswith("fair_tta")]
                assert set(modules) <= set(public), name
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "fair_tta"
            ):
                assert node.module in public, f"{name}: {node.module}"
                for alias in node.names:
                    known = f"{node.module}.{alias.name}" in public
                    assert known or alias.name in all_of(node.module), (
                        f"{name}: {alias.name}"
                    )


def test_no_words_that_promise_too_much() -> None:
    for page in PAGES:
        text = page.read_text().lower()
        for phrase in (
            "removes bias",
            "bias-free",
            "unbiased",
            "guarantees fair",
            "is fair",
        ):
            assert phrase not in text, (page.name, phrase)


def test_only_internals_imports_private_modules() -> None:
    """So a move inside the package changes one file of tests."""
    offenders = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name == "internals.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            if node.module.startswith("fair_tta") and "._" in node.module:
                offenders.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert offenders == []
