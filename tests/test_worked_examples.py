"""The worked examples of CONTRIBUTING.md, carried out in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "site", "*.egg-info"
)
_NEW_FILE = re.compile(r"^New file `(?P<path>[^`]+)`:$")
_EDIT = re.compile(
    r"^In `(?P<path>[^`]+)`, (?P<where>after|before) `(?P<line>[^`]+)`:$"
)
_EXAMPLE = re.compile(
    r"<!-- example: (?P<name>[\w ]+) -->(?P<text>.*?)(?=\n#|\Z)", re.DOTALL
)
_BLOCK = re.compile(
    r"^(?P<instruction>(?:New file|In) `[^\n]*`:)\n\n```(?:python)?\n(?P<code>.*?)```",
    re.MULTILINE | re.DOTALL,
)
EXAMPLES = {match["name"]: match["text"] for match in _EXAMPLE.finditer(PAGE)}

# For each example the tests that concern it, and those that fail because they ask for a decision.
DOCS_LINE = (
    "tests/methods/test_registry.py::"
    "test_every_adapter_is_in_the_table_of_methods[soft-vote]"
)
LISTING = "tests/test_package.py::test_the_public_names_are_those_on_record"
CONCERNED = {
    "method": (
        ["tests/methods/test_soft_vote.py", "tests/methods/test_every_adapter.py",
         "tests/methods/test_registry.py", "tests/test_field_page.py", "tests/golden",
         "tests/test_package.py"],
        {LISTING, DOCS_LINE},
    ),
    "metric": (
        ["tests/metrics/test_definitions.py", "tests/metrics/test_functions.py",
         "tests/auditing/test_audit.py", "tests/golden", "tests/test_package.py"],
        {LISTING},
    ),
    "label format": (
        ["tests/datasets/test_feather.py", "tests/datasets/test_label_files.py"],
        set(),
    ),
    # All families but one of each structure are slow.
    "model family": (
        ["tests/models/test_transformers.py", "-m", "", "-k", "GroupViT"],
        set(),
    ),
}  # fmt: skip


def apply(example: str, copy: Path) -> None:
    """Carry out the instructions of an example."""
    for block in _BLOCK.finditer(EXAMPLES[example]):
        new_file = _NEW_FILE.match(block["instruction"])
        if new_file is not None:
            (copy / new_file["path"]).write_text(block["code"], "utf-8")
            continue
        edit = _EDIT.match(block["instruction"])
        assert edit is not None, block["instruction"]
        path = copy / edit["path"]
        before, found, after = path.read_text("utf-8").partition(f"{edit['line']}\n")
        assert found, f"{edit['path']} has no line {edit['line']!r}"
        assert found not in after, f"{edit['path']} has several lines {edit['line']!r}"
        parts = (
            (block["code"], found)
            if edit["where"] == "before"
            else (found, block["code"])
        )
        path.write_text(before + "".join(parts) + after, "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("example", CONCERNED)
def test_an_example_does_what_it_says(example: str, tmp_path: Path) -> None:
    copy = tmp_path / "repository"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    apply(example, copy)
    if example == "model family":
        run_python(copy, "tests/helpers/models_page.py")

    concerned, expected_failures = CONCERNED[example]
    finished = run_python(
        copy,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *concerned,
    )
    failures = set(
        re.findall(r"^(?:FAILED|ERROR) (\S+)", finished.stdout, re.MULTILINE)
    )
    assert failures == expected_failures, finished.stdout[-3000:]
    assert " passed" in finished.stdout


def run_python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the sources of a copy."""
    paths = [copy / "src", copy / "tests" / "helpers", copy / "tools"]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_example_is_carried_out() -> None:
    assert set(EXAMPLES) == set(CONCERNED)
