"""Finished predictions in an SQLite file, so that a killed run resumes where it stopped.

A batch of rows is one transaction: after a kill, a power cut or a full disk either all of its rows
are stored or none. One process writes at a time; others may read. Of two rows with the same key the
last counts. Every row has a checksum, because SQLite does not notice a digit that a disk changed.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from zlib import crc32

import msgspec

from fair_tta._io import printable
from fair_tta.errors import FairTTAError
from fair_tta.prediction import Prediction

ROWS_FILE = "rows.sqlite"
"""The file of finished rows in the folder of a run."""


class DamagedRowWarning(UserWarning):
    """Some stored rows were changed by the disk.

    A class of its own, because commands print warnings of fair-tta's classes as notes.
    """


class RowKey(NamedTuple):
    """Everything that a prediction depends on: rows with the same key hold the same prediction.

    Attributes:
        content: digest of the image file.
        model: digest of the weights, the preprocessing, the views and the version of fair-tta.
        task: digest of names and templates.
        method: digest of the method and its settings, and of the batch if answers depend on it.
        seed: of the views.
    """

    content: str
    model: str
    task: str
    method: str
    seed: int


@dataclass(frozen=True)
class StoredRow:
    """A prediction of one method for one image.

    Attributes:
        image: its name in the dataset, or as the user wrote it.
        file: see `fair_tta.lab.runs._image_files.file_signature`.
        seconds: its cost, see `fair_tta.lab.runs._worker`.
        by: `Engine.description` of the engine that did the work.
    """

    key: RowKey
    image: str
    file: str
    prediction: Prediction
    seconds: float = 0.0
    by: str = ""


_APPLICATION = b"ftta"  # `PRAGMA application_id`
_FORMAT = 1  # `PRAGMA user_version`
_SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = 0x{_APPLICATION.hex()};
PRAGMA user_version = {_FORMAT};
CREATE TABLE rows (
    content TEXT, model TEXT, task TEXT, method TEXT, seed INTEGER, image TEXT, file TEXT,
    prediction TEXT, seconds REAL, by TEXT, checksum INTEGER,
    PRIMARY KEY (content, model, task, method, seed)
);
CREATE TABLE files (file TEXT PRIMARY KEY, content TEXT);
COMMIT;
"""
_INSERT = f"INSERT OR REPLACE INTO rows VALUES ({', '.join('?' * 11)})"
_FIND = (
    "SELECT * FROM rows WHERE (content, model, task, method, seed) = (?, ?, ?, ?, ?)"
)

# Seconds that a commit waits for readers.
_READER_TIMEOUT = 30.0

_decoder = msgspec.json.Decoder(Prediction)


class Store:
    """Finished rows, which `restart` discards. Use it in a `with` statement.

    Attributes:
        was_begun: it had rows when it was opened.

    Raises:
        FairTTAError: another process is writing to it, it is damaged, or it is not a file of ours.
    """

    def __init__(self, path: str | os.PathLike[str], *, restart: bool = False) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_file():
            raise FairTTAError(
                f"{str(self.path)!r} is not a file: choose another place (--out)."
            )
        self._lock = self._claim()
        try:
            if restart:
                for suffix in ("", "-journal", "-wal", "-shm"):
                    self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            else:
                self._check_is_ours()
            with self._explain_sqlite_errors():
                self._db = _connect(self.path, _READER_TIMEOUT)
                if not self._value("SELECT count(*) FROM sqlite_master"):
                    self._db.executescript(_SCHEMA)
                self._db.execute(f"PRAGMA journal_mode = {_journal_mode(self.path)}")
                # A commit returns when its rows are on the disk.
                self._db.execute("PRAGMA synchronous = FULL")
                self.was_begun = bool(self._value("SELECT EXISTS (SELECT 1 FROM rows)"))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[StoredRow]:
        """Yield all rows in the order in which they were written."""
        with self._explain_sqlite_errors():
            yield from self._read(self._db.execute("SELECT * FROM rows ORDER BY rowid"))

    def find(self, keys: Iterable[RowKey]) -> dict[RowKey, StoredRow]:
        """Return the stored rows of these keys. Damaged ones are left out, with a warning."""
        records = []
        with self._explain_sqlite_errors():
            for key in keys:
                record = self._db.execute(_FIND, key).fetchone()
                if record is not None:
                    records.append(record)
            return {row.key: row for row in self._read(records)}

    def content(self, signature: str) -> str:
        """Return the digest of the image file with this signature; empty if it is not known."""
        if not signature:
            return ""
        with self._explain_sqlite_errors():
            query = "SELECT content FROM files WHERE file = ?"
            return self._value(query, signature) or ""

    def append(self, rows: Sequence[StoredRow]) -> None:
        """Write rows in one transaction; they are on the disk when this returns."""
        if not rows:
            return
        # SQLite would go on writing to a file without a name, and all rows would be lost.
        if not self.path.exists():
            raise FairTTAError(
                f"{str(self.path)!r} was moved or deleted during the run."
            )
        with self._explain_sqlite_errors(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(_INSERT, map(_record, rows))
            files = {(row.file, row.key.content) for row in rows if row.file}
            self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?)", files)

    def close(self) -> None:
        """Let other processes write."""
        if hasattr(self, "_db"):
            self._db.close()
        self._lock.close()
        with suppress(OSError):
            self._lock_path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")

    def _claim(self) -> sqlite3.Connection:
        """Become the only writer, until the process ends.

        Rows would be safe without it, but two processes would compute the same ones.
        """
        with self._explain_sqlite_errors():
            lock = _connect(self._lock_path)
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error:
                lock.close()
                raise
            return lock

    def _check_is_ours(self) -> None:
        """Raise an error before SQLite opens, and may change, the file of another program."""
        header = _read_header(self.path)
        if not header:
            return
        # Offsets of the file format of SQLite.
        format_version = header[60:64]
        application = header[68:72]
        if header[:16] != b"SQLite format 3\0" or application != _APPLICATION:
            problem = "is not a file of fair-tta"
        elif format_version != _FORMAT.to_bytes(4, "big"):
            problem = "was written by another version of fair-tta"
        else:
            return
        raise FairTTAError(
            f"{str(self.path)!r} {problem}: choose another place (--out), or discard it "
            "(--restart)."
        )

    def _read(self, records: Iterable[tuple[Any, ...]]) -> Iterator[StoredRow]:
        """Yield the rows of records whose checksum is right, and warn of the others."""
        damaged = 0
        for *values, checksum in records:
            try:
                if checksum != _checksum(values):
                    raise ValueError
                *key, image, file, prediction, seconds, by = values
                prediction = _decoder.decode(prediction)
            except (ValueError, msgspec.MsgspecError):  # before 0.20 not a ValueError
                damaged += 1
            else:
                yield StoredRow(RowKey(*key), image, file, prediction, seconds, by)
        if damaged:
            warnings.warn(
                f"{str(self.path)!r}: {damaged} {'row is' if damaged == 1 else 'rows are'} not as "
                "written (is the disk sound?). What is needed of them is computed again, the other "
                "rows are used.",
                DamagedRowWarning,
                stacklevel=4,
            )

    def _value(self, query: str, *arguments: Any) -> Any:
        record = self._db.execute(query, arguments).fetchone()
        return record and record[0]

    @contextmanager
    def _explain_sqlite_errors(self) -> Iterator[None]:
        """Raise errors of SQLite as one of ours, in one line."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            text = str(error)
            if "locked" in text:
                problem = (
                    "is in use by another process: wait for it, or choose another place "
                    "(--out)."
                )
            elif "malformed" in text or "not a database" in text:
                problem = (
                    f"is damaged ({text}): choose another place (--out), or discard it "
                    "(--restart); `sqlite3 FILE .recover` shows the rows that can be saved."
                )
            else:
                problem = (
                    f"cannot be used ({text}). Rows that are finished are on disk: solve this, and "
                    "the same command resumes from there, or choose another place (--out)."
                )
            raise FairTTAError(f"{str(self.path)!r} {problem}") from error


def _connect(path: Path, timeout: float = 0.0) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout, isolation_level=None, check_same_thread=False)
    # Broken text does not raise here, as the checksum shows it.
    db.text_factory = partial(str, encoding="utf-8", errors="replace")
    return db


def _journal_mode(path: Path) -> str:
    """Return ``WAL``, a write-ahead log, for a local disk, else ``DELETE``.

    The log needs shared memory, which network disks lack. They and other file systems without a
    device (containers, memory) have major number 0.
    """
    is_local = hasattr(os, "major") and os.major(os.stat(path).st_dev) != 0
    return "WAL" if is_local else "DELETE"


def _read_header(path: Path) -> bytes:
    """Return the header of an SQLite file, which has 100 bytes; empty if there is no file."""
    try:
        with path.open("rb") as file:
            return file.read(100)
    except FileNotFoundError:
        return b""


def _record(row: StoredRow) -> list[Any]:
    prediction = msgspec.json.encode(row.prediction).decode()
    image = printable(row.image)  # SQLite takes no name that is not Unicode
    values = [*row.key, image, row.file, prediction, float(row.seconds), row.by]
    return [*values, _checksum(values)]


def _checksum(values: Sequence[Any]) -> int:
    return crc32(repr(values).encode("utf-8", "backslashreplace"))
