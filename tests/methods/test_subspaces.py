"""Spans of features against scipy and brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from internals import orthonormal_basis, pair_differences, project_onto, project_out
from random_task import DIM, random_units

linalg: Any = pytest.importorskip("scipy.linalg")


@given(st.integers(0, 2**32), st.integers(1, 5), st.booleans())
def test_parts_are_those_of_scipys_basis(
    seed: int, count: int, dependent: bool
) -> None:
    rows, x = random_units(seed, count, DIM), random_units(seed + 1, 4, DIM)
    if dependent:
        rows = torch.cat([rows, rows.sum(0, keepdim=True), 0 * rows[:1]])
    q = linalg.orth(rows.numpy().T, rcond=1e-9)
    assert q.shape[1] == count
    expected = x.numpy() @ q @ q.T
    np.testing.assert_allclose(project_onto(x, rows), expected, atol=1e-9)
    np.testing.assert_allclose(project_out(x, rows), x.numpy() - expected, atol=1e-9)
    gram = orthonormal_basis(rows) @ orthonormal_basis(rows).mT
    rank = torch.tensor(
        [1.0] * count + [0.0] * (len(rows) - count), dtype=torch.float64
    )
    torch.testing.assert_close(gram, rank.diag(), rtol=0, atol=1e-9)


def test_each_image_may_have_a_span_of_its_own() -> None:
    rows, x = random_units(0, 3, 2, DIM), random_units(1, 3, 4, DIM)
    expected = torch.stack([project_out(a, b) for a, b in zip(x, rows, strict=True)])
    torch.testing.assert_close(project_out(x, rows), expected)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_no_direction_takes_nothing(count: int) -> None:
    """Prompts that are alike but for rounding have no direction between them."""
    x = random_units(0, 2, DIM)
    same = x[:1].expand(count, DIM).float()
    rounding = same + 1e-8 * random_units(1, count, DIM).float() - x[:1].float()
    assert torch.equal(project_out(x, rounding), x)


def test_differences_of_all_pairs() -> None:
    rows = random_units(0, 2, 4, DIM)
    brute = [
        [block[i] - block[j] for i in range(4) for j in range(4) if i < j]
        for block in rows.numpy()
    ]
    np.testing.assert_array_equal(pair_differences(rows), np.array(brute))
