"""Finished answers on disk, so that a killed run goes on where it stopped.

Every line is an `Answer` as JSON with a checksum of its bytes in its last field, ``sum``. Lines are
appended many at once, by one write that reaches the disk before the next begins, so a kill can tear
the last one only, and the next run cuts that off. A line that does not match its checksum is told,
blanked, and its answer computed again. Of two lines with the same key the last counts.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple
from zlib import crc32

import msgspec
from typing_extensions import Self

from fair_tta._io import printable
from fair_tta.errors import DamagedRowWarning, StoreError
from fair_tta.prediction import Prediction


class Key(NamedTuple):
    """What an answer depends on; two answers with the same key are the same.

    Attributes:
        content: digest of the picture's file.
        model: digest of the weights, the preprocessing, the views and the version of fair-tta.
        task: digest of names and templates.
        setting: digest of the method and its settings.
        seed: of the views.
    """

    content: str
    model: str
    task: str
    setting: str
    seed: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one setting says of one picture. Numbers are in the order of the task's names.

    Attributes:
        image: what the picture is called, within its dataset or by the user.
        file: tells its file from what it was before, see `fair_tta.lab._runs.bank.stamp_of`.
        content: see `Key`, as the four that follow.
        seconds: what it took: see `fair_tta.lab._runs.worker`.
        by: who did the work.

    The others are those of `Prediction`.
    """

    image: str
    file: str
    content: str
    model: str
    task: str
    setting: str
    seed: int
    label: str
    probabilities: list[float]
    zero_shot: list[float]
    sensitive: dict[str, list[float]]
    sensitive_zero_shot: dict[str, list[float]]
    entropy: float
    entropy_zero_shot: float
    sensitive_entropy: dict[str, float]
    sensitive_entropy_zero_shot: dict[str, float]
    distance: float
    flip_margin: float
    certified_unchanged: bool
    learning_rate: float | None
    relative_step: float | None
    views_kept: int | None
    warnings: tuple[str, ...]
    seconds: float
    by: str = ""

    @property
    def key(self) -> Key:
        """What it depends on."""
        return Key(self.content, self.model, self.task, self.setting, self.seed)


_PLAIN = [
    "label", "entropy", "entropy_zero_shot", "sensitive_entropy", "sensitive_entropy_zero_shot",
    "distance", "flip_margin", "certified_unchanged", "learning_rate", "relative_step",
    "views_kept", "warnings",
]  # fmt: skip


def to_answer(
    prediction: Prediction,
    key: Key,
    *,
    image: str,
    file: str = "",
    seconds: float = 0.0,
) -> Answer:
    """A prediction as it is kept."""
    p = prediction
    return Answer(
        image=printable(image),  # JSON has no place for names that are not Unicode
        file=file,
        **key._asdict(),
        probabilities=list(p.probabilities.values()),
        zero_shot=list(p.zero_shot.values()),
        sensitive={a: list(values.values()) for a, values in p.sensitive.items()},
        sensitive_zero_shot={a: list(v.values()) for a, v in p.sensitive_zero_shot.items()},
        seconds=seconds,
        **{name: getattr(p, name) for name in _PLAIN},
    )


def to_prediction(
    answer: Answer, targets: Iterable[str], sensitive: Mapping[str, Iterable[str]]
) -> Prediction:
    """What is kept as a person gets it."""
    labels = list(targets)

    def named(rows: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
        return {a: dict(zip(sensitive[a], row, strict=True)) for a, row in rows.items()}

    return Prediction(
        probabilities=dict(zip(labels, answer.probabilities, strict=True)),
        zero_shot=dict(zip(labels, answer.zero_shot, strict=True)),
        sensitive=named(answer.sensitive),
        sensitive_zero_shot=named(answer.sensitive_zero_shot),
        **{name: getattr(answer, name) for name in _PLAIN},
    )


_FIELDS = re.compile(rb'\{"image":"(?:[^"\\]|\\.)*","file":"[0-9a-f]*","content":"')
_EMPTY = b'{"image":"","file":"","content":"'  # how every line begins, and how it may be torn
_TAIL = len(b',"sum":"01234567"}\n')
_OLD = b'{"journal":'  # of version 0.1
_SHOWN = 5
_HELD = {errno.EAGAIN, errno.EACCES}  # a lock, by somebody else; the second on Windows
_decoder = msgspec.json.Decoder(Answer)


class Store:
    """Answers that are done. Use it in a `with` statement.

    Args:
        path: the file; it is made if it is not there.
        restart: throw away what is there.

    In memory it keeps some 400 bytes of each answer: where it is, and what its file was.

    Attributes:
        was_begun: whether there were answers when it was opened.

    Raises:
        StoreError: another process has it open, or it holds something else than answers.
    """

    def __init__(self, path: str | os.PathLike[str], *, restart: bool = False) -> None:
        self.path = Path(path)
        self._places: dict[bytes, int] = {}  # where the lines begin
        self._contents: dict[bytes, bytes] = {}  # of files, by their stamps
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"{str(self.path)!r} is no file: choose another place (--out).")
        is_new = not self.path.exists()
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        self._file: IO[bytes] = os.fdopen(handle, "r+b", buffering=0)
        try:
            _lock(self._file, self.path)
            if is_new and sys.platform != "win32":
                _sync(self.path.parent)
            if restart:
                self._file.truncate(0)
            self._open()
            self.was_begun = bool(self._places)
        except BaseException:
            self._file.close()
            raise

    def __contains__(self, key: Key) -> bool:
        return _short(key) in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Answer]:
        """All answers in the order of their lines, read from the disk one by one."""
        return self._at(sorted(self._places.values()))

    def read(self, keys: Iterable[Key]) -> Iterator[Answer]:
        """The answers of these keys, in this order; `KeyError` if there is none."""
        return self._at(self._places[_short(key)] for key in keys)

    def content(self, stamp: str) -> str:
        """The digest of a file that was answered and is as it was, empty if there is none."""
        return self._contents.get(bytes.fromhex(stamp), b"").hex()

    def append(self, answers: Sequence[Answer]) -> None:
        """Write answers; they are on the disk when this returns."""
        lines = [_line(answer) for answer in answers]
        if not lines:
            return
        place = self._write(b"".join(lines))
        for answer, line in zip(answers, lines, strict=True):
            self._keep(answer, place)
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

    def _keep(self, answer: Answer, place: int) -> None:
        self._places[_short(answer.key)] = place
        if answer.file:
            self._contents[bytes.fromhex(answer.file)] = bytes.fromhex(answer.content)

    def _at(self, places: Iterable[int]) -> Iterator[Answer]:
        with open(self.path, "rb") as file:
            for place in places:
                file.seek(place)
                answer = _parsed(file.readline())
                if answer is None:
                    raise StoreError(
                        f"{str(self.path)!r} was changed while it was in use: run the same "
                        "command again."
                    )
                yield answer

    def _open(self) -> None:
        """Read what is there, cut off a line that a kill has torn, blank those that are damaged."""
        place, damaged, ours = 0, [], False
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                answer = _parsed(line)
                ours = ours or answer is not None or _FIELDS.match(line) is not None
                if answer is not None:
                    self._keep(answer, place)
                elif _is_torn(line) and (ours or _begins_as_ours(line)):
                    break
                elif line.strip(b" \n\0"):
                    damaged.append((number, place, len(line)))
                place += len(line)
            if damaged and not ours:
                file.seek(0)
                self._refuse(file.read(len(_OLD)))
        self._file.truncate(place)
        for _, start, length in damaged:
            self._file.seek(start)
            self._file.write(b" " * (length - 1) + b"\n")
        if damaged:
            some = ", ".join(str(number) for number, _, _ in damaged[:_SHOWN])
            more = f" and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
            warnings.warn(
                f"{str(self.path)!r}: line {some}{more} is not what was written there (is the disk "
                "sound?). What it said is computed again, the other lines are used.",
                DamagedRowWarning,
                stacklevel=3,
            )

    def _refuse(self, beginning: bytes) -> None:
        what = "holds something else than answers of fair-tta"
        if beginning == _OLD:
            what = "holds rows of fair-tta 0.1, which this version cannot read"
        raise StoreError(
            f"{str(self.path)!r} {what}: choose another place (--out), or throw it away "
            "(--restart)."
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


def _line(answer: Answer) -> bytes:
    body = msgspec.json.encode(answer)[:-1]
    return b'%s,"sum":"%08x"}\n' % (body, crc32(body))


def _parsed(line: bytes) -> Answer | None:
    """None if it is not as it was written."""
    body = line[:-_TAIL]
    if line[-_TAIL:] != b',"sum":"%08x"}\n' % crc32(body):
        return None
    try:
        answer = _decoder.decode(line)
        if answer.file:
            bytes.fromhex(answer.file + answer.content)
    except (ValueError, msgspec.MsgspecError):  # before 0.20 not a ValueError
        return None
    return answer


def _is_torn(line: bytes) -> bool:
    """Not a whole line whose end has become another byte."""
    return not line.endswith(b"\n") and _parsed(line[:-1] + b"\n") is None


def _begins_as_ours(torn: bytes) -> bool:
    """Whether it could go on as a line of ours."""
    begin = torn.strip(b"\0").rstrip(b"\\")
    return any(_FIELDS.match(begin + _EMPTY[place:]) for place in range(len(_EMPTY) + 1))


def _short(key: Key) -> bytes:
    return blake2b(repr(tuple(key)).encode(), digest_size=16).digest()


def _sync(folder: Path) -> None:
    """So that a power cut does not take a new file away, as far as the disk knows how."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
        why = error.strerror or error
        if error.errno in _HELD:
            text = f"is in use by another process ({why}): wait for it, or choose another place"
        else:
            text = f"cannot be locked ({why}): choose a place on a disk that can lock files"
        raise StoreError(f"{str(path)!r} {text} (--out).") from error
