"""A table of the paper, killed at any moment, goes on and ends the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[3] / "benchmarks" / "paper" / "run.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_killed_at_any_moment_it_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    small = ("--model", "miniature", "--images", "12", "--seeds", "1", "--views", "4")
    words = (
        "main-B32",
        "--data",
        "miniature",
        *small,
        "--dataset",
        "birds",
        "--batch-size",
        "2",
    )
    command = [sys.executable, str(RUNNER), *words, "--out"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, str(tmp_path / "whole")],
        env=environment,
        check=True,
        capture_output=True,
    )
    rows = tmp_path / "killed" / "main-B32" / "rows"
    for least in (1, 9, 30):  # rows that are there when it is killed
        with subprocess.Popen(
            [*command, str(tmp_path / "killed")], env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as run:  # fmt: skip
            end = time.monotonic() + 120
            while run.poll() is None and time.monotonic() < end:
                lines = sum(
                    len(path.read_bytes().splitlines()) for path in rows.glob("*.jsonl")
                )
                if lines >= least:
                    run.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.005)
    subprocess.run(
        [*command, str(tmp_path / "killed")],
        env=environment,
        check=True,
        capture_output=True,
    )
    complete, killed = (tmp_path / name / "main-B32" for name in ("whole", "killed"))
    assert (killed / "table.csv").read_bytes() == (complete / "table.csv").read_bytes()
