"""Many tensors in one copy are what they were."""

from __future__ import annotations

import numpy as np
import torch
from internals import fetch_to_cpu


def test_parts_come_out_as_they_went_in() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = {
        "single": torch.randn(4, 3, generator=generator),
        "half": torch.randn(4, 2, generator=generator).bfloat16(),
        "double": torch.randn(4, generator=generator, dtype=torch.float64),
        "truth": torch.tensor([True, False, True, True]),
        "tracked": torch.randn(4, 1, generator=generator).requires_grad_(),
    }
    found = fetch_to_cpu(parts)
    assert list(found) == list(parts)
    for name, part in parts.items():
        assert found[name].dtype == torch.float64
        assert found[name].shape == (4, part.numel() // 4)
        expected = part.detach().double().numpy().reshape(4, -1)
        np.testing.assert_array_equal(found[name].numpy(), expected)
    assert fetch_to_cpu({}) == {}
