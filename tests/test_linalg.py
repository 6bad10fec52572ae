"""Lengths and directions, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from internals import length_and_direction, to_cpu_float64


@given(st.integers(0, 2**32), st.integers(-30, 30))
def test_lengths_of_numbers_of_any_size(seed: int, power: int) -> None:
    x = (
        torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(seed))
        * 10.0**power
    )
    x[1] = 0
    length, direction = length_and_direction(x)
    exact = x.double().numpy().reshape(len(x), -1)
    norms = np.sqrt((exact**2).sum(-1))
    np.testing.assert_allclose(length.double().numpy(), norms, rtol=1e-6)
    units = exact / np.where(norms == 0, 1, norms)[..., None]
    np.testing.assert_allclose(
        direction.double().numpy().reshape(units.shape), units, atol=1e-6
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_has_no_length(value: float) -> None:
    length, direction = length_and_direction(torch.tensor([[1.0, value], [3.0, 4.0]]))
    assert not length[0].isfinite()
    assert direction[0].isnan().all()
    assert length[1] == 5
    assert direction[1].tolist() == pytest.approx([0.6, 0.8])


def test_wide_on_the_cpu_is_float64() -> None:
    assert to_cpu_float64(torch.ones(2, dtype=torch.bfloat16)).dtype == torch.float64
