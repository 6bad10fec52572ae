"""The scripts of `benchmarks/paper`, importable as `paper`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


Script = Callable[[str], Any]
"""Imports a script by its name."""


@pytest.fixture(scope="session")
def script() -> Iterator[Script]:
    """Import a script by its name."""
    before = list(sys.path)
    sys.path.insert(0, str(BENCHMARKS))
    yield lambda name: importlib.import_module(f"paper.{name}")
    sys.path[:] = before
