"""The moments of a command at which something can happen to it: counted, never timed.

A moment is a row on its way to the disk, a picture that is read, or a file that takes its place. A
run that nothing happens to says how many it has; so "in the middle" is the same row every time.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

ROW, PICTURE, FILE = "row", "picture", "file"


def kill() -> None:
    """As the machine's owner would, or the kernel for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Moments:
    """Counts moments in the process that it is installed in.

    Attributes:
        note: a file that says what was counted, and of which kind the chosen moment was.
        at: the number of the moment at which something happens; 0 for none.
        then: what happens.
        of: moments of this kind only, None for all.
    """

    note: Path
    at: int = 0
    then: Callable[[], None] = kill
    of: str | None = None
    counted: Counter[str] = field(default_factory=Counter)
    lock: Any = field(default_factory=Lock, repr=False)

    def install(self) -> None:
        """From now on, in this process."""
        from internals import _INSERT, Store, StoredRow, Vision, _record

        append, load, replace = Store.append, Vision.load, os.replace

        def appending(store: Store, rows: Sequence[StoredRow]) -> None:
            for index, _ in enumerate(rows):
                if (
                    self._is_next(ROW) and self.then is kill
                ):  # in the middle of a transaction
                    store._db.execute("BEGIN IMMEDIATE")
                    store._db.execute(
                        "PRAGMA cache_size = 1"
                    )  # so that it reaches the file
                    store._db.executemany(_INSERT, map(_record, rows[:index]))
                self._passed(ROW)
            append(store, rows)

        def loading(vision: Vision, image: Any) -> Any:
            self._passed(PICTURE)
            return load(vision, image)

        def replacing(*arguments: Any, **options: Any) -> None:
            self._passed(FILE)
            replace(*arguments, **options)
            self._passed(FILE)

        Store.append = appending  # type: ignore[method-assign, assignment]
        Vision.load = loading  # type: ignore[method-assign, assignment]
        os.replace = replacing

    def _counts(self, event: str) -> bool:
        return self.of is None or self.of == event

    def _is_next(self, event: str) -> bool:
        return self._counts(event) and self.counted.total() + 1 == self.at

    def _passed(self, event: str) -> None:
        if not self._counts(event):
            return
        with self.lock:  # pictures are read by threads
            self.counted[event] += 1
            is_it = self.counted.total() == self.at
        if is_it:
            self.say(event)
            self.then()

    def say(self, event: str = "") -> None:
        """Write the note."""
        with open(self.note, "w") as file:
            json.dump({"kind": event, "counted": self.counted}, file)
