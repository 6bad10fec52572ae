from __future__ import annotations

import csv
from pathlib import Path

import pytest

from checks import picture
from fair_tta.data import DatasetError
from fair_tta.data.folder_names import write_labels_of_folders


def test_folders_are_labels_the_outermost_first(tmp_path: Path) -> None:
    for place in ("cat/in/1.png", "cat/out/deep/2.png", "dog/in/3.png"):
        (tmp_path / "photos" / place).parent.mkdir(parents=True, exist_ok=True)
        picture(0).save(tmp_path / "photos" / place)
    picture(0).save(tmp_path / "photos" / "stray.png")
    found = write_labels_of_folders(tmp_path / "photos", ["animal", "place"], tmp_path / "l.csv")
    assert found == 3
    with (tmp_path / "l.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["path", "animal", "place"]
    assert sorted(rows[1:]) == [
        ["cat/in/1.png", "cat", "in"],
        ["cat/out/deep/2.png", "cat", "out"],
        ["dog/in/3.png", "dog", "in"],
    ]


def test_pictures_that_lie_too_high(tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    picture(0).save(tmp_path / "photos" / "cat" / "1.png")
    message = r"photos/ANIMAL/PLACE/picture.jpg \(1 pictures lie higher, none so deep\)"
    with pytest.raises(DatasetError, match=message):
        write_labels_of_folders(tmp_path / "photos", ["animal", "place"], tmp_path / "l.csv")
    assert not (tmp_path / "l.csv").exists()
    with pytest.raises(DatasetError, match="`images` should be a folder"):
        write_labels_of_folders(tmp_path / "none", ["animal"], tmp_path / "l.csv")
