"""Labels that are the names of folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dataset_fixtures as fixtures
import pytest
from internals import (
    FOLDER_LABELS,
    Problem,
    ProblemKind,
    UnlistedFolder,
    folder_labels_module,
    write_labels_of_folders,
)

from fair_tta.errors import DatasetError


def draw(photos: Path, *names: str) -> Path:
    for name in names:
        fixtures.draw(photos / name)
    return photos


def test_folders_are_labels_the_outermost_first(tmp_path: Path) -> None:
    labelled = ["cat/in/1.png", "cat/out/deep/2.png", "dog/in/3.png"]
    photos = draw(tmp_path / "photos", *labelled, "stray.png", "cat/4.png")
    columns = ["animal", "place"]
    file, n_images, problems = write_labels_of_folders(
        photos, columns, tmp_path / "out"
    )
    assert (file, n_images) == (tmp_path / "out" / FOLDER_LABELS, 3)
    too_high = {
        Problem(ProblemKind.TOO_HIGH, name) for name in ("cat/4.png", "stray.png")
    }
    assert set(problems) == too_high
    header, *rows = file.read_text("utf-8").splitlines()
    assert header == "path,animal,place"
    expected = [
        "cat/in/1.png,cat,in",
        "cat/out/deep/2.png,cat,out",
        "dog/in/3.png,dog,in",
    ]
    assert sorted(rows) == expected


def test_nothing_is_written_without_labels(tmp_path: Path) -> None:
    photos = draw(tmp_path / "photos", "cat/1.png")
    for images in (photos, tmp_path / "none"):
        with pytest.raises(DatasetError):
            write_labels_of_folders(images, ["animal", "place"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_closed_folders_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = UnlistedFolder(str(tmp_path / "dog"), "Permission denied")
    entries = [str(tmp_path / "cat" / "1.png"), closed]
    monkeypatch.setattr(folder_labels_module, "find_image_files", lambda _: entries)
    _, n_images, problems = write_labels_of_folders(tmp_path, ["animal"], tmp_path)
    assert n_images == 1
    assert problems == (Problem(ProblemKind.CLOSED_FOLDER, "dog (Permission denied)"),)


@pytest.mark.skipif(sys.platform != "linux", reason="names are Unicode there")
def test_a_name_that_is_not_unicode_costs_its_image_only(tmp_path: Path) -> None:
    name = os.fsdecode(b"cat/caf\xe9.png")
    photos = draw(tmp_path / "photos", "cat/fr\u00fch.png", name)
    file, _, problems = write_labels_of_folders(photos, ["animal"], tmp_path)
    assert problems == (Problem(ProblemKind.NOT_UNICODE, name),)
    assert file.read_text("utf-8") == "path,animal\ncat/fr\u00fch.png,cat\n"


def test_a_file_of_someone_else_stays(tmp_path: Path) -> None:
    photos = draw(tmp_path / "photos", "cat/1.png")
    first = write_labels_of_folders(photos, ["animal"], tmp_path)
    assert write_labels_of_folders(photos, ["animal"], tmp_path) == first
    file = tmp_path / FOLDER_LABELS
    file.write_text("mine")
    with pytest.raises(DatasetError):
        write_labels_of_folders(photos, ["animal"], tmp_path)
    assert file.read_text() == "mine"
