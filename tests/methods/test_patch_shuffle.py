"""Shuffled patches, patch by patch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from internals import PatchShuffle


def patches(picture: torch.Tensor, grid: int) -> list[bytes]:
    """Each patch of [channels, height, width], cut with a loop."""
    height, width = (edge // grid for edge in picture.shape[-2:])
    return [
        picture[:, i * height : (i + 1) * height, j * width : (j + 1) * width]
        .numpy()
        .tobytes()
        for i in range(grid)
        for j in range(grid)
    ]


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_is_a_permutation_of_patches(
    grid: int, rows: int, columns: int, seed: int
) -> None:
    pixels = torch.arange(2 * 3 * grid * rows * grid * columns).float()
    pixels = pixels.reshape(2, 3, grid * rows, grid * columns)
    shuffled = PatchShuffle(grid)(pixels, np.random.default_rng(seed))
    for before, after in zip(pixels, shuffled, strict=True):
        assert sorted(patches(before, grid)) == sorted(patches(after, grid))
    assert torch.equal(
        shuffled, PatchShuffle(grid)(pixels, np.random.default_rng(seed))
    )


def test_each_picture_has_an_order_of_its_own() -> None:
    pixels = torch.rand(
        1, 3, 16, 16, generator=torch.Generator().manual_seed(0)
    ).repeat(6, 1, 1, 1)
    shuffled = PatchShuffle()(pixels, np.random.default_rng(0))
    assert len({view.numpy().tobytes() for view in shuffled}) == 6


@pytest.mark.parametrize("size", [(13, 18), (3, 2)])
def test_other_sizes_are_fitted_and_come_back(size: tuple[int, int]) -> None:
    pixels = torch.full((2, 3, *size), 0.5)
    shuffled = PatchShuffle(4)(pixels, np.random.default_rng(0))
    torch.testing.assert_close(shuffled, pixels)
