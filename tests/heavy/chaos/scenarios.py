"""Disks, folders, other writers and clocks that do what they should not."""

from __future__ import annotations

import errno
import os
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

from children import run
from clocks import jumping_clock
from disks import Disk, disk
from disturbed import Disturbed, rows_of
from stage import Stage, kind_of, middle

_DAY = 86400.0


def full_disk(stage: Stage, command: Disturbed) -> str:
    """A small disk; later there is room."""
    with disk(stage.folder()) as small:
        ballast = small.path / "ballast"
        ballast.write_bytes(
            bytes(small.free - _pages(stage.whole(command).largest // 2))
        )
        ended = stage.run(command, small.path / "out")
        stage.refused(ended)
        ballast.unlink()
        stage.finish(command, small.path / "out")
    return f"{_last(ended.errors)}; then there was room"


def file_limit(stage: Stage, command: Disturbed) -> str:
    """No file may be longer than half of what is needed (RLIMIT_FSIZE)."""
    most, out = stage.whole(command).largest // 2, stage.folder()

    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    stage.refused(stage.run(command, out, before=limit))
    _only_whole_rows(out)
    stage.finish(command, out)
    return f"files of at most {most} bytes"


def read_only_disk(stage: Stage, command: Disturbed) -> str:
    """Read-only from the beginning, and again after a kill in the middle."""
    with disk(stage.folder()) as small_disk:
        out = small_disk.path / "out"
        out.mkdir()
        _refused_when_read_only(stage, command, small_disk, out)
        at, event = middle(stage, command), kind_of(command)
        stage.run(command, out, stage.moments(at, of=event))
        _refused_when_read_only(stage, command, small_disk, out)
        stage.finish(command, out)
    return "refused, killed, refused"


def errors_while_writing(stage: Stage, command: Disturbed) -> str:
    """The disk becomes read-only, full or broken in the middle of the work."""
    out, at = stage.folder(), middle(stage, command)
    for number in (errno.EROFS, errno.ENOSPC, errno.EIO):

        def fail(number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        event = "file" if command.name == "fit" else "row"
        moment = 1 if event == "file" else max(1, at // 2)
        stage.refused(
            stage.run(command, out, stage.moments(moment, of=event, then=fail))
        )
        _only_whole_rows(out)
    stage.finish(command, out)
    return "EROFS, ENOSPC, EIO amid the work"


def vanishing_pictures(stage: Stage, command: Disturbed) -> str:
    """The folder of the pictures goes away in the middle, and comes back."""
    out, pictures = stage.folder(), stage.world.pictures
    away = pictures.with_name("away")
    at = max(1, middle(stage, command) - 1)
    moments = stage.moments(
        at, of=kind_of(command), then=lambda: os.rename(pictures, away)
    )
    try:
        ended = stage.run(command, out, moments)
        assert ended.code in (3, 4), f"exit code {ended.code}: {ended.errors}"
        assert "Traceback" not in ended.errors, ended.errors
        _only_whole_rows(out)
    finally:
        if away.exists():
            os.rename(away, pictures)
    stage.finish(command, out)
    return f"exit code {ended.code} and reasons; then they came back"


def vanishing_results(stage: Stage, command: Disturbed) -> str:
    """The folder of the results goes away in the middle: for a while, and for ever."""
    out = stage.folder()
    away, moved = out.with_name("away"), 0

    def leave() -> None:
        os.rename(out, away)

    def delete() -> None:
        shutil.rmtree(out)

    for at, action in ((middle(stage, command), leave), (1, delete)):
        ended = stage.run(
            command, out, stage.moments(at, of=kind_of(command), then=action)
        )
        stage.refused(ended)
        if away.exists():
            shutil.rmtree(out, ignore_errors=True)
            os.rename(away, out)
            moved = len(rows_of(out))
    stage.finish(command, out)
    return f"moved away (with {moved} rows) and back, then deleted"


def two_writers(stage: Stage, command: Disturbed) -> str:
    """A second process with the same folder while the first is in the middle of its work."""
    out = stage.folder()
    go, waits = stage.scratch / "go", stage.scratch / "waits"
    for mark in (go, waits):
        mark.unlink(missing_ok=True)
    at, event = middle(stage, command), kind_of(command)
    moments = stage.moments(at, of=event, then=lambda: _wait(waits, go))
    first = stage.start(command, out, moments)
    _until(waits.exists)
    second_folder = stage.scratch / "other"
    second = run(command.line(stage.world, out), second_folder)
    go.touch()
    ended = first.wait()
    if command.name == "fit":  # both may: the file is whole, whoever comes last
        stage.check(command, out, second)
        outcome = "both ended"
    else:
        stage.refused(second, "is in use by another process")
        outcome = "the second was refused"
    stage.check(command, out, ended)
    stage.finish(command, out)
    return outcome


def jumping_clocks(stage: Stage, command: Disturbed) -> str:
    """Years forwards and backwards within a run and between runs; pictures of the future."""
    out, random = stage.folder(), Random(command.name)
    total, kills = stage.whole(command).moments, 0
    for years in (30, -40, 0.003):
        for path in stage.world.pictures.iterdir():
            when = max(0.0, time.time() + 365 * _DAY * years * random.random())
            os.utime(path, (when, when))
        (out / ".left.part").write_bytes(b"of a kill")
        os.utime(out / ".left.part", (when, when))
        before = jumping_clock(Random(f"{command.name} {years}"), years)
        ended = stage.run(command, out, stage.moments(max(1, total // 5)), before)
        kills += ended.code == -9
    ended = stage.run(command, out, before=jumping_clock(random, -50))
    stage.check(command, out, ended)
    stage.finish(command, out)
    return f"{kills} kills between jumps of up to 50 years"


SCENARIOS: dict[str, Callable[[Stage, Disturbed], str]] = {
    "full disk": full_disk,
    "limit of file size": file_limit,
    "read-only disk": read_only_disk,
    "errors while writing": errors_while_writing,
    "pictures vanish": vanishing_pictures,
    "results vanish": vanishing_results,
    "two writers": two_writers,
    "clock jumps": jumping_clocks,
}


def _refused_when_read_only(
    stage: Stage, command: Disturbed, target_disk: Disk, out: Path
) -> None:
    target_disk.read_only(True)
    try:
        stage.refused(stage.run(command, out))
    finally:
        target_disk.read_only(False)


def _only_whole_rows(out: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a damaged row is reported
        rows_of(out)


def _pages(size: int) -> int:
    page = os.sysconf("SC_PAGE_SIZE")
    return size // page * page


def _last(errors: str) -> str:
    return errors.strip().splitlines()[-1][:60]


def _wait(waits: Path, go: Path) -> None:
    waits.touch()
    _until(go.exists)


def _until(is_true: Callable[[], bool], patience: float = 300.0) -> None:
    end = time.monotonic() + patience
    while not is_true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
