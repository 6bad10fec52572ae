"""Finished rows on disk: a file that only grows, so that a killed run goes on where it stopped.

The first line says what determines the rows (model, prompts, settings, data); each further line is
one row, a JSON object. Rows are appended many at once, by one write that reaches the disk before
the next begins. A kill can therefore tear the last line only, and the next run cuts that off. A row
that is done again is a new line, and the last line of a key counts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from typing_extensions import Self

from fair_tta.errors import FairTTAError

FORMAT = "fair-tta/journal/1"


class JournalError(FairTTAError):
    """A journal belongs to another run, is in use by another process, or is damaged."""


class Journal:
    """Rows that are done, each known by its key. Use it in a `with` statement.

    Args:
        path: the file; it is made if it is not there.
        facts: everything that determines the rows, as JSON. A journal with other facts is refused.
        key: the field of a row that tells it from others; a string.
        restart: throw away what is there.

    Raises:
        JournalError: another process has the journal open, it was begun with other facts, or a
            line in its middle is damaged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.jsonl"
        >>> with Journal(path, {"seed": 0}) as journal:
        ...     journal.append([{"key": "a.jpg", "label": "cat"}])
        >>> with Journal(path, {"seed": 0}) as journal:
        ...     "a.jpg" in journal, len(journal), list(journal)
        (True, 1, [{'key': 'a.jpg', 'label': 'cat'}])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        facts: Mapping[str, Any],
        *,
        key: str = "key",
        restart: bool = False,
    ) -> None:
        self.path = Path(path)
        self.key = key
        self._places: dict[str, int] = {}  # where the lines of rows begin
        self._facts: dict[str, Any] = json.loads(_line(dict(facts)))
        self._file: IO[bytes] = open(self.path, "a+b", buffering=0)  # noqa: SIM115
        try:
            _lock(self._file, self.path)
            if restart:
                self._file.truncate(0)
            self._open()
        except BaseException:
            self._file.close()
            raise

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All rows in the order in which they were appended, read from the disk one by one."""
        return self.read(sorted(self._places, key=self._places.__getitem__))

    def read(self, keys: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The rows of these keys, in this order, read from the disk one by one.

        Raises:
            JournalError: there is no such row.
        """
        with open(self.path, "rb") as file:
            for key in keys:
                if key not in self._places:
                    raise JournalError(
                        f"{str(self.path)!r} is not finished: run the same command again first."
                    )
                file.seek(self._places[key])
                row: dict[str, Any] = json.loads(file.readline())
                yield row

    def keys(self) -> set[str]:
        """Of all rows."""
        return set(self._places)

    def forget(self, key: str) -> None:
        """Take a row for not done. Its line stays, and counts again when the journal is opened
        anew, unless the row was appended again.
        """
        del self._places[key]

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows; they are on the disk when this returns."""
        new: set[str] = set()
        for key in (row[self.key] for row in rows):
            if key in self._places or key in new:
                raise JournalError(f"a row should be appended once ({key!r} is there already).")
            new.add(key)
        if rows:
            lines = [_line(row) for row in rows]
            place = self._write(b"".join(lines))
            for row, line in zip(rows, lines, strict=True):
                self._places[row[self.key]] = place
                place += len(line)

    def close(self) -> None:
        """Let other processes have it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> None:
        """Read the keys of what is there, and cut off a line that a kill has torn."""
        self._file.seek(0)
        whole, header = 0, _line({"journal": FORMAT, "facts": self._facts})
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n") and (number > 1 or header.startswith(line)):
                    break  # torn
                content = self._parsed(line, number)
                if number == 1:
                    self._check_facts(content)
                else:
                    self._places[content[self.key]] = whole
                whole += len(line)
        self._file.truncate(whole)
        if not whole:
            self._write(header)

    def _parsed(self, line: bytes, number: int) -> Any:
        try:
            if not line.endswith(b"\n"):
                raise ValueError("no end")
            content = json.loads(line)
            content["journal" if number == 1 else self.key]
        except (ValueError, TypeError, KeyError) as error:
            raise JournalError(
                f"line {number} of {str(self.path)!r} is not what was written there: choose "
                "another place (--out), or restart (--restart) and lose its rows."
            ) from error
        return content

    def _check_facts(self, header: Mapping[str, Any]) -> None:
        if header["journal"] != FORMAT:
            raise JournalError(
                f"{str(self.path)!r} is a journal of the form {header['journal']!r}, this version "
                f"of fair-tta writes {FORMAT!r}: choose another place (--out)."
            )
        differences = list(_differences(header["facts"], self._facts))
        if differences:
            more = f" and {len(differences) - 5} more" if len(differences) > 5 else ""
            raise JournalError(
                f"{str(self.path)!r} holds rows of another run: {'; '.join(differences[:5])}{more}."
                " Choose another place (--out), or restart (--restart) and lose its rows."
            )

    def _write(self, data: bytes) -> int:
        """All of it, on the disk, or an exception and not a byte more than was there.

        Returns where it begins.
        """
        end = self._file.seek(0, os.SEEK_END)
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(end)
            raise
        return end


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False).encode("ascii") + b"\n"


def _differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """What differs, leaf by leaf, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            inner = f"{where}.{name}" if where else name
            yield from _differences(old.get(name), new.get(name), inner)
    elif old != new:
        yield f"{where} was {_short(old)} and is {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _lock(file: IO[bytes], path: Path) -> None:
    """For this process alone, until the file is closed or the process ends, however it ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(2**40)  # a byte that nobody reads
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise JournalError(
            f"{str(path)!r} is in use by another process ({error.strerror or error}): wait for "
            "it, or choose another place (--out)."
        ) from error
