"""Journal: nothing is lost, nothing repeated, nothing mixed up."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fair_tta.journal import FORMAT, Journal, JournalError

FACTS = {"seed": 0, "model": {"name": "m", "views": 64}}


def row(key: str) -> dict[str, object]:
    return {"key": key, "label": "naïve \udcff\n", "p": 0.1 + 0.2, "inner": {"a": [1, None]}}


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [row(str(i)) for i in range(5)]
    with Journal(tmp_path / "rows", FACTS) as journal:
        journal.append(rows[:2])
        journal.append([])
        journal.append(rows[2:])
        assert list(journal) == rows
    with Journal(tmp_path / "rows", FACTS) as journal:
        assert list(journal) == rows
        assert len(journal) == 5
        assert "4" in journal
        assert "5" not in journal
        journal.append([row("5")])
        assert list(journal) == [*rows, row("5")]


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 10**6), count=st.integers(0, 4))
def test_a_torn_line_is_cut_wherever_it_is_torn(
    cut: int, count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "rows"
    with Journal(path, FACTS) as journal:
        journal.append([row(str(i)) for i in range(count)])
    whole = path.read_bytes()
    cut %= len(whole) + 1
    path.write_bytes(whole[:cut])
    left = max(0, whole[:cut].count(b"\n") - 1)
    with Journal(path, FACTS) as journal:
        assert list(journal) == [row(str(i)) for i in range(left)]
        journal.append([row(str(i)) for i in range(left, count)])
    assert path.read_bytes() == whole


def test_other_facts_are_refused_and_named(tmp_path: Path) -> None:
    with Journal(tmp_path / "rows", FACTS) as journal:
        journal.append([row("a")])
    other = {"seed": 1, "model": {"name": "m", "views": 8}, "new": "x" * 200}
    with pytest.raises(JournalError, match="holds rows of another run") as caught:
        Journal(tmp_path / "rows", other)
    text = str(caught.value)
    assert "seed was 0 and is 1; model.views was 64 and is 8; new was null and is" in text
    assert "restart" in text
    assert len(text) < 500
    with pytest.raises(JournalError, match="and 3 more"):
        Journal(tmp_path / "rows", {**FACTS, **{f"fact {i}": i for i in range(8)}})
    with Journal(tmp_path / "rows", other, restart=True) as journal:
        assert list(journal) == []
    with Journal(tmp_path / "rows", other) as journal:
        assert len(journal) == 0


def test_a_damaged_line_is_not_taken_for_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with Journal(path, FACTS) as journal:
        journal.append([row("a"), row("b")])
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged in (b"\0\0\n", b'{"no": "key"}\n', b"3\n"):
        path.write_bytes(lines[0] + damaged + lines[2])
        with pytest.raises(JournalError, match=r"line 2 of .* is not what was written there"):
            Journal(path, FACTS)
    path.write_bytes(b"path,label\n")
    with pytest.raises(JournalError, match="line 1 of"):
        Journal(path, FACTS)
    assert path.read_bytes() == b"path,label\n"
    for foreign in (b"my only copy", b"{", lines[0][:-2] + b" }"):  # no newline: torn, or not ours?
        path.write_bytes(foreign)
        if lines[0].startswith(foreign):
            Journal(path, FACTS).close()
            assert path.read_bytes() == lines[0]
        else:
            with pytest.raises(JournalError, match="line 1 of"):
                Journal(path, FACTS)
            assert path.read_bytes() == foreign
    path.write_bytes(json.dumps({"journal": "fair-tta/journal/9"}).encode() + b"\n")
    with pytest.raises(JournalError, match=f"this version of fair-tta writes '{FORMAT}"):
        Journal(path, FACTS)


def test_a_row_is_appended_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "rows", FACTS) as journal:
        journal.append([row("a")])
        for again in ([row("a")], [row("b"), row("b")]):
            with pytest.raises(JournalError, match="should be appended once"):
                journal.append(again)
        with pytest.raises(ValueError, match="not JSON compliant"):
            journal.append([{"key": "c", "p": float("nan")}])
        assert list(journal) == [row("a")]


def test_a_full_disk_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with Journal(tmp_path / "rows", FACTS) as journal:
        journal.append([row("a")])
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                journal.append([row("b")])
        assert "b" not in journal
        assert list(journal) == [row("a")]
        journal.append([row("b")])
        assert list(journal) == [row("a"), row("b")]


def test_rows_by_key_and_rows_that_are_done_again(tmp_path: Path) -> None:
    with Journal(tmp_path / "rows", FACTS) as journal:
        journal.append([row("a"), row("b"), row("c")])
        assert list(journal.read(["c", "a"])) == [row("c"), row("a")]
        with pytest.raises(JournalError, match="is not finished: run the same command again"):
            list(journal.read(["a", "d"]))
        journal.forget("a")
        assert "a" not in journal
        assert len(journal) == 2
        assert list(journal) == [row("b"), row("c")]
    with Journal(tmp_path / "rows", FACTS) as journal:
        assert "a" in journal, "nothing was done in its place"
        journal.forget("a")
        new = {"key": "a", "label": "other"}
        journal.append([new])
        assert list(journal) == [row("b"), row("c"), new]
    with Journal(tmp_path / "rows", FACTS) as journal:
        assert list(journal) == [row("b"), row("c"), new]
        assert len(journal) == 3


def test_another_key(tmp_path: Path) -> None:
    with Journal(tmp_path / "rows", FACTS, key="id") as journal:
        journal.append([{"id": "a.jpg zero-shot"}, {"id": "a.jpg tpt"}])
    with Journal(tmp_path / "rows", FACTS, key="id") as journal:
        assert "a.jpg tpt" in journal


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with Journal(path, FACTS) as journal:
        journal.append([row("a")])
        with pytest.raises(JournalError, match="is in use by another process"):
            Journal(path, FACTS, restart=True)
        assert list(journal) == [row("a")]
    Journal(path, FACTS).close()


WRITER = """
import sys
from fair_tta.journal import Journal
with Journal(sys.argv[1], {"seed": 0}) as journal:
    for batch in range(800):
        rows = [{"key": str(i), "p": i / 7, "text": "x" * (i % 50)}
                for i in range(batch * 5, batch * 5 + 5)]
        journal.append([row for row in rows if row["key"] not in journal])
        if batch == 0: print("started", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_killed_at_random_moments(tmp_path: Path) -> None:
    path, randomly, kills = tmp_path / "rows", random.Random(0), 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(randomly.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        process.stdout.close()
    assert kills
    subprocess.run([sys.executable, "-c", WRITER, str(path)], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert rows == [{"key": str(i), "p": i / 7, "text": "x" * (i % 50)} for i in range(4000)]
