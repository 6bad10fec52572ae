"""A process that writes rows, killed at random moments: whole batches stay, and none is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from internals import ROWS_FILE, Store
from store_rows import rows

HELPERS = Path(__file__).parents[2] / "helpers"

WRITER = """
import sys
import time
sys.path.insert(0, sys.argv[2])
from fair_tta.lab.runs._store import Store
from store_rows import row
with Store(sys.argv[1]) as store:
    for batch in range(100):
        some = [row(i) for i in range(batch * 5, batch * 5 + 5)]
        store.append([one for one in some if not store.find([one.key])])
        if batch == 0: print("started", flush=True)
    while "wait" in sys.argv: time.sleep(1)  # to be killed, if it has not been already
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_killed_at_random_moments(tmp_path: Path) -> None:
    path, randomly = tmp_path / ROWS_FILE, random.Random(0)
    command = [sys.executable, "-c", WRITER, str(path), str(HELPERS)]
    for _ in range(2):
        process = subprocess.Popen([*command, "wait"], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(randomly.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        with Store(path) as store:
            assert len([*store]) % 5 == 0, "whole batches"
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with Store(path) as store:
        assert list(store) == rows(500)
