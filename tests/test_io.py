"""Files that are there as a whole or not at all, and CSV cells that stay text."""

from __future__ import annotations

import csv
import io
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import (
    atomic_file,
    csv_cell,
    printable,
    write_atomically,
    write_csv_row,
)


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomically(path, b"old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as part:
        part.write_bytes(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_windows_gets_a_second_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, tries = os.replace, []

    def scanned(part: Path, folder: Path) -> None:
        tries.append(folder)
        if len(tries) in (1, 2) or len(tries) > 3:
            raise PermissionError(13, "Access is denied", str(part), None, str(folder))
        replace(part, folder)

    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setattr("os.replace", scanned)
    monkeypatch.setattr("time.sleep", lambda _: None)
    write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    with pytest.raises(PermissionError):  # somebody has it open
        write_atomically(tmp_path / "a", b"newer")
    assert len(tries) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(PermissionError):
        write_atomically(tmp_path / "a", b"newer")
    assert len(tries) == 8


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "a")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "a").read_bytes() == b"new"


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="no devices")
def test_devices_are_written_to() -> None:
    write_atomically("/dev/null", b"gone")
    assert not os.path.isfile("/dev/null")


def row_of(cell: object) -> list[str]:
    """Return a row with this cell as it is read again."""
    file = io.StringIO(newline="")
    write_csv_row(file, ["x", cell])
    (row,) = csv.reader(file.getvalue().splitlines())
    return row


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", r"'\t=1"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\udce9", r"a\udce9"),
        ("a\nb", r"a\nb"),
        ("a=b", "a=b"),
        ("-", "-"),
        ("東京", "東京"),
        (-3, "-3"),
        (None, ""),
    ],
)
def test_cells_of_csv(cell: object, expected: str) -> None:
    assert row_of(cell) == ["x", expected]


@given(st.text(st.characters(categories=None), max_size=8))
def test_no_text_is_a_formula_or_a_control_character(text: str) -> None:
    cell = str(csv_cell(text))
    assert cell.isprintable()
    assert len(cell) < 2 or cell.lstrip()[0] not in "=+-@"
    cell.encode()
    assert printable(printable(text)) == printable(text)


@given(st.floats(allow_nan=False))
def test_numbers_stay_numbers(number: float) -> None:
    assert float(row_of(number)[1]) == number
