"""What the tests of tables share: a tiny model on disk."""

from __future__ import annotations

import bench_tiny
import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bench_tiny.save_model(tmp_path_factory.mktemp("model") / "clip")
