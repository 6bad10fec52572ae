"""Crops by matrix products, against PIL's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from checks import picture
from hypothesis import given
from hypothesis import strategies as st
from internals import crop_batch, resampling_weights
from internals import draw_batch_module as resampling
from PIL import Image

BOXES = [(0, 0, 40, 52, 0), (3, 7, 20, 11, 1), (39, 51, 1, 1, 0), (5, 0, 9, 52, 1)]


@pytest.mark.parametrize("size", [(32, 32), (24, 60)])
@pytest.mark.parametrize("at_once", [2**25, 1])
def test_crops_are_pils(
    size: tuple[int, int], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resampling, "_MAX_INTERMEDIATE_SIZE", at_once)
    pictures = [picture(i) for i in range(2)]
    found = crop_batch(
        np.stack(list(map(np.asarray, pictures))),
        torch.tensor([BOXES] * 2).float(),
        size,
    )
    assert found.dtype == torch.uint8
    for image, own in zip(pictures, found, strict=True):
        for (top, left, height, width, flip), view in zip(BOXES, own, strict=True):
            part = image.crop((left, top, left + width, top + height))
            expected = part.resize(size[::-1], Image.Resampling.BILINEAR)
            if flip:
                expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            difference = (
                np.asarray(expected, float) - view.permute(1, 2, 0).double().numpy()
            )
            assert np.abs(difference).max() <= 1


@given(st.data())
def test_weights_are_shares_of_pixels_in_the_part(data: st.DataObject) -> None:
    length, size = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    extent = data.draw(st.integers(1, length))
    start = data.draw(st.integers(0, length - extent))
    flip = data.draw(st.booleans())
    values = [torch.tensor(float(x)) for x in (start, extent, flip)]
    weights = resampling_weights(values[0], values[1], length, size, values[2])
    assert weights.shape == (size, length)
    torch.testing.assert_close(weights.sum(1), torch.ones(size))
    assert (weights >= 0).all()
    assert not weights[:, :start].any()
    assert not weights[:, start + extent :].any()
    other = resampling_weights(values[0], values[1], length, size, 1 - values[2])
    torch.testing.assert_close(other, weights.flip(0), rtol=1e-3, atol=1e-5)
