"""Small disks of our own (tmpfs), which can be full or read-only; they take a mount, so root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stage import Skipped

SIZE = 4 * 2**20


@dataclass(frozen=True)
class Disk:
    """A mounted disk.

    Attributes:
        path: where.
    """

    path: Path

    @property
    def free(self) -> int:
        """Bytes."""
        return shutil.disk_usage(self.path).free

    def read_only(self, is_read_only: bool) -> None:
        """Switch it."""
        _mount("-o", f"remount,{'ro' if is_read_only else 'rw'}", str(self.path))


@contextmanager
def disk(path: Path) -> Iterator[Disk]:
    """A disk at a place for a while.

    Raises:
        Skipped: it may not be mounted here.
    """
    if os.geteuid() != 0 or shutil.which("mount") is None:
        raise Skipped("a disk can be mounted by root on Linux only")
    _mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path))
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False)


def _mount(*arguments: str) -> None:
    finished = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if finished.returncode:
        raise Skipped(f"mount is not permitted ({finished.stderr.strip()})")
