"""The gallery keeps a few images of each group, and opens them at the end."""

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

IN = ("cat", "in")
OUT = ("dog", "out")

Answer = tuple[str, float]


class Images:
    """Offers drawn images to a gallery, by class and place."""

    def __init__(self, gallery: GroupGallery, folder: Path) -> None:
        self.gallery = gallery
        self.folder = folder

    def add(self, number: int, group: tuple[str, str], *answers: Answer) -> None:
        path = self.folder / f"{number}.png"
        picture(number).save(path)
        record = Record(path, group[0], {"place": group[1]}, path.name)
        rows = []
        for label, probability in answers:
            prediction: Any = SimpleNamespace(
                label=label, probabilities={label: probability}
            )
            rows.append(StoredRow(RowKey("", "", "", "", 0), "", "", prediction))
        self.gallery.add(record, rows)

    @property
    def captions(self) -> list[str]:
        return [image.caption for image in self.gallery.images()]


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(GroupGallery(["ZeroShot", "Other"]), tmp_path)


def test_changed_and_wrong_of_each_group(images: Images) -> None:
    for number in range(6):
        images.add(number, IN, ("dog", 0.6), ("cat", 0.5 + number / 20))
    images.add(6, OUT, ("cat", 0.9), ("cat", 0.7))
    # Wrong and not confident, and right
    images.add(7, OUT, ("cat", 0.6), ("cat", 0.7))
    images.add(8, OUT, ("dog", 0.9), ("dog", 0.9))
    first, second, wrong = images.gallery.images()
    assert (first.group, first.caption) == ("cat / in", "changed (Other), 5.png")
    assert (second.group, second.caption) == ("cat / in", "changed (Other), 4.png")
    assert wrong.group == "dog / out"
    assert wrong.caption == "wrong and confident (ZeroShot; after: Other), 6.png"
    assert first[2:7] == ("dog", "cat", "cat", 0.6, 0.75)
    assert (wrong.before, wrong.before_probability) == ("cat", 0.9)


def test_an_image_is_not_shown_twice_with_the_same_answers(images: Images) -> None:
    images.add(0, IN, ("dog", 0.9), ("cat", 0.7))
    assert images.captions == ["changed (Other), 0.png"]


def test_a_single_run_has_no_after(tmp_path: Path) -> None:
    images = Images(GroupGallery(["ZeroShot"]), tmp_path)
    images.add(0, IN, ("dog", 0.9))
    assert images.captions == ["wrong and confident (ZeroShot), 0.png"]


def test_not_too_many_and_none_that_is_gone(images: Images) -> None:
    for number in range(60):
        group = ("cat", f"place {number // 2}")
        images.add(number, group, ("dog", 0.6), ("cat", 0.6))
    chosen = images.gallery.images()
    assert len(chosen) == MAX_GALLERY_IMAGES
    # No group is left out before another has its second image
    assert len({image.group for image in chosen}) == 30
    assert all(
        [image.group for image in chosen].count(group) <= IMAGES_PER_KIND
        for group in {image.group for image in chosen}
    )
    for path in images.folder.iterdir():
        path.unlink()
    assert images.gallery.images() == []
