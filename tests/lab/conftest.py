"""Whole runs: models are loaded once in a process."""

import pytest


@pytest.fixture(autouse=True)
def _models_are_loaded_once(loaded_once: None) -> None: ...
