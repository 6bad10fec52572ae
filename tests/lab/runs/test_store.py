"""Store: nothing is lost, nothing repeated, nothing mixed up, and no damage goes unnoticed."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from pathlib import Path

import pytest
from internals import ROWS_FILE, Store
from store_rows import row, rows

from fair_tta.errors import FairTTAError


@pytest.fixture(params=[0, 8], ids=["network disk", "local disk"])
def path(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    if hasattr(os, "major"):
        monkeypatch.setattr("os.major", lambda _: request.param)
    return tmp_path / ROWS_FILE


def execute(path: Path, statement: str) -> None:
    """Change the file as another program, or a disk, might do."""
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


def test_rows_survive_closing(path: Path) -> None:
    with Store(path) as store:
        assert not store.was_begun
        store.append(rows(2))
        store.append([])
        assert list(store) == rows(2)
    with Store(path) as store:
        assert store.was_begun
        assert store.find([row(1).key])
        assert not store.find([row(2).key])
        store.append([row(2)])
        expected = {row(2).key: row(2), row(0).key: row(0)}
        assert store.find([row(2).key, row(3).key, row(0).key]) == expected
    files = [file.name for file in path.parent.iterdir()]
    assert files == [ROWS_FILE], "no log, no lock"
    with Store(path, restart=True) as store:
        assert not list(store)


def test_of_two_rows_with_the_same_key_the_last_counts(path: Path) -> None:
    with Store(path) as store:
        store.append([row(0), row(1)])
        store.append([row(0, image="again.jpg")])
        assert [stored.image for stored in store] == ["1.jpg", "again.jpg"]


def test_files_are_known_by_their_signatures(path: Path) -> None:
    not_unicode = os.fsdecode(b"caf\xe9.jpg")
    with Store(path) as store:
        store.append([row(3), row(5, image=not_unicode, file="")])
    with Store(path) as store:
        assert store.content(row(3).file) == "0003"
        assert store.content(row(4).file) == store.content("") == ""
        assert list(store)[1].image == "caf\\udce9.jpg"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rows SET prediction = replace(prediction, '0.75', '0.76') WHERE image = '1.jpg'",
        "UPDATE rows SET seconds = 0.2 WHERE image = '1.jpg'",
        "UPDATE rows SET prediction = '{', checksum = 0 WHERE image = '1.jpg'",
        "UPDATE rows SET prediction = CAST(x'ff00' AS TEXT) WHERE image = '1.jpg'",
    ],
)
def test_a_changed_row_is_reported_and_written_again(
    statement: str, path: Path
) -> None:
    with Store(path) as store:
        store.append(rows(3))
    execute(path, statement)
    with Store(path) as store:
        keys = [stored.key for stored in rows(3)]
        with pytest.warns(UserWarning, match="1 row is not as written.*computed again"):
            intact = store.find(keys)
        assert intact.keys() == {keys[0], keys[2]}
        store.append([row(1)])
    with Store(path) as store:
        assert sorted(store, key=lambda stored: stored.image) == rows(3)


@pytest.mark.filterwarnings("ignore:.*as written:UserWarning")
def test_changed_bytes_are_never_rows_that_were_not_written(path: Path) -> None:
    generator = random.Random(0)
    with Store(path) as store:
        store.append(rows(40))
    intact = path.read_bytes()
    written = {repr(stored) for stored in rows(40)}
    for _ in range(60):
        data = bytearray(intact)
        for _ in range(generator.choice([1, 20])):
            data[generator.randrange(100, len(data))] = generator.randrange(256)
        path.write_bytes(data)
        try:
            with Store(path) as store:
                assert {repr(stored) for stored in store} <= written
        except FairTTAError as error:
            assert "is damaged" in str(error) or "cannot be used" in str(error)
            assert "\n" not in str(error)


@pytest.mark.parametrize("content", [b"path,label\n", b"\0" * 500])
def test_files_of_others_stay(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(FairTTAError, match=r"is not a file of fair-tta.*--restart"):
        Store(path)
    assert path.read_bytes() == content
    with Store(path, restart=True) as store:
        store.append([row()])
        assert list(store) == [row()]


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.touch()
    with Store(path) as store:
        store.append([row()])
        assert list(store) == [row()]


def test_a_database_of_another_program_is_not_opened(path: Path) -> None:
    execute(path, "CREATE TABLE mine (a)")
    content = path.read_bytes()
    with pytest.raises(FairTTAError, match="is not a file of fair-tta"):
        Store(path)
    assert path.read_bytes() == content
    Store(path, restart=True).close()
    execute(path, "PRAGMA user_version = 99")
    with pytest.raises(FairTTAError, match="written by another version"):
        Store(path)


@pytest.mark.skipif(sys.platform == "win32", reason="no such pipes")
def test_a_pipe_is_not_a_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ROWS_FILE)
    with pytest.raises(FairTTAError, match="is not a file"):
        Store(tmp_path / ROWS_FILE)


def test_a_full_disk_leaves_whole_batches(path: Path) -> None:
    with Store(path) as store:
        store.append([row(0)])
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(FairTTAError, match=r"disk is full\)"):
            store.append([row(i) for i in range(1, 40)])
        assert list(store) == [row(0)]
        store._db.execute("PRAGMA max_page_count = 1000000")
        store.append([row(1)])
        assert list(store) == rows(2)


def test_a_file_that_vanishes_is_reported(path: Path) -> None:
    with Store(path) as store:
        path.unlink()
        with pytest.raises(FairTTAError, match="was moved or deleted"):
            store.append([row()])


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write"
)
def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FairTTAError, match="cannot be used"):
        Store(tmp_path / ROWS_FILE)
    tmp_path.chmod(0o700)


def test_one_writer_at_a_time_and_readers_beside_it(path: Path) -> None:
    with Store(path) as store:
        store.append([row()])
        with pytest.raises(FairTTAError, match="is in use by another process"):
            Store(path, restart=True)
        reader = sqlite3.connect(path)
        query = "SELECT json_extract(prediction, '$.label') FROM rows"
        assert reader.execute(query).fetchall() == [("dog",)]
        store.append([row(1)])
        assert len(reader.execute(query).fetchall()) == 2
        reader.close()
    Store(path).close()
