"""Views: drawn once, made anywhere; the same pictures as the slow PIL reference makes."""

from __future__ import annotations

import collections
import dataclasses
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from augmix_reference import WARP_LEVELS, reference_views, replay
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    AugMix,
    Recipe,
    Views,
    content_generator,
    load_image,
    render_views,
    resize,
)
from PIL import Image

light = settings(max_examples=40, deadline=None, database=None)
STRATEGIES: list[Views] = [AugMix(1), AugMix(5), AugMix(5, severity=10, width=2)]
ROUNDED = ("shear_x", "shear_y", "rotate")  # operations that are not quite PIL's


def photo(width: int = 150, height: int = 100, seed: int = 0) -> Image.Image:
    """Coarse and fine structure over the whole range of levels."""
    rng = np.random.default_rng(seed)
    noise = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    coarse = noise.resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(coarse, float)
    pixels = pixels + rng.normal(0, 8, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def crops(image: Image.Image) -> list[Recipe]:
    """Crops and flips without further operations."""
    return [
        Recipe(recipe.box, recipe.flip)
        for recipe in AugMix(33)._draw_recipes(image, (8, 8), rng())
    ]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("views", STRATEGIES, ids=str)
@pytest.mark.parametrize("size", [(224, 224), (336, 336), (200, 300)])
def test_shape_and_range(views: Views, size: tuple[int, int]) -> None:
    pixels = views(photo(), size, rng())
    assert isinstance(views, Views)
    assert pixels.shape == (views.n - 1, *size, 3)
    assert pixels.dtype == np.float32
    assert pixels.size == 0 or (
        pixels.min() >= 0 and pixels.max() <= 255 and pixels.std() > 10
    )


@light
@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 40), st.integers(1, 40))
def test_any_size_of_image_and_view(
    width: int, height: int, rows: int, columns: int
) -> None:
    pixels = AugMix(4, severity=10)(photo(width, height), (rows, columns), rng())
    assert pixels.shape == (3, rows, columns, 3)
    assert np.isfinite(pixels).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (2, 3)])
def test_tiny_images_are_enlarged(size: tuple[int, int]) -> None:
    image = Image.new("RGB", size, (10, 20, 30))
    pixels = render_views(image, (224, 224), crops(image))
    assert (pixels == np.array([10, 20, 30], np.float32)).all()


def test_white_stays_in_range() -> None:
    white = Image.new("RGB", (40, 40), "white")
    pixels = AugMix(64)(white, (32, 32), rng())
    assert pixels.max() <= 255


@pytest.mark.parametrize("size", [(224, 224), (200, 300)])
def test_crops_are_those_of_the_reference(size: tuple[int, int]) -> None:
    recipes = crops(photo())
    difference = np.abs(
        render_views(photo(), size, recipes) - replay(photo(), size, recipes)
    )
    assert difference.max() <= 1
    assert difference.mean() < 0.2


@pytest.mark.parametrize("severity", [1.0, 10.0])
@pytest.mark.parametrize("size", [(224, 224), (200, 300)])
def test_views_are_those_of_the_reference(
    severity: float, size: tuple[int, int]
) -> None:
    """A level more or less decides at thresholds, so single pixels may differ by much."""
    recipes = AugMix(33, severity=severity)._draw_recipes(photo(), size, rng())
    difference = np.abs(
        render_views(photo(), size, recipes) - replay(photo(), size, recipes)
    )
    assert difference.mean() < 0.2
    assert (difference > 1).mean() < 0.02


@pytest.mark.parametrize("severity", [1.0, 10.0])
def test_mixtures_of_equal_crops_differ_by_rounding_only(severity: float) -> None:
    """No resizing, and nothing after the first operation that rounds: no threshold in between."""
    image, size = photo(120, 90), (90, 120)
    for recipe in AugMix(33, severity=severity)._draw_recipes(image, size, rng()):
        chains = tuple(chain[: _first_rounded(chain)] for chain in recipe.chains)
        recipe = dataclasses.replace(recipe, box=(0, 0, 90, 120), chains=chains)
        difference = np.abs(
            render_views(image, size, [recipe]) - replay(image, size, [recipe])
        )
        assert difference.max() <= WARP_LEVELS
        if not any(step.func.__name__ in ROUNDED for chain in chains for step in chain):
            assert difference.max() < 1e-3


def _first_rounded(chain: tuple[Any, ...]) -> int:
    names = [step.func.__name__ in ROUNDED for step in chain]
    return names.index(True) + 1 if True in names else len(names)


def test_statistics_are_those_of_the_public_recipe() -> None:
    """The reference draws on its own, so only means over many views can agree."""
    image, size = photo(), (48, 48)
    ours = AugMix(801)(image, size, rng(1)) / 255
    theirs = reference_views(image, 801, size, rng(2)).permute(0, 2, 3, 1).numpy()
    mean, std = (
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    )
    theirs = theirs * np.array(std, np.float32) + np.array(mean, np.float32)
    for reduce in (np.mean, np.std):
        a = reduce(ours, axis=(1, 2))
        b = reduce(theirs, axis=(1, 2))
        error = np.sqrt((a.var(0) + b.var(0)) / 800)
        difference = np.abs(a.mean(0) - b.mean(0))
        assert (difference < 4 * error).all()


@light
@given(
    st.integers(1, 600), st.integers(1, 600), st.integers(1, 300), st.integers(1, 300)
)
def test_resize_is_that_of_pil(
    width: int, height: int, rows: int, columns: int
) -> None:
    pixels = np.random.default_rng(width).integers(
        0, 256, (height, width, 3), dtype=np.uint8
    )
    pil = Image.fromarray(pixels).resize((columns, rows), Image.Resampling.BILINEAR)
    # Both round after each of two passes, and not at the same places.
    resized = resize(pixels, (rows, columns)).astype(int)
    assert np.abs(resized - np.asarray(pil)).max() <= 2


def _bits(views: Views, seed: int = 0) -> bytes:
    return views(photo(), (40, 30), rng(seed)).tobytes()


@pytest.mark.parametrize("views", STRATEGIES[1:], ids=str)
def test_the_generator_decides(views: Views, threads: None) -> None:
    first = _bits(views)
    assert _bits(views, seed=1) != first
    for other in STRATEGIES:
        _bits(other)
    for count in (1, 2, 3, 8):
        torch.set_num_threads(count)
        assert _bits(views) == first


def test_global_random_states_are_not_used() -> None:
    states = torch.get_rng_state(), str(np.random.get_state())
    _bits(AugMix(5))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == str(np.random.get_state())


def test_fewer_views_are_the_first_of_more() -> None:
    three = AugMix(4)(photo(), (40, 30), rng())
    eight = AugMix(9)(photo(), (40, 30), rng())
    assert (three == eight[:3]).all()


def test_the_image_is_left_alone() -> None:
    image = photo()
    before = image.tobytes()
    AugMix(5)(image, (32, 32), rng())
    assert image.tobytes() == before


def test_content_and_seed_decide_the_generator() -> None:
    def number(image: Image.Image, seed: int = 0) -> float:
        return float(content_generator(image, seed).random())

    buffer = io.BytesIO()
    photo().save(buffer, "PNG")
    copies = [
        photo(),
        load_image(buffer.getvalue()),
        Image.open(buffer),
        photo().convert("RGBA"),
    ]
    assert {number(image) for image in copies} == {number(photo())}
    black = [Image.new("RGB", size) for size in ((2, 6), (3, 4), (4, 3), (6, 2))]
    images = [photo(seed=1), photo().rotate(180), *black]
    assert len({number(image) for image in [photo(), *images]}) == 7
    assert len({number(photo(), seed) for seed in (-1, 0, 1, 2**70)}) == 4


def test_crops_cover_the_ranges_evenly() -> None:
    image = Image.new("RGB", (1000, 1000))
    recipes = AugMix(4001)._draw_recipes(image, (32, 32), rng())
    boxes = np.array([recipe.box for recipe in recipes])
    top, left, height, width = boxes.T
    area, ratio = height * width / 1e6, width / height
    assert 0.079 < area.min() < 0.09
    assert 0.95 < area.max() <= 1
    assert 0.745 < ratio.min() < 0.76  # the sides are whole pixels
    assert 1.32 < ratio.max() < 1.34
    assert abs(np.log(ratio).mean()) < 0.02
    assert min(top.min(), left.min()) == 0
    assert (top + height).max() == (left + width).max() == 1000
    centre = (left + width / 2) / 1000
    assert abs(centre.mean() - 0.5) < 0.01


def test_every_crop_lies_inside() -> None:
    for width, height in [(1, 1), (3, 2), (500, 375), (1, 500), (900, 40)]:
        for recipe in AugMix(200)._draw_recipes(
            Image.new("RGB", (width, height)), (8, 8), rng()
        ):
            top, left, h, w = recipe.box
            assert 0 <= top <= top + h <= height
            assert 0 <= left <= left + w <= width
            assert h > 0
            assert w > 0


@pytest.mark.parametrize(
    ("size", "box"),
    [
        ((500, 1), (0, 249, 1, 1)),
        ((900, 30), (0, 430, 30, 40)),
        ((30, 900), (430, 0, 40, 30)),
    ],
)
def test_narrow_images_are_cropped_in_the_centre(
    size: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    recipes = AugMix(50)._draw_recipes(Image.new("RGB", size), (8, 8), rng())
    assert box in {recipe.box for recipe in recipes}


def _recipes(**options: Any) -> list[Recipe]:
    return AugMix(3001, **options)._draw_recipes(
        Image.new("RGB", (500, 375)), (224, 448), rng()
    )


def test_flips_operations_and_depths_are_equally_frequent() -> None:
    recipes = _recipes()
    chains = [chain for recipe in recipes for chain in recipe.chains]
    steps = collections.Counter(
        step.func.__name__ for chain in chains for step in chain
    )
    depths = collections.Counter(map(len, chains))
    assert abs(sum(recipe.flip for recipe in recipes) / 3000 - 0.5) < 0.03
    assert sorted(depths) == [1, 2, 3]
    assert max(depths.values()) / min(depths.values()) < 1.1
    assert len(steps) == 9
    assert max(steps.values()) / min(steps.values()) < 1.15


def _values(recipes: list[Recipe], name: str) -> npt.NDArray[np.float64]:
    steps = (step for recipe in recipes for chain in recipe.chains for step in chain)
    return np.array(
        [next(iter(s.keywords.values())) for s in steps if s.func.__name__ == name]
    )


def test_parameters_at_severity_one() -> None:
    recipes = _recipes()
    assert set(_values(recipes, "posterize")) == {4}
    assert set(_values(recipes, "rotate")) == {-2, -1, 0, 1, 2}
    assert set(_values(recipes, "solarize")) == set(range(256 - 25, 256 - 1))
    assert set(_values(recipes, "translate_x")) == {*range(-14, 15)} - {0}
    assert set(_values(recipes, "translate_y")) == {*range(-7, 8)}
    for name in ("shear_x", "shear_y"):
        shear = _values(recipes, name)
        assert 0.003 <= np.abs(shear).min() < 0.0032
        assert 0.0297 < np.abs(shear).max() <= 0.03
        assert abs((shear > 0).mean() - 0.5) < 0.05


def test_parameters_at_severity_ten() -> None:
    recipes = _recipes(severity=10)
    assert set(_values(recipes, "posterize")) == {1, 2, 3, 4}
    assert set(_values(recipes, "rotate")) == set(range(-29, 30))
    assert np.abs(_values(recipes, "shear_x")).max() <= 0.3
    assert _values(recipes, "solarize").min() >= 1
    assert np.abs(_values(recipes, "translate_y")).max() == 74


def test_weights_add_up_and_are_uniform() -> None:
    weights = np.array([recipe.weights for recipe in _recipes()])
    assert weights.shape == (3000, 4)
    assert np.allclose(weights.sum(1), 1)
    skip, chains = weights[:, 0], weights[:, 1:] / (1 - weights[:, :1])
    assert abs(skip.mean() - 1 / 2) < 0.02  # Beta(1, 1): variance 1/12
    assert abs(skip.var() - 1 / 12) < 0.005
    assert (
        np.abs(chains.mean(0) - 1 / 3).max() < 0.02
    )  # Dirichlet(1, 1, 1): variance 1/18
    assert np.abs(chains.var(0) - 1 / 18).max() < 0.005


@pytest.mark.parametrize("width", [1, 5])
def test_width_is_the_number_of_chains(width: int) -> None:
    for recipe in AugMix(9, width=width)._draw_recipes(photo(), (8, 8), rng()):
        assert len(recipe.chains) == width
