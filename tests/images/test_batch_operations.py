"""Operations on many pictures at once, against those on one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from checks import picture
from internals import augment_module as augment
from internals import draw_batch_module as batch

HEIGHT, WIDTH = 40, 52


def photos() -> list[Any]:
    """Noise, a gradient, few levels, and one colour."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    smooth = np.stack([2 * x, 3 * y, x + y], -1).astype(np.uint8)
    return [np.array(picture()), smooth, smooth // 64 * 64, np.full_like(smooth, 77)]


def assert_agree(found: torch.Tensor, expected: list[Any], most: float) -> None:
    assert found.dtype == torch.uint8
    for one, two in zip(found, expected, strict=True):
        difference = np.abs(one.permute(1, 2, 0).double().numpy() - two)
        assert difference.max() <= most


def stack() -> torch.Tensor:
    return torch.from_numpy(np.stack(photos())).permute(0, 3, 1, 2)


def test_autocontrast() -> None:
    """PIL multiplies by a rounded factor, which may cut off one level."""
    assert_agree(
        batch.autocontrast_batch(stack(), torch.empty(0)),
        list(map(augment.autocontrast, photos())),
        1,
    )


def test_equalize() -> None:
    assert_agree(
        batch.equalize_batch(stack(), torch.empty(0)),
        list(map(augment.equalize, photos())),
        0,
    )


def test_posterize_and_solarize_with_a_number_each() -> None:
    bits = [4, 1, 0, 8]
    masks = torch.tensor([[float(0xFF & ~(0xFF >> b))] for b in bits])
    expected = [augment.posterize(p, b) for p, b in zip(photos(), bits, strict=True)]
    assert_agree(batch.posterize_batch(stack(), masks), expected, 0)
    levels = [256, 128, 0, 78]
    expected = [augment.solarize(p, t) for p, t in zip(photos(), levels, strict=True)]
    assert_agree(
        batch.solarize_batch(stack(), torch.tensor(levels).float()[:, None]),
        expected,
        0,
    )


@pytest.mark.parametrize(
    "step",
    [
        partial(augment.translate_x, pixels=7),
        partial(augment.translate_x, pixels=-60),
        partial(augment.translate_y, pixels=-5),
        partial(augment.shear_x, level=0.21),
        partial(augment.shear_y, level=-0.17),
        partial(augment.rotate, degrees=11),
        partial(augment.rotate, degrees=-3),
    ],
)
def test_warps(step: Any) -> None:
    """OpenCV 4 rounds positions to 1/32 pixel: 9 levels between black and white, less than 1 on
    average."""
    tensor_step = batch._tensor_step(step, (HEIGHT, WIDTH))
    assert tensor_step is not None
    operation, matrix = tensor_step
    assert operation is batch.warp_batch
    found = batch.warp_batch(stack(), torch.tensor([matrix] * 4))
    assert_agree(found, [step(p) for p in photos()], 10)
    means = [
        np.abs(a.permute(1, 2, 0).double().numpy() - step(p)).mean()
        for a, p in zip(found, photos(), strict=True)
    ]
    assert max(means) < 1
