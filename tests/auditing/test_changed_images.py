"""Samples of images whose answer would change: few, small, random, without metadata."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from internals import ChangedImages, small_copy
from PIL import Image

from fair_tta.errors import ImageError
from fair_tta.prediction import Prediction


def prediction(label: str, p: float = 0.7) -> Prediction:
    pairs = {
        "cat": p if label == "cat" else 1 - p,
        "dog": p if label == "dog" else 1 - p,
    }
    return Prediction(
        label=label, probabilities=pairs, zero_shot=pairs, sensitive={}, sensitive_zero_shot={},
        entropy=0.5, entropy_zero_shot=0.5, sensitive_entropy={}, sensitive_entropy_zero_shot={},
        distance=0.0, flip_margin=0.2, certified_unchanged=False,
    )  # fmt: skip


def test_only_changed_ones_with_both_answers() -> None:
    changed = ChangedImages(["tpt", "zero"])
    for i in range(5):
        rows = [
            prediction("cat"),
            prediction("dog", 0.6),
            prediction("dog" if i == 2 else "cat"),
        ]
        changed.add(rows, f"image {i}", Image.new("RGB", (4, 4), (i, 0, 0)))
    images = changed.images(Image.open)
    assert [(image.adapter, image.name) for image in images] == [
        *(("tpt", f"image {i}") for i in range(5)),
        ("zero", "image 2"),
    ]
    first = images[0]
    assert (first.before, first.after) == ("cat", "dog")
    assert (first.before_probability, first.after_probability) == (0.7, 0.6)
    assert images[3].image.getpixel((0, 0)) == (3, 0, 0)


@pytest.mark.parametrize(
    ("methods", "images_per_method"),
    [
        (1, 36),
        (4, 9),
        (30, 3),
    ],
)
def test_a_few_of_each_method(methods: int, images_per_method: int) -> None:
    changed = ChangedImages([f"m{i}" for i in range(methods)])
    image = Image.new("RGB", (4, 4))
    for i in range(50):
        predictions = [prediction("cat")] + [prediction("dog")] * methods
        changed.add(predictions, f"{i}", image)
    counts = Counter(image.adapter for image in changed.images(Image.open))
    assert set(counts.values()) == {images_per_method}
    assert len(counts) == methods


def test_all_have_the_same_chance() -> None:
    """Of 72 changed images 36 are kept: each in half of the trials, 100 +- 7."""
    counts: Counter[str] = Counter()
    for seed in range(200):
        changed = ChangedImages(["m"], seed=seed)
        for i in range(72):
            changed.add([prediction("cat"), prediction("dog")], f"{i}", "nowhere")
        images = changed.images(lambda _: Image.new("RGB", (1, 1)))
        counts.update(image.name for image in images)
    assert sum(counts.values()) == 200 * 36
    assert min(counts.values()) > 65
    assert max(counts.values()) < 135


def test_files_that_are_gone_are_left_out(tmp_path: Path) -> None:
    Image.new("RGB", (300, 200)).save(tmp_path / "there.png")
    changed = ChangedImages(["m"])
    for name in ("there.png", "gone.png", "broken.png"):
        changed.add([prediction("cat"), prediction("dog")], name, str(tmp_path / name))

    def load(path: str) -> Image.Image:
        if "broken" in path:
            raise ImageError("it is broken")
        return Image.open(path)

    (readable,) = changed.images(load)
    assert readable.name == "there.png"
    assert readable.image.size == (128, 85)


def test_a_copy_is_small_and_has_no_metadata() -> None:
    image = Image.new("RGBA", (640, 320))
    image.info = {"comment": b"taken by somebody", "exif": b"Exif"}
    copy = small_copy(image)
    assert copy.size == (128, 64)
    assert copy.mode == "RGB"
    assert copy.info == {}
    assert image.size == (640, 320)
    assert image.info["comment"] == b"taken by somebody"
    tiny = Image.new("RGB", (9, 9))
    assert small_copy(tiny).size == (9, 9)
    assert small_copy(tiny) is not tiny
