"""Paths of images that were written on another machine."""

from __future__ import annotations

from pathlib import Path

import dataset_fixtures as fixtures
import pytest
from internals import Labels, Problem, ProblemKind, match_by_ends


@pytest.mark.parametrize(
    "start", ["C:\\Users\\me\\pets\\", "/mnt/disk/pets/", "\\\\nas\\share\\"]
)
def test_paths_of_another_machine(start: str, tmp_path: Path) -> None:
    images, file = fixtures.folder(tmp_path)
    fixtures.draw(images / "sub" / "0.png")
    separator = start[-1]
    names = [f"{start}sub{separator}0.png"]
    names += [f"{start}{i}.png" for i in (1, 2, 3, 4, 5, 9)]
    rows = [[name, f"animal {i}", "in"] for i, name in enumerate(names)]
    fixtures.write_csv(file, [["path", "animal", "place"], *rows])
    targets = {}
    problems = {}
    for row in Labels(images, file, "animal", ("place",)).scan().records():
        if isinstance(row, Problem):
            problems[row.kind] = row.detail
        else:
            targets[row.key] = row.target
    expected = {f"{i}.png": f"animal {i}" for i in range(1, 6)}
    assert targets == {"sub/0.png": "animal 0", **expected}
    assert problems == {
        ProblemKind.OTHER_MACHINE: f"6 in labels.csv, such as {names[0]} for sub/0.png",
        ProblemKind.UNPAIRED: "images without a row: 1 ('0.png'); rows without an image: 1",
        ProblemKind.MISSING_IMAGE: names[-1],
    }


def test_ends_are_never_guessed() -> None:
    files = ["/h/test/1.jpg", "/h/test/2.jpg", "/h/a/x.jpg", "/h/b/x.jpg", "/h/c/y.jpg"]
    expected = {
        "D:/f/test/1.jpg": "/h/test/1.jpg",
        "D:/f/train/2.jpg": None,  # below D:/f, which is /h
        "D:/f/x.jpg": None,  # one of two
        "D:/f/b/x.jpg": "/h/b/x.jpg",
        "E:/other/y.jpg": "/h/c/y.jpg",
        "c/y.jpg": "/h/c/y.jpg",
        "d/y.jpg": None,  # a relative path has to be there as a whole
        "nothing.jpg": None,
    }
    matches = match_by_ends(expected, files)
    assert matches == {name: file for name, file in expected.items() if file}
    assert match_by_ends(["D:/1.jpg"], []) == {}
