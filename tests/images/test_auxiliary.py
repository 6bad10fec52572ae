"""Auxiliary pictures without a segmentation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from checks import picture
from PIL import Image

from fair_tta import FairTTAError
from fair_tta.extend import Views
from fair_tta.methods import DistortedViews
from fair_tta.methods._field.seraser import NoisyViews

GREY = Image.new("RGB", (60, 40), (128, 128, 128))


def test_noise_has_its_spread() -> None:
    found = NoisyViews(5, std=0.1)(GREY, (32, 24), np.random.default_rng(0))
    assert found.shape == (4, 32, 24, 3)
    assert found.dtype == np.float32
    assert float(found.mean()) == pytest.approx(128, abs=2)
    assert float(found.std()) == pytest.approx(25.5, rel=0.05)
    assert not np.array_equal(found[0], found[1])


def test_noise_stays_within_the_colours() -> None:
    found = NoisyViews(3, std=2.0)(GREY, (8, 8), np.random.default_rng(0))
    assert (found.min(), found.max()) == (0, 255)
    plain = NoisyViews(2, std=0.0)(GREY, (8, 8), np.random.default_rng(0))
    assert np.array_equal(plain, np.full((1, 8, 8, 3), 128))


def test_the_centre_is_cut_to_the_shape() -> None:
    """Red to the left and right of a square in the middle, which alone is seen."""
    image = Image.new("RGB", (80, 40), (255, 0, 0))
    image.paste((0, 255, 0), (20, 0, 60, 40))
    found = NoisyViews(2, std=0.0)(image, (16, 16), np.random.default_rng(0))
    assert np.array_equal(found, np.broadcast_to([0, 255, 0], (1, 16, 16, 3)))


def test_distortions_move_pixels_and_make_a_hole() -> None:
    found = DistortedViews(33)(GREY, (40, 40), np.random.default_rng(0))
    assert found.shape == (32, 40, 40, 3)
    grey, black = (found == 128).all(-1), (found == 0).all(-1)
    assert (grey.mean((1, 2)) < 1).mean() > 0.9
    assert black.any()
    assert grey.mean() > 0.3
    assert len({view.tobytes() for view in found}) > 28


def test_the_hole_is_at_most_a_quarter() -> None:
    white = Image.new("RGB", (40, 40), (255, 255, 255))

    class Still:
        """Draws the operation 'rotate' at strength 0, and the largest hole in the centre."""

        def random(self, shape: Any) -> Any:
            return np.broadcast_to([0, 0.5, 0, 0.5, 1.0, 0.5, 0.5], shape)

    (found,) = DistortedViews(2)(white, (40, 40), Still())  # type: ignore[arg-type]
    assert (found == 0).mean() == pytest.approx(0.25)


def test_only_the_generator_decides() -> None:
    for views in (NoisyViews(4), DistortedViews(4)):
        assert isinstance(views, Views)
        first, again, other = (
            views(picture(), (32, 32), np.random.default_rng(seed)) for seed in (0, 0, 1)
        )
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NoisyViews(0), "`n` should be at least 1"),
        (lambda: NoisyViews(std=-1), r"`std` should be a number from 0 on \(got -1\)"),
        (lambda: NoisyViews(std=math.inf), "`std` should be a number"),
        (lambda: DistortedViews(1.5), "`n` should be a whole number"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(FairTTAError, match=message):
        make()
