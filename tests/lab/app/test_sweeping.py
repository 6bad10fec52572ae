"""What visitors bring and get goes after an hour; what the page needs and what goes on stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fair_tta.lab.app._server import OLD, files_below, sweep_runs, sweep_uploads


def write(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")


def test_uploads_go_after_an_hour_and_files_of_the_page_stay(tmp_path: Path) -> None:
    write(tmp_path / "ab" / "example.png")
    of_page = files_below(tmp_path)
    assert of_page == {str(tmp_path / "ab" / "example.png")}
    write(tmp_path / "ab" / "mine.png", tmp_path / "cd" / "other.png", tmp_path / "tmp1")
    now = time.time()
    sweep_uploads(tmp_path, of_page, now + OLD - 60)
    assert len(files_below(tmp_path)) == 4
    sweep_uploads(tmp_path, of_page, now + OLD + 60)
    assert files_below(tmp_path) == of_page
    sweep_uploads(tmp_path, of_page, now + 2 * OLD + 60)
    assert [p.name for p in tmp_path.iterdir()] == ["ab"]
    sweep_uploads(tmp_path / "none", of_page)


def test_a_copy_is_as_old_as_it_lies_there(tmp_path: Path) -> None:
    write(tmp_path / "ab" / "copy.png")
    os.utime(tmp_path / "ab" / "copy.png", (0, 0))  # as the file it was copied from
    sweep_uploads(tmp_path, ())
    assert files_below(tmp_path)


def test_runs_go_after_an_hour_but_not_one_that_goes_on(tmp_path: Path) -> None:
    write(tmp_path / "old" / "run" / "report.html", tmp_path / "new" / "run" / "rows.sqlite")
    now = time.time()
    sweep_runs(tmp_path, now + OLD - 60)
    assert len(list(tmp_path.iterdir())) == 2
    os.utime(tmp_path / "new" / "run" / "rows.sqlite", (now + OLD, now + OLD))
    sweep_runs(tmp_path, now + OLD + 60)
    assert [p.name for p in tmp_path.iterdir()] == ["new"]
    sweep_runs(tmp_path, now + 2 * OLD + 60)
    assert not list(tmp_path.iterdir())
