"""The tests of `on_device`, in a process of their own: a new device changes a process for good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import devices
import pytest

FOLDER = Path(__file__).parent


@devices.skip_without_device
@pytest.mark.slow
def test_on_a_second_device() -> None:
    files = sorted(str(path) for path in FOLDER.glob("*_on_device.py"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *files,
    ]
    environment = {**os.environ, "FAIR_TTA_TEST_DEVICE": devices.NAME}
    run = subprocess.run(
        command, env=environment, cwd=FOLDER.parents[2], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
