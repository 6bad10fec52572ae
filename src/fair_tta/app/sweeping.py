"""Pictures of visitors and what was made of them do not stay longer than an hour."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

OLD = 3600  # seconds


def files_below(folder: Path) -> set[str]:
    """Paths of all files."""
    return {os.path.join(where, name) for where, _, names in os.walk(folder) for name in names}


def sweep_uploads(folder: Path, kept: Collection[str], now: float | None = None) -> None:
    """Delete files that nobody has written or used for an hour, and folders that are empty.

    Args:
        folder: of the uploads.
        kept: files that stay: those of the page itself.
        now: seconds since 1970, by the clock if None.
    """
    for where, _, names in os.walk(folder, topdown=False):
        paths = [os.path.join(where, name) for name in names]
        for path in paths:
            with suppress(OSError):  # just deleted, or still open
                if path not in kept and _is_old(path, now):
                    os.unlink(path)
        with suppress(OSError):
            if where != str(folder) and _is_old(where, now):
                os.rmdir(where)


def mark_used(paths: Iterable[str]) -> None:
    """Files of uploads that somebody is not done with: their hour begins again."""
    for path in paths:
        with suppress(OSError):  # just deleted
            os.utime(path)


def sweep_runs(folder: Path, now: float | None = None) -> None:
    """Delete runs of which no part was written for an hour; one that goes on writes its rows."""
    for run in folder.iterdir():
        parts = [str(run), *(os.path.join(w, n) for w, d, f in os.walk(run) for n in (*d, *f))]
        with suppress(OSError):
            if all(_is_old(path, now) for path in parts):
                shutil.rmtree(run)


def _is_old(path: str, now: float | None) -> bool:
    """A copy has the time of what it is a copy of, so the time when it was made counts too."""
    found = os.lstat(path)
    return max(found.st_mtime, found.st_ctime) < (time.time() if now is None else now) - OLD
