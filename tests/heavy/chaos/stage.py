"""What all scenarios share: the undisturbed runs, and the question whether anything differs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from children import Child, Ended, note_of, run, start
from disturbed import Disturbed, World
from moments import PICTURE, ROW, Moments


class Skipped(Exception):
    """This machine cannot do it; the message says why."""


@dataclass(frozen=True)
class Whole:
    """An undisturbed run: its results, how many moments it has, and the bytes that it leaves."""

    results: dict[str, Any]
    counted: dict[str, int]
    largest: int

    @property
    def moments(self) -> int:
        """Of all kinds."""
        return sum(self.counted.values())


@dataclass
class Stage:
    """A world, a place for results, and the undisturbed run of each command."""

    world: World
    scratch: Path
    wholes: dict[str, Whole] = field(default_factory=dict)
    folders: int = 0

    def folder(self) -> Path:
        """A new one."""
        self.folders += 1
        path = self.scratch / f"out-{self.folders}"
        path.mkdir(parents=True)
        return path

    def log(self) -> Path:
        """Where a child writes to."""
        return self.scratch / "log"

    def moments(self, at: int, **options: Any) -> Moments:
        """For the next child."""
        return Moments(note_of(self.log()), at, **options)

    def whole(self, command: Disturbed) -> Whole:
        """The undisturbed run."""
        if command.name not in self.wholes:
            out = self.folder()
            ended = self.run(command, out)
            assert ended.code == 0, ended.errors
            sizes = [path.stat().st_size for path in (out / "rows.sqlite", *out.glob("*.safet*"))
                     if path.exists()]  # fmt: skip
            undisturbed = Whole(
                command.results(out, ended), ended.note["counted"], max(sizes)
            )
            self.wholes[command.name] = undisturbed
            self.clear(out)
        return self.wholes[command.name]

    def run(
        self,
        command: Disturbed,
        out: Path,
        moments: Moments | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> Ended:
        """Run a command to its end, whatever that is."""
        return run(command.line(self.world, out), self.log(), moments, before)

    def start(self, command: Disturbed, out: Path, moments: Moments) -> Child:
        """Begin a command."""
        return start(command.line(self.world, out), self.log(), moments)

    def finish(self, command: Disturbed, out: Path) -> None:
        """Run it once more, undisturbed: all has to be as if nothing had happened."""
        self.check(command, out, self.run(command, out))
        self.clear(out)

    def check(self, command: Disturbed, out: Path, ended: Ended) -> None:
        """Raise unless the results are those of an undisturbed run."""
        assert ended.code == 0, f"exit code {ended.code}: {ended.errors}"
        actual, expected = command.results(out, ended), self.whole(command).results
        for name, value in expected.items():
            assert actual[name] == value, (
                f"{name} differ from those of an undisturbed run"
            )

    def refused(self, ended: Ended, *words: str, code: int = 3) -> None:
        """Raise unless it ended with a message instead of a traceback."""
        assert ended.code == code, f"exit code {ended.code}, not {code}: {ended.errors}"
        assert "Traceback" not in ended.errors, ended.errors
        for word in words:
            assert word in ended.errors, f"{word!r} is not in {ended.errors!r}"

    def clear(self, out: Path) -> None:
        """Room for others."""
        shutil.rmtree(out)


def middle(stage: Stage, command: Disturbed) -> int:
    """The moment in the middle of a command's rows, or of its pictures if it writes none."""
    return max(1, stage.whole(command).counted[kind_of(command)] // 2)


def kind_of(command: Disturbed) -> str:
    """Of the moments of `middle`."""
    return PICTURE if command.name == "fit" else ROW
