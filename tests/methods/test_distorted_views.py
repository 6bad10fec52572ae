"""Auxiliary pictures without a segmentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import picture
from internals import DistortedViews
from PIL import Image

from fair_tta.extend import Views

GREY = Image.new("RGB", (60, 40), (128, 128, 128))


def test_the_centre_is_cut_to_the_shape() -> None:
    """Red to the left and right of a square in the middle, which alone is seen."""
    image = Image.new("RGB", (80, 40), (255, 0, 0))
    image.paste((0, 255, 0), (20, 0, 60, 40))
    views = DistortedViews(9)(image, (16, 16), np.random.default_rng(0))
    assert not views[..., 0].any()


def test_distortions_move_pixels_and_make_a_hole() -> None:
    views = DistortedViews(33)(GREY, (40, 40), np.random.default_rng(0))
    assert views.shape == (32, 40, 40, 3)
    grey, black = (views == 128).all(-1), (views == 0).all(-1)
    assert (grey.mean((1, 2)) < 1).mean() > 0.9
    assert black.any()
    assert grey.mean() > 0.3
    assert len({view.tobytes() for view in views}) > 28


def test_the_hole_is_at_most_a_quarter() -> None:
    white = Image.new("RGB", (40, 40), (255, 255, 255))

    class Still:
        """Draws the operation 'rotate' at strength 0, and the largest hole in the centre."""

        def random(self, shape: Any) -> Any:
            return np.broadcast_to([0, 0.5, 0, 0.5, 1.0, 0.5, 0.5], shape)

    (view,) = DistortedViews(2)(white, (40, 40), Still())  # type: ignore[arg-type]
    assert (view == 0).mean() == pytest.approx(0.25)


def test_only_the_generator_decides() -> None:
    views = DistortedViews(4)
    assert isinstance(views, Views)
    first, again, other = (
        views(picture(), (32, 32), np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
