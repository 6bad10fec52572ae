"""Habits: importing does nothing, public names are documented, docs and README run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fair_tta
from release_check import check_version

ROOT = Path(__file__).parents[1]
MODULES = [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(fair_tta.__path__, "fair_tta.")
]


def run(code: str) -> str:
    process = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_importing_defines_names_and_does_nothing_else() -> None:
    out = run(
        "import logging, random, sys, warnings, numpy, torch\n"
        "state = torch.get_rng_state(), random.getstate()\n"
        "finders = [*sys.meta_path]\n"
        "from fair_tta import *\n"
        "import fair_tta.methods._registry\n"
        "assert sys.meta_path == finders\n"
        "assert torch.equal(state[0], torch.get_rng_state()) and state[1] == random.getstate()\n"
        "heavy = {'transformers', 'open_clip', 'torchjd', 'torchvision', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert out == "[]\n"


def test_importing_waits_for_no_heavy_package() -> None:
    out = run("import sys, fair_tta\nprint(fair_tta.FairTTAError.__name__, 'torch' in sys.modules)")
    assert out == "FairTTAError False\n"


def test_public_names_are_there_when_asked_for() -> None:
    """In a new process, where no other test has imported their modules."""
    run(
        "import fair_tta\n"
        "assert set(fair_tta.__all__) <= set(dir(fair_tta))\n"
        "for name in fair_tta.__all__: getattr(fair_tta, name)\n"
        "assert fair_tta.metrics.simplex.__name__ == 'fair_tta.metrics.simplex'\n"
        "from fair_tta import *\n"
        "assert audit is fair_tta.auditing._audit"
    )
    with pytest.raises(AttributeError, match="module 'fair_tta' has no attribute 'FairTPX'"):
        fair_tta.FairTPX  # type: ignore[attr-defined]  # noqa: B018


def test_nothing_but_the_command_needs_the_command() -> None:
    package = ROOT / "src" / "fair_tta"
    others = [p for p in package.rglob("*.py") if "cli" not in p.parts and p.stem != "__main__"]
    assert [p for p in others if "fair_tta.lab._cli" in p.read_text("utf-8")] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_docstrings_are_there_and_run(module: ModuleType) -> None:
    assert module.__doc__
    results = doctest.testmod(module)
    assert results.failed == 0


def test_every_public_name_is_documented() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    for name in fair_tta.__all__:
        if name == "__version__":
            continue
        thing = getattr(fair_tta, name)
        assert inspect.getdoc(thing), name
        assert re.search(rf"::: fair_tta\.{name}\b", reference), f"{name} is not in the reference"


def test_the_version_is_the_same_everywhere() -> None:
    check_version(ROOT, fair_tta.__version__)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What needs a dataset or Ray runs in test_bench_examples.py and test_bench_ray.py.
ELSEWHERE = {"celeba", "fairface", "on_ray", "own_folder", "utkface", "waterbirds"}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.usefixtures("tiny_hub")
@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "scaling"], ids=lambda p: p.name)
def test_python_on_pages_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one page run in order, in one namespace; models of the hub are tiny stand-ins."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for block in blocks:
        exec(compile(block, str(page), "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.name)
def test_examples_are_short(script: Path) -> None:
    assert len(script.read_text().splitlines()) <= 60


@pytest.mark.parametrize(
    "script", [p for p in EXAMPLES if p.stem not in ELSEWHERE], ids=lambda p: p.name
)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout


def test_no_words_that_promise_too_much() -> None:
    for page in PAGES:
        text = page.read_text().lower()
        for phrase in ("removes bias", "bias-free", "unbiased", "guarantees fair", "is fair"):
            assert phrase not in text, (page.name, phrase)
