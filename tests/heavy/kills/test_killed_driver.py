"""Worker processes end with a driver that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checks import picture
from cli_fixtures import tiny_model as tiny_model

DRIVER = """
import multiprocessing, sys, time
from fair_tta import FairTPTClassifier, Zero
from fair_tta.lab.runs._job import WorkUnit, make_job
from fair_tta.lab.runs._local import Local
from fair_tta.images._stored import ImageSource
from fair_tta.lab.runs._runner import Runner

if __name__ == "__main__":
    clf = FairTPTClassifier(sys.argv[1], ["cat", "dog"])
    job = make_job(clf, [Zero()], sys.argv[1], stores_rows=False)
    with Local(workers=2).open(job) as pool:
        unit = WorkUnit((ImageSource("a", sys.argv[2]),), 0, job.queries())
        pool.submit(unit)()
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        time.sleep(600)
"""


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_end_with_a_killed_driver(tiny_model: str, tmp_path: Path) -> None:
    picture(0).save(tmp_path / "a.png")
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [
        sys.executable,
        str(tmp_path / "driver.py"),
        tiny_model,
        str(tmp_path / "a.png"),
    ]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    workers = [int(word) for word in driver.stdout.readline().split()]
    assert workers
    assert all(map(is_there, workers))
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    end = time.monotonic() + 60
    while any(map(is_there, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_there, workers))
