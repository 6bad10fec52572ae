"""`fair-tta audit` killed and interrupted: nothing is lost and nothing repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_fixtures import audit_arguments, count_rows, rows_of
from cli_fixtures import labelled as labelled
from cli_fixtures import tiny_model as tiny_model

from fair_tta.auditing import Audit

ADAPTERS = ("--adapters", "zero-shot,fair-tpt:lam=10,rho=0.5")
COUNT = 16


STOPPING = """
import os
import signal
import time
from fair_tta.lab.cli import app
from fair_tta.lab.runs._store import Store

append = Store.append
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in background

appended = []

def stopping(self, rows):
    append(self, rows)
    appended.extend(rows)
    while len(appended) >= int(os.environ["STOP_AFTER"]):
        time.sleep(0.05)  # however busy the machine is, the signal comes before the end

Store.append = stopping
app(prog_name="fair-tta")
"""


def run(stop_after: int, *arguments: str) -> subprocess.Popen[str]:
    """A command that stands still after so many answers, until a signal comes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "STOP_AFTER": str(stop_after)}
    return subprocess.Popen(
        [sys.executable, "-c", STOPPING, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def wait_for_rows(process: subprocess.Popen[str], out: Path, count: int) -> None:
    end = time.monotonic() + 600
    while count_rows(out) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_killed_and_interrupted(labelled: Path, tiny_model: str) -> None:
    arguments = [*audit_arguments(labelled, tiny_model), *ADAPTERS, "--batch-size", "2"]
    out, labels = labelled / "out", labelled / "labels.csv"
    labels.write_text(
        "".join(labels.read_text().splitlines(keepends=True)[: 1 + COUNT])
    )
    process = run(4, *arguments)
    wait_for_rows(process, out, 4)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finished = count_rows(out)
    assert 4 <= finished < 2 * COUNT, "two methods"
    process = run(4, *arguments)
    wait_for_rows(process, out, finished + 4)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130, (finished, count_rows(out), stderr)
    assert "rows are finished. The same command resumes from there." in stderr
    assert "Traceback" not in stderr
    assert finished < count_rows(out) < 2 * COUNT
    # all in processes alike, so that rows have the same bits
    uninterrupted = [
        *audit_arguments(labelled, tiny_model, "whole"),
        *ADAPTERS,
        "--batch-size",
        "2",
    ]
    for process in (run(2 * COUNT + 1, *arguments), run(2 * COUNT + 1, *uninterrupted)):
        _, stderr = process.communicate()
        assert process.returncode == 0, stderr
    assert rows_of(labelled / "out") == rows_of(labelled / "whole")
    audits = [Audit.load(labelled / name / "audit.json") for name in ("out", "whole")]
    assert audits[0] == audits[1]
