"""Views drawn as tensors: crops are PIL's, operations and views those of OpenCV."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from checks import picture
from hypothesis import given
from hypothesis import strategies as st
from internals import (
    AugMix,
    Recipe,
    content_generator,
    crop_batch,
    render_batch,
    render_views,
    resampling_weights,
)
from internals import augment_module as augment
from internals import draw_batch_module as draw_batch
from PIL import Image

CPU = torch.device("cpu")
HEIGHT, WIDTH = 40, 52
BOXES = [
    (0, 0, 40, 52, 0),
    (3, 7, 20, 11, 1),
    (39, 51, 1, 1, 0),
    (5, 0, 9, 52, 1),
]
IMAGES = [picture(0, (52, 40)), picture(1, (33, 77)), picture(2, (52, 40))]


def draw_one(recipe: Recipe) -> torch.Tensor:
    """Return the view of a recipe for the first image, ``[3, 40, 52]``."""
    return render_batch(IMAGES[:1], (40, 52), [[recipe]], CPU)[0, 0]


def to_array(view: torch.Tensor) -> Any:
    """Return ``[3, height, width]`` as ``[height, width, 3]``."""
    return view.permute(1, 2, 0).double().numpy()


@pytest.mark.parametrize("size", [(32, 32), (24, 60)])
@pytest.mark.parametrize("at_once", [2**25, 1])
def test_crops_are_pils(
    size: tuple[int, int], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw_batch, "_MAX_INTERMEDIATE_SIZE", at_once)
    images = [picture(0), picture(1)]
    arrays = np.stack([np.asarray(image) for image in images])
    crops = crop_batch(arrays, torch.tensor([BOXES] * 2).float(), size)
    assert crops.dtype == torch.uint8
    for image, image_crops in zip(images, crops, strict=True):
        for (top, left, height, width, flip), crop in zip(
            BOXES, image_crops, strict=True
        ):
            part = image.crop((left, top, left + width, top + height))
            expected = part.resize(size[::-1], Image.Resampling.BILINEAR)
            if flip:
                expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            assert np.abs(np.asarray(expected, float) - to_array(crop)).max() <= 1


@given(st.data())
def test_weights_are_shares_of_pixels_in_the_part(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 40))
    size = data.draw(st.integers(1, 40))
    extent = data.draw(st.integers(1, length))
    start = data.draw(st.integers(0, length - extent))
    flip = data.draw(st.booleans())
    part = torch.tensor(float(start)), torch.tensor(float(extent))
    flipped = torch.tensor(float(flip))
    weights = resampling_weights(*part, length, size, flipped)
    assert weights.shape == (size, length)
    torch.testing.assert_close(weights.sum(1), torch.ones(size))
    assert (weights >= 0).all()
    assert not weights[:, :start].any()
    assert not weights[:, start + extent :].any()
    mirrored = resampling_weights(*part, length, size, 1 - flipped)
    torch.testing.assert_close(mirrored, weights.flip(0), rtol=1e-3, atol=1e-5)


def photos() -> list[Any]:
    """Noise, a gradient, few levels, and one colour."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    smooth = np.stack([2 * x, 3 * y, x + y], -1).astype(np.uint8)
    return [np.array(picture()), smooth, smooth // 64 * 64, np.full_like(smooth, 77)]


STEPS = {
    partial(augment.autocontrast): 1,  # PIL multiplies by a rounded factor
    partial(augment.equalize): 0,
    partial(augment.posterize, bits=4): 0,
    partial(augment.posterize, bits=0): 0,
    partial(augment.posterize, bits=8): 0,
    partial(augment.solarize, threshold=128): 0,
    partial(augment.solarize, threshold=0): 0,
    # OpenCV 4 rounds positions to 1/32 pixel: 9 levels between black and white.
    partial(augment.translate_x, pixels=7): 10,
    partial(augment.translate_x, pixels=-60): 10,
    partial(augment.translate_y, pixels=-5): 10,
    partial(augment.shear_x, level=0.21): 10,
    partial(augment.shear_y, level=-0.17): 10,
    partial(augment.rotate, degrees=11): 10,
    partial(augment.rotate, degrees=-3): 10,
}
"""Steps of recipes, and the largest difference in levels."""


def step_name(step: Any) -> str:
    settings = ",".join(f"{name}={setting}" for name, setting in step.keywords.items())
    return f"{step.func.__name__} {settings}".strip()


@pytest.mark.parametrize("step", STEPS, ids=step_name)
def test_operations_are_those_on_arrays(step: Any) -> None:
    stack = torch.from_numpy(np.stack(photos())).permute(0, 3, 1, 2)
    tensor_step = draw_batch._tensor_step(step, (HEIGHT, WIDTH))
    assert tensor_step is not None
    operation, numbers = tensor_step
    views = operation(stack, torch.tensor([numbers] * len(stack)))
    assert views.dtype == torch.uint8
    for view, photo in zip(views, photos(), strict=True):
        difference = np.abs(to_array(view) - step(photo))
        assert difference.max() <= STEPS[step]
        assert difference.mean() < 1


@pytest.mark.parametrize("views", [AugMix(12), AugMix(12, 10, width=1)])
@pytest.mark.parametrize("size", [(32, 32), (20, 48)])
def test_a_batch_is_drawn_as_one_by_one(views: Any, size: tuple[int, int]) -> None:
    recipes = [views._draw_recipes(i, size, content_generator(i, 0)) for i in IMAGES]
    batch = render_batch(IMAGES, size, recipes, CPU)
    assert batch.shape == (3, 11, 3, *size)
    assert batch.dtype == torch.float32
    for image, image_views, row in zip(IMAGES, batch, recipes, strict=True):
        expected = render_views(image, size, row).transpose(0, 3, 1, 2)
        assert np.abs(image_views.numpy() - expected).mean() < 1
        alone = render_batch([image], size, [row], CPU)[0]
        assert (alone - image_views).abs().mean() < 0.1


def test_steps_of_a_chain_follow_one_another() -> None:
    steps = (
        partial(augment.translate_x, pixels=5),
        partial(augment.solarize, threshold=100),
        partial(augment.posterize, bits=2),
    )
    for chain in (steps, steps[::-1]):
        recipe = Recipe((0, 0, 40, 52), True, (0.25, 0.75), (chain,))
        view = draw_one(recipe)
        expected = render_views(IMAGES[0], (40, 52), [recipe])[0]
        np.testing.assert_allclose(to_array(view), expected, atol=0.51)


def test_a_chain_without_weight_or_effect_is_left_out() -> None:
    no_effect = (
        partial(augment.rotate, degrees=0),
        partial(augment.solarize, threshold=256),
    )
    chains = (no_effect, (partial(augment.equalize),))
    recipe = Recipe((0, 0, 40, 52), False, (0.5, 0.5, 0.0), chains)
    view = draw_one(recipe)
    np.testing.assert_allclose(to_array(view), np.asarray(IMAGES[0]), atol=1e-3)
