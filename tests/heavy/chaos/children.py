"""Commands in processes of their own: forked, so that they need no time to begin."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moments import Moments

PATIENCE = 600.0  # seconds for a command


@dataclass(frozen=True)
class Ended:
    """How a command has ended.

    Attributes:
        code: its exit code, negative for the signal that has ended it.
        output: what it has printed.
        errors: what it has said on stderr.
        note: of `Moments`; empty if there is none.
    """

    code: int
    output: str
    errors: str
    note: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Child:
    """A command that is running."""

    pid: int
    log: Path

    def wait(self) -> Ended:
        """Until it has ended; one that does not is killed and told."""
        end = time.monotonic() + PATIENCE
        ended_pid, status = os.waitpid(self.pid, os.WNOHANG)
        while not ended_pid:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"not ended after {PATIENCE:.0f} s")
            time.sleep(0.01)
            ended_pid, status = os.waitpid(self.pid, os.WNOHANG)
        note = note_of(self.log)
        text = note.read_text() if note.exists() else ""
        return Ended(
            os.waitstatus_to_exitcode(status),
            self.log.with_suffix(".out").read_text("utf-8", "replace"),
            self.log.with_suffix(".err").read_text("utf-8", "replace"),
            json.loads(text) if text else {},
        )


def note_of(log: Path) -> Path:
    """Where the moments of a child are noted."""
    return log.with_suffix(".note")


def start(
    arguments: Sequence[str],
    log: Path,
    moments: Moments | None = None,
    before: Callable[[], None] = lambda: None,
) -> Child:
    """Run a command in a fork of this process.

    Args:
        arguments: of ``fair-tta``.
        log: the beginning of the names of the files that it writes to.
        moments: what is to happen, and when.
        before: called in the new process.
    """
    note_of(log).unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, log)
    code = 1
    try:
        for number, end in ((1, ".out"), (2, ".err")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(log.with_suffix(end), flags, 0o666), number)
        code = _command(arguments, moments or Moments(note_of(log)), before)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _command(
    arguments: Sequence[str], moments: Moments, before: Callable[[], None]
) -> int:
    from fair_tta.lab.cli import app

    moments.install()
    before()
    code = 0
    try:
        app(list(arguments), prog_name="fair-tta")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    if not moments.at:
        moments.say()
    return code


def run(
    arguments: Sequence[str],
    log: Path,
    moments: Moments | None = None,
    before: Callable[[], None] = lambda: None,
) -> Ended:
    """`start`, and wait."""
    return start(arguments, log, moments, before).wait()
