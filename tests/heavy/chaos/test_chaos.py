"""A few scenarios of `make chaos`, and its parts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

CHAOS = Path(__file__).with_name("chaos.py")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are forked")


@pytest.mark.slow
def test_a_few_scenarios() -> None:
    """In a process of its own: forks of one that has worked with torch would not do."""
    kills = [
        f"kills of {name}" for name in ("predict", "fit")
    ]  # audit: kills/test_killed_audit.py
    only = [*kills, "limit of file size, predict", "clock jumps, fit"]
    process = subprocess.run(
        [sys.executable, str(CHAOS), "--kills", "4", "--only", *only],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    lines = process.stdout.splitlines()
    assert process.returncode == 0, (lines, process.stderr)
    assert len(lines) == 4
    assert all(": the same at the end (" in line for line in lines)


def test_kills_take_turns_and_have_numbers() -> None:
    from chaos import turn

    assert Counter(turn(number).name for number in range(60)) == {
        "predict": 20,
        "audit": 20,
        "fit": 20,
    }


def test_a_disk_needs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from disks import disk
    from stage import Skipped

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Skipped, match="by root on Linux only"), disk(tmp_path):
        pass


def test_a_difference_is_told(tmp_path: Path) -> None:
    from children import Ended
    from disturbed import Disturbed, World
    from stage import Stage, Whole

    command = Disturbed("some", lambda *_: [], lambda *_: {"rows": [1]})
    stage = Stage(
        World(tmp_path), tmp_path, {"some": Whole({"rows": [1, 2]}, {"row": 2}, 0)}
    )
    with pytest.raises(
        AssertionError, match="rows differ from those of an undisturbed run"
    ):
        stage.check(command, tmp_path, Ended(0, "", ""))
    with pytest.raises(AssertionError, match="exit code -9"):
        stage.check(command, tmp_path, Ended(-9, "", ""))
