from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checks import picture
from internals import (
    IMAGES_PER_KIND,
    MAX_GALLERY_IMAGES,
    GroupGallery,
    Record,
    RowKey,
    StoredRow,
)


def answer(label: str, probability: float) -> StoredRow:
    prediction: Any = SimpleNamespace(label=label, probabilities={label: probability})
    return StoredRow(RowKey("", "", "", "", 0), "", "", prediction)


def record(folder: Path, i: int, target: str, place: str) -> Record:
    path = folder / f"{i}.png"
    picture(i).save(path)
    return Record(path, target, {"place": place}, path.name)


@pytest.fixture
def gallery() -> GroupGallery:
    return GroupGallery(["ZeroShot", "Other"])


def test_changed_and_wrong_of_each_group(gallery: GroupGallery, tmp_path: Path) -> None:
    for i in range(6):
        gallery.add(
            record(tmp_path, i, "cat", "in"),
            [answer("dog", 0.6), answer("cat", 0.5 + i / 20)],
        )
    gallery.add(
        record(tmp_path, 6, "dog", "out"), [answer("cat", 0.9), answer("cat", 0.7)]
    )
    gallery.add(
        record(tmp_path, 7, "dog", "out"), [answer("cat", 0.6), answer("cat", 0.7)]
    )
    gallery.add(
        record(tmp_path, 8, "dog", "out"), [answer("dog", 0.9), answer("dog", 0.9)]
    )
    found = gallery.images()
    assert [(one.group, one.caption) for one in found] == [
        ("cat / in", "changed (Other), 5.png"),
        ("cat / in", "changed (Other), 4.png"),
        ("dog / out", "wrong and confident (ZeroShot; after: Other), 6.png"),
    ]
    assert len([one for one in found if one.truth == "cat"]) == IMAGES_PER_KIND
    assert (found[0].before, found[0].after, found[0].after_probability) == (
        "dog",
        "cat",
        0.75,
    )
    assert (found[2].before, found[2].before_probability) == ("cat", 0.9)


def test_a_picture_is_not_shown_twice_with_the_same_answers(
    gallery: GroupGallery, tmp_path: Path
) -> None:
    gallery.add(
        record(tmp_path, 0, "cat", "in"), [answer("dog", 0.9), answer("cat", 0.7)]
    )
    assert [one.caption for one in gallery.images()] == ["changed (Other), 0.png"]


def test_a_single_run_has_no_after(tmp_path: Path) -> None:
    alone = GroupGallery(["ZeroShot"])
    alone.add(record(tmp_path, 0, "cat", "in"), [answer("dog", 0.9)])
    assert [one.caption for one in alone.images()] == [
        "wrong and confident (ZeroShot), 0.png"
    ]


def test_not_too_many_and_none_that_is_gone(
    gallery: GroupGallery, tmp_path: Path
) -> None:
    for i in range(60):
        row = record(tmp_path, i, "cat", f"place {i // 2}")
        gallery.add(row, [answer("dog", 0.6), answer("cat", 0.6)])
    found = gallery.images()
    assert len(found) == MAX_GALLERY_IMAGES
    assert len({one.group for one in found}) == 30  # none of the groups is left out
    for path in tmp_path.iterdir():
        path.unlink()
    assert gallery.images() == []
