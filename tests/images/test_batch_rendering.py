"""Views of several images at once are those that are made one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from checks import picture
from internals import AugMix, Recipe, content_generator, render_batch, render_views
from internals import augment_module as augment

CPU = torch.device("cpu")
PICTURES = [picture(i, size) for i, size in enumerate([(52, 40), (33, 77), (52, 40)])]


@pytest.mark.parametrize("views", [AugMix(12), AugMix(12, 10, width=1)])
@pytest.mark.parametrize("size", [(32, 32), (20, 48)])
def test_as_one_by_one(views: Any, size: tuple[int, int]) -> None:
    recipes = [views._draw_recipes(p, size, content_generator(p, 0)) for p in PICTURES]
    found = render_batch(PICTURES, size, recipes, CPU)
    assert found.shape == (3, 11, 3, *size)
    assert found.dtype == torch.float32
    for image, own, expected in zip(PICTURES, found, recipes, strict=True):
        views_of = render_views(image, size, expected).transpose(0, 3, 1, 2)
        assert np.abs(own.numpy() - views_of).mean() < 1
        alone = render_batch([image], size, [expected], CPU)[0]
        assert (alone - own).abs().mean() < 0.1


def test_steps_of_a_chain_follow_one_another() -> None:
    box = (0, 0, 40, 52)
    steps = [partial(augment.translate_x, pixels=5), partial(augment.solarize, threshold=100),
             partial(augment.posterize, bits=2)]  # fmt: skip
    for order in (steps, steps[::-1]):
        recipe = Recipe(box, True, (0.25, 0.75), (tuple(order),))
        found = render_batch(PICTURES[:1], (40, 52), [[recipe]], CPU)[0, 0].permute(
            1, 2, 0
        )
        expected = render_views(PICTURES[0], (40, 52), [recipe])[0]
        np.testing.assert_allclose(found.numpy(), expected, atol=0.51)


def test_a_chain_without_weight_or_effect_is_left_out() -> None:
    nothing = (
        partial(augment.rotate, degrees=0),
        partial(augment.solarize, threshold=256),
    )
    recipe = Recipe(
        (0, 0, 40, 52), False, (0.5, 0.5, 0.0), (nothing, (partial(augment.equalize),))
    )
    found = render_batch(PICTURES[:1], (40, 52), [[recipe]], CPU)[0, 0].permute(1, 2, 0)
    np.testing.assert_allclose(found.numpy(), np.asarray(PICTURES[0]), atol=1e-3)
