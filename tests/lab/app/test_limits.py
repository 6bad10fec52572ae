"""Limits are told with what is allowed and what came."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from internals import UploadLimits, read_header, read_limits

from fair_tta import FairTTAError


def test_ten_thousand_files_are_refused_in_words() -> None:
    limits = UploadLimits()
    words = "`Images` should have at most 1,000 files (got 10,000); the commands of fair-tta"
    with pytest.raises(FairTTAError, match=re.escape(words)):
        limits.check("Images", files=10_000)
    limits.check("Images", files=1000)


def test_fields_and_names_have_an_end() -> None:
    limits = UploadLimits(names=3, characters=5)
    with pytest.raises(
        FairTTAError, match=re.escape("`Classes` should have at most 5 characters")
    ):
        limits.check("Classes", characters=6)
    with pytest.raises(FairTTAError, match=re.escape("at most 3 names (got 4)")):
        limits.check("Classes", names=4)


def test_tables_have_an_end(tmp_path: Path) -> None:
    limits, file = UploadLimits(rows=3, columns=2), tmp_path / "labels.csv"
    file.write_text("file,class\na.png,x\nb.png,y\nc.png,x\n")
    assert read_header(file, limits) == ["file", "class"]
    file.write_text("file,class\n" + "a.png,x\n" * 4)
    with pytest.raises(
        FairTTAError, match=re.escape("should have at most 3 rows (got 4 or more)")
    ):
        read_header(file, limits)
    file.write_text("file,class,place\n")
    with pytest.raises(
        FairTTAError, match=re.escape("should have at most 2 columns (got 3)")
    ):
        read_header(file, limits)
    file.write_bytes(b"PK\3\4 a spreadsheet")
    with pytest.raises(FairTTAError, match="should be text: save the table as CSV"):
        read_header(file, limits)


@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_limits_are_whole_numbers(value: float) -> None:
    with pytest.raises(FairTTAError, match="`files` should be an integer >= 1"):
        UploadLimits(files=value)  # type: ignore[arg-type]


def test_limits_are_changed_by_name() -> None:
    assert read_limits({}) == UploadLimits()
    assert read_limits({"files": 200}) == UploadLimits(files=200)
    with pytest.raises(
        FairTTAError, match=r"`limits` should have names of file_bytes, .* 'size'"
    ):
        read_limits({"size": 1})
