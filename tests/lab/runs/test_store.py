"""Store: nothing is lost, nothing repeated, nothing mixed up, and no damage goes unnoticed."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fair_tta.errors import DamagedRowWarning, StoreError
from fair_tta.lab._runs.store import Answer, Key, Store, to_answer, to_prediction
from fair_tta.prediction import Prediction

PREDICTION = Prediction(
    label="dog",
    probabilities={"cat": 0.25, "dog": 0.75},
    zero_shot={"cat": 0.5, "dog": 0.5},
    sensitive={"place": {"sea": 0.1, "wood": 0.9}},
    sensitive_zero_shot={"place": {"sea": 0.2, "wood": 0.8}},
    entropy=0.8,
    entropy_zero_shot=1.0,
    sensitive_entropy={"place": 0.4},
    sensitive_entropy_zero_shot={"place": 0.7},
    distance=0.25,
    flip_margin=0.0,
    certified_unchanged=False,
    learning_rate=0.005,
    warnings=("bounded",),
)


def stamp(i: int) -> str:
    return f"{i:032x}"


def row(i: int = 0, **fields: Any) -> Answer:
    key = Key(f"{i:04x}", "m", "t", "s", 0)
    answer = to_answer(PREDICTION, key, image=f"{i}.jpg", file=stamp(i), seconds=0.1)
    return msgspec.structs.replace(answer, **fields)


def rows(count: int) -> list[Answer]:
    return [row(i) for i in range(count)]


def test_a_prediction_comes_back_as_it_was() -> None:
    answer = row()
    assert to_prediction(answer, ["cat", "dog"], {"place": ["sea", "wood"]}) == PREDICTION
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer


def test_rows_survive_closing(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Store(path) as store:
        store.append(rows(2))
        store.append([])
        assert list(store) == rows(2)
        with Store(tmp_path / "other") as other:
            assert not len(other)
    with Store(path) as store:
        assert row(1).key in store
        assert row(2).key not in store
        store.append([row(2)])
        assert list(store.read([row(2).key, row(0).key])) == [row(2), row(0)]
        with pytest.raises(KeyError):
            list(store.read([row(3).key]))
    assert len(path.read_bytes().splitlines()) == 3
    for line in path.read_text().splitlines():
        assert set(json.loads(line)) == {*Answer.__struct_fields__, "sum"}  # JSON for others too
    with Store(path, restart=True) as store:
        assert not len(store)


def test_of_two_rows_with_the_same_key_the_last_counts(tmp_path: Path) -> None:
    with Store(tmp_path / "rows") as store:
        store.append([row(0), row(1)])
        store.append([row(0, image="again.jpg", label="cat")])
        assert len(store) == 2
        assert next(store.read([row(0).key])).label == "cat"
    with Store(tmp_path / "rows") as store:
        assert [answer.label for answer in store] == ["dog", "cat"]
        assert store.content(stamp(0)) == "0000"


def test_files_are_known_by_their_stamps(tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9.jpg")  # no Unicode
    drawn = to_answer(PREDICTION, row(5).key, image=odd)
    with Store(tmp_path / "rows") as store:
        assert not store.was_begun
        store.append([row(3), drawn])
    with Store(tmp_path / "rows") as store:
        assert store.was_begun
        assert store.content(stamp(3)) == "0003"
        assert store.content(stamp(4)) == store.content("") == ""
        assert list(store)[1].image == "caf\\udce9.jpg"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cut_anywhere_whole_rows_stay(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("store") / "rows"
    with Store(path) as store:
        store.append(rows(3))
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Store(path) as store:
            assert list(store) == rows(whole[:cut].count(b"\n"))
            store.append(rows(3)[len(store) :])
    assert path.read_bytes() == whole


@pytest.mark.parametrize("seed", range(200))
def test_a_changed_byte_is_told_and_costs_its_row(seed: int, tmp_path: Path) -> None:
    randomly = random.Random(seed)
    path = tmp_path / "rows"
    with Store(path) as store:
        store.append(rows(6))
    whole = path.read_bytes()
    place = randomly.randrange(len(whole) - 1)
    changed = randomly.choice([b for b in range(256) if b != whole[place]])
    path.write_bytes(whole[:place] + bytes([changed]) + whole[place + 1 :])
    line = whole[:place].count(b"\n")
    hit = {line, line + 1} if whole[place] == ord("\n") else {line}
    with pytest.warns(DamagedRowWarning, match=rf"line {line + 1}[, ]") as told:
        store = Store(path)
    assert len(told) == 1
    with store:
        left = [answer for i, answer in enumerate(rows(6)) if i not in hit]
        assert list(store) == left
        store.append([row(i) for i in hit])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is told once
        with Store(path) as store:
            assert sorted(store, key=lambda answer: answer.image) == rows(6)


@pytest.mark.parametrize("damage", [0, 1, 7])
def test_many_damaged_rows(damage: int, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with Store(path) as store:
        store.append(rows(9))
    lines = path.read_bytes().splitlines(keepends=True)
    for i in range(damage):
        lines[i] = os.urandom(20).replace(b"\n", b"x") + b"\n"
    path.write_bytes(b"".join(lines))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with Store(path) as store:
            assert len(store) == 9 - damage
    assert [("and 2 more" in str(w.message)) for w in told] == [damage == 7] * (damage > 0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"path,label\n", "something else than answers"),
        (b"my only copy", "something else than answers"),
        (b"{", ""),
        (b"", ""),
        (b'{"image":"torn', ""),
        (b'{"image":"torn \\', ""),
        (b'{"image":"torn","fil', ""),
        (b'{"image":"torn","file":"0a', ""),
        (b'{"image":"torn","file":"0a","content":"0b"', ""),
        (b'{"image": "a.jpg", "caption": "mine"}\n', "something else than answers"),
        (b'{"image": "a.jpg", "caption": "mine"}', "something else than answers"),
        (b'{"image":"a.jpg","caption":"mine"}\n', "something else than answers"),
        (b'{"image":"a.jpg","caption":"min', "something else than answers"),
        (b'{"image":"a.jpg","file":"a.jpg"}\n', "something else than answers"),
        (b"\n\n", ""),
        (b"{}\n{}\n", "something else than answers"),
        (b"\0" * 500, ""),
        (b'{"journal": "fair-tta/journal/1", "facts": {}}\n{"key": "a"}\n', "rows of fair-tta 0.1"),
    ],
)
def test_files_of_others_and_of_earlier_versions(
    content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    if words:
        with pytest.raises(StoreError, match=f"{words}.*--out.*--restart"):
            Store(path)
        assert path.read_bytes() == content
        Store(path, restart=True).close()
        assert path.read_bytes() == b""
    else:
        with Store(path) as store:
            store.append([row()])
        with Store(path) as store:
            assert list(store) == [row()]


@pytest.mark.filterwarnings("ignore::fair_tta.lab._runs.store.DamagedRowWarning")
def test_a_file_all_of_whose_rows_are_damaged_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with Store(path) as store:
        store.append([row()])
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"dog"', b'"cat"'))
    with Store(path) as store:
        assert not len(store)
        store.append([row()])
    with Store(path) as store:
        assert list(store) == [row()]


def test_a_changed_end_of_the_last_line_is_no_tear(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with Store(path) as store:
        store.append(rows(3))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\x0b")
    with pytest.warns(DamagedRowWarning, match="line 3 is not"):
        store = Store(path)
    with store:
        assert list(store) == rows(2)
        store.append([row(2)])
    with Store(path) as store:
        assert list(store) == rows(3)


@pytest.mark.skipif(sys.platform == "win32", reason="no such pipes")
def test_a_pipe_is_no_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows")
    with pytest.raises(StoreError, match="is no file"):
        Store(tmp_path / "rows")


def test_a_full_disk_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with Store(tmp_path / "rows") as store:
        store.append([row(0)])
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                store.append([row(1)])
        assert list(store) == [row(0)]
        store.append([row(1)])
        assert list(store) == rows(2)


def test_a_file_that_changes_while_it_is_in_use_is_told(tmp_path: Path) -> None:
    with Store(tmp_path / "rows") as store:
        store.append(rows(2))
        data = (tmp_path / "rows").read_bytes()
        (tmp_path / "rows").write_bytes(data[:20] + b"?" + data[21:])
        with pytest.raises(StoreError, match="was changed while it was in use"):
            list(store)


@pytest.mark.skipif(sys.platform == "win32", reason="other locks")
def test_a_disk_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(StoreError, match=r"cannot be locked \(No locks available\): choose"):
        Store(tmp_path / "rows")


@pytest.mark.skipif(sys.platform == "win32", reason="folders are not synced")
def test_a_disk_that_cannot_sync_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def of_files(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(handle)

    monkeypatch.setattr("os.fsync", of_files)
    with Store(tmp_path / "rows") as store:
        store.append([row()])
        assert list(store) == [row()]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with Store(path) as store:
        store.append([row()])
        with pytest.raises(StoreError, match="is in use by another process"):
            Store(path, restart=True)
        assert list(store) == [row()]
    Store(path).close()


WRITER = """
import sys
import time
sys.path.insert(0, sys.argv[2])
from fair_tta.lab._runs.store import Store
from test_store import row
with Store(sys.argv[1]) as store:
    for batch in range(400):
        some = [row(i) for i in range(batch * 5, batch * 5 + 5)]
        store.append([one for one in some if one.key not in store])
        if batch == 0: print("started", flush=True)
    while "wait" in sys.argv: time.sleep(1)  # to be killed, if it has not been already
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_killed_at_random_moments(tmp_path: Path) -> None:
    path, randomly = tmp_path / "rows", random.Random(0)
    command = [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent)]
    for _ in range(2):
        process = subprocess.Popen([*command, "wait"], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(randomly.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with Store(path) as store:
        assert list(store) == rows(2000)
    assert path.read_bytes().count(b"\n") == 2000


def test_a_row_of_somebody_else_is_not_there(tmp_path: Path) -> None:
    """Its checksum is right, but it does not name its file as we do."""
    path = tmp_path / "rows.jsonl"
    content = msgspec.json.encode(row(1, file="no digest"))[:-1]
    with Store(path) as store:
        store.append([row(0)])
    with path.open("ab") as file:
        file.write(b'%s,"sum":"%08x"}\n' % (content, crc32(content)))
    with (
        pytest.warns(DamagedRowWarning, match="line 2 is not what was written"),
        Store(path) as store,
    ):
        assert [answer.image for answer in store] == ["0.jpg"]
