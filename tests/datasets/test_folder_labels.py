from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import pytest
from checks import picture
from internals import (
    FOLDER_LABELS,
    Problem,
    ProblemKind,
    UnlistedFolder,
    write_labels_of_folders,
)
from internals import folder_labels_module as module

from fair_tta.errors import DatasetError


def draw(photos: Path, *places: str) -> None:
    for place in places:
        (photos / place).parent.mkdir(parents=True, exist_ok=True)
        with (photos / place).open("wb") as file:
            picture(0).save(file, "png")


def test_folders_are_labels_the_outermost_first(tmp_path: Path) -> None:
    draw(tmp_path / "photos", "cat/in/1.png", "cat/out/deep/2.png", "dog/in/3.png")
    draw(tmp_path / "photos", "stray.png", "cat/4.png")
    made, n, problems = write_labels_of_folders(
        tmp_path / "photos", ["animal", "place"], tmp_path / "out"
    )
    assert (made, n) == (tmp_path / "out" / FOLDER_LABELS, 3)
    assert sorted(problems, key=str) == [
        Problem(ProblemKind.TOO_HIGH, "cat/4.png"), Problem(ProblemKind.TOO_HIGH, "stray.png"),
    ]  # fmt: skip
    with made.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["path", "animal", "place"]
    assert sorted(rows[1:]) == [
        ["cat/in/1.png", "cat", "in"],
        ["cat/out/deep/2.png", "cat", "out"],
        ["dog/in/3.png", "dog", "in"],
    ]


def test_pictures_that_lie_too_high(tmp_path: Path) -> None:
    draw(tmp_path / "photos", "cat/1.png")
    message = r"photos/ANIMAL/PLACE/image.jpg \(1 images lie higher, none so deep\)"
    with pytest.raises(DatasetError, match=message):
        write_labels_of_folders(
            tmp_path / "photos", ["animal", "place"], tmp_path / "out"
        )
    assert not (tmp_path / "out").exists()
    with pytest.raises(DatasetError, match="`images` should be a folder"):
        write_labels_of_folders(tmp_path / "none", ["animal"], tmp_path / "out")


def test_closed_folders_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        str(tmp_path / "cat" / "1.png"),
        UnlistedFolder(str(tmp_path / "dog"), "Permission denied"),
    ]
    monkeypatch.setattr(module, "find_image_files", lambda _: iter(found))
    _, n, problems = write_labels_of_folders(tmp_path, ["animal"], tmp_path / "out")
    assert n == 1
    assert problems == (Problem(ProblemKind.CLOSED_FOLDER, "dog (Permission denied)"),)


@pytest.mark.skipif(sys.platform != "linux", reason="names are Unicode there")
def test_a_name_that_is_not_unicode_costs_its_picture_only(tmp_path: Path) -> None:
    odd = os.fsdecode(b"cat/caf\xe9.png")
    draw(tmp_path / "photos", "cat/fr\u00fch.png", odd)
    made, _, problems = write_labels_of_folders(
        tmp_path / "photos", ["animal"], tmp_path
    )
    assert problems == (Problem(ProblemKind.NOT_UNICODE, odd),)
    assert made.read_text("utf-8") == "path,animal\ncat/fr\u00fch.png,cat\n"


def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    draw(tmp_path / "photos", "cat/1.png")
    made = write_labels_of_folders(tmp_path / "photos", ["animal"], tmp_path)
    again = write_labels_of_folders(tmp_path / "photos", ["animal"], tmp_path)
    assert made == again
    made[0].write_text("mine")
    with pytest.raises(
        DatasetError, match=r"folder-labels.csv' exists and has other columns"
    ):
        write_labels_of_folders(tmp_path / "photos", ["animal"], tmp_path)
    assert made[0].read_text() == "mine"
