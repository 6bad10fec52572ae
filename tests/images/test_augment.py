"""The nine operations against PIL: equal, or as near as OpenCV's rounding allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from augmix_reference import OPS, WARP_LEVELS
from hypothesis import example, given, settings
from hypothesis import strategies as st
from internals import augment_module as augment
from PIL import Image

Pixels = npt.NDArray[np.uint8]
light = settings(max_examples=40, deadline=None, database=None)
NICE = [0.0, 0.5, -0.5, 1.0, -1.0, 0.2, -0.2, 0.1, 1 / 3, 0.03, 1e-9, -1e-17]


def content(kind: str, height: int, width: int, seed: int) -> Pixels:
    rng = np.random.default_rng(seed)
    if kind == "constant":
        return np.full((height, width, 3), rng.integers(0, 256, 3), np.uint8)
    if kind == "few":
        colours = rng.integers(0, 256, (3, 3), dtype=np.uint8)
        return colours[rng.integers(0, 3, (height, width))]
    if kind == "extreme":  # neighbours as far apart as can be
        return 255 * rng.integers(0, 2, (height, width, 3), dtype=np.uint8)
    low, high = 0, 256
    if kind == "dull":
        low, high = sorted(rng.integers(0, 257, 2).tolist())
    return rng.integers(low, max(high, low + 1), (height, width, 3), dtype=np.uint8)


sides = st.integers(1, 40) | st.just(224)
kinds = st.sampled_from(["constant", "few", "extreme", "dull", "noise"])
images = st.builds(content, kinds, sides, sides, st.integers(0, 2**32))
levels = st.floats(-3, 3) | st.floats(-0.03, 0.03) | st.sampled_from(NICE)


def distance(image: Pixels, name: str, **parameter: Any) -> int:
    """Largest difference between our operation and PIL's; ours must not write to its input."""
    before = image.copy()
    ours = getattr(augment, name)(image, **parameter)
    theirs = np.asarray(OPS[name](Image.fromarray(image), **parameter))
    assert (image == before).all()
    assert ours.shape == theirs.shape
    assert ours.dtype == np.uint8
    return int(np.abs(ours.astype(int) - theirs).max())


@light
@given(images)
def test_autocontrast(image: Pixels) -> None:
    assert distance(image, "autocontrast") == 0


@light
@given(images)
def test_equalize(image: Pixels) -> None:
    assert distance(image, "equalize") == 0
    for channel in range(3):
        before, after = image[..., channel], augment.equalize(image)[..., channel]
        assert (equalized(before) == after).all()


def equalized(channel: Pixels) -> npt.NDArray[np.int64]:
    """PIL's rule, with a histogram of its own."""
    levels, place, count = np.unique(channel, return_inverse=True, return_counts=True)
    step = int(count[:-1].sum()) // 255
    darker = np.array([count[:i].sum() for i in range(len(levels))], np.int64)
    level = (
        np.minimum((step // 2 + darker) // step, 255)
        if step
        else levels.astype(np.int64)
    )
    return level[place].reshape(channel.shape)


@light
@given(images, st.integers(1, 8))
def test_posterize(image: Pixels, bits: int) -> None:
    assert distance(image, "posterize", bits=bits) == 0


@light
@given(images, st.integers(-1, 257))
def test_solarize(image: Pixels, threshold: int) -> None:
    assert distance(image, "solarize", threshold=threshold) == 0


@light
@given(images, st.integers(-45, 45) | st.integers(-300, 300))
def test_translate(image: Pixels, pixels: int) -> None:
    assert distance(image, "translate_x", pixels=pixels) == 0
    assert distance(image, "translate_y", pixels=pixels) == 0


@light
@given(images, levels)
@example(content("extreme", 224, 224, 0), 0.03)
@example(content("extreme", 200, 300, 0), -0.3)
def test_shear(image: Pixels, level: float) -> None:
    assert distance(image, "shear_x", level=level) <= WARP_LEVELS
    assert distance(image, "shear_y", level=level) <= WARP_LEVELS


@light
@given(
    images,
    st.integers(-360, 360) | st.floats(-400, 400) | st.sampled_from([90, 180, 270]),
)
@example(content("extreme", 224, 224, 0), 2)
@example(content("extreme", 200, 300, 0), -30)
@example(content("noise", 4, 7, 0), 90)
def test_rotate(image: Pixels, degrees: float) -> None:
    assert distance(image, "rotate", degrees=degrees) <= WARP_LEVELS


def test_the_ends_of_posterize_which_pil_may_refuse() -> None:
    image = content("noise", 5, 7, 0)
    assert (augment.posterize(image, 0) == 0).all()
    assert (augment.posterize(image, 9) == image).all()


@light
@given(sides, sides, levels)
def test_the_same_pixels_are_black(height: int, width: int, level: float) -> None:
    image = content("noise", height, width, 0) // 2 + 99
    for name, parameter in (
        ("shear_x", level),
        ("shear_y", level),
        ("rotate", 50 * level),
    ):
        ours = getattr(augment, name)(image, parameter)
        assert (
            (ours == 0)
            == (np.asarray(OPS[name](Image.fromarray(image), parameter)) == 0)
        ).all()


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("shear_x", {"level": 0.021}),
        ("shear_y", {"level": -0.013}),
        ("rotate", {"degrees": 2}),
    ],
)
def test_noise_is_half_a_level_brighter(name: str, parameter: dict[str, Any]) -> None:
    """OpenCV rounds to the nearest level, PIL cuts the fraction off."""
    image = content("noise", 224, 224, 0)
    ours = getattr(augment, name)(image, **parameter).astype(float)
    theirs = np.asarray(OPS[name](Image.fromarray(image), **parameter), float)
    assert 0.45 < (ours - theirs).mean() < 0.55
    assert np.abs(ours - theirs).mean() < (0.55 if WARP_LEVELS == 1 else 1)


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("autocontrast", {}),
        ("equalize", {}),
        ("posterize", {"bits": 3}),
        ("solarize", {"threshold": 100}),
        ("rotate", {"degrees": 11}),
        ("shear_x", {"level": 0.1}),
        ("shear_y", {"level": 0.1}),
        ("translate_x", {"pixels": 3}),
        ("translate_y", {"pixels": 3}),
    ],
)
def test_a_part_of_a_larger_array_will_do(name: str, parameter: dict[str, Any]) -> None:
    image = content("noise", 40, 60, 0)[3:30, 50:5:-1]
    assert not image.flags.c_contiguous
    op = getattr(augment, name)
    assert (op(image, **parameter) == op(image.copy(), **parameter)).all()


def test_few_rotations_are_remembered() -> None:
    for degrees in range(1, 30):
        augment.rotate(content("few", 8, 8, 0), degrees)
    assert augment._pixels_outside.cache_info().currsize <= 8
