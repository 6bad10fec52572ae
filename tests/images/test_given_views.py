"""Views of the user's own that are no views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fair_tta import TPT, FairTPTClassifier, FairTTAError, miniature
from fair_tta.errors import ImageError

PICTURE = miniature.BIRDS.draw(1, seed=3)[0].image


class Gives:
    def __init__(self, made: Any, n: Any = 3) -> None:
        self.made, self.n = made, n

    def __call__(self, image: Image.Image, size: Any, generator: Any) -> Any:
        return self.made


@pytest.fixture(scope="module")
def clf() -> FairTPTClassifier:
    task = miniature.BIRDS
    return FairTPTClassifier(
        "miniature", task.targets, adapter=TPT(), views=Gives(None)
    )


def zeros(**changes: Any) -> Any:
    return np.zeros(**{"shape": (2, 64, 64, 3), "dtype": np.float32, **changes})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, r"an array \[2, 64, 64, 3\] of numbers .*\(got NoneType from Gives\)"),
        ("views", r"\(got str from Gives\)"),
        ([[1], [2, 3]], r"\(got list from Gives\)"),
        (zeros(shape=(2, 64, 64)), r"\(got \[2, 64, 64\] of float32 from Gives\)"),
        (zeros(dtype=object), r"of object from Gives"),
        (zeros(dtype="U3"), r"of <U3 from Gives"),
        (zeros() + np.nan, r"from 0 to 255, .*\(got nan to nan from Gives\)"),
        (zeros() - 1e30, r"\(got -1e\+30 to 0 from Gives\)"),
    ],
)
def test_objects(clf: FairTPTClassifier, made: Any, message: str) -> None:
    with pytest.raises(FairTTAError, match=r"`views` should return .*" + message):
        clf.with_views(Gives(made)).predict(PICTURE)


def test_objects_whose_arrays_are_as_they_should_be(clf: FairTPTClassifier) -> None:
    for dtype in (np.uint8, np.int64, np.float64):
        clf.with_views(Gives(zeros(dtype=dtype) + 255)).predict(PICTURE)
    clf.with_views(Gives(zeros(shape=(0, 64, 64, 3)), 1)).predict(PICTURE)


@pytest.mark.parametrize("n", [None, "3", 0, -1, 2.5])
def test_numbers_of_views(clf: FairTPTClassifier, n: Any) -> None:
    with pytest.raises(
        FairTTAError, match=r"`views.n` should be an integer >= 1 \(got"
    ):
        clf.with_views(Gives(zeros(), n))


@pytest.mark.parametrize("made", [None, 3, "x", b"x", {"a": 1}])
def test_functions(clf: FairTPTClassifier, made: Any) -> None:
    message = rf"`views` should return images, .*\(got {type(made).__name__}\)"
    with pytest.raises(FairTTAError, match=message):
        clf.with_views(lambda image, generator: made).predict(PICTURE)


def test_functions_whose_pictures_are_none(clf: FairTPTClassifier) -> None:
    with pytest.raises(
        ImageError, match="`views` did not return an image: int is not an image"
    ):
        clf.with_views(lambda image, generator: [1]).predict(PICTURE)


@pytest.mark.parametrize(
    "shape", [(3, 64, 64), (1, 64, 64), (4, 64, 64), (64, 64, 3), (64, 64, 1)]
)
@pytest.mark.parametrize("kind", [torch.rand, np.zeros])
def test_one_picture_is_no_views(shape: tuple[int, ...], kind: Any) -> None:
    with pytest.raises(
        FairTTAError, match=r"`views` of shape \[.*\] could be one image: pass"
    ):
        FairTPTClassifier("miniature", ["circle", "star"], views=kind(shape))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_views_of_several_sizes_are_views() -> None:
    nested = torch.nested.nested_tensor([torch.rand(3, 64, 64), torch.rand(3, 32, 48)])
    clf = FairTPTClassifier("miniature", ["circle", "star"], views=nested)
    assert clf._vision.count == 3
    grey = torch.nested.nested_tensor([torch.rand(64, 64), torch.rand(32, 48)])
    assert clf.with_views(grey)._vision.count == 3
    several: Any = clf.with_adapter("zero-shot").predict(nested)
    assert len(several) == 2


def test_grey_views_are_views() -> None:
    clf = FairTPTClassifier(
        "miniature", ["circle", "star"], views=torch.rand(5, 64, 64)
    )
    assert clf._vision.count == 6
