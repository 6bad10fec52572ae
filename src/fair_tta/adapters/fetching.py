"""Many tensors from a device in one copy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def fetch(parts: Mapping[str, Tensor]) -> dict[str, npt.NDArray[np.float64]]:
    """``{name: [images, numbers]}`` on the host in float64; ``[images]`` becomes ``[images, 1]``.

    Each device is waited for once, whatever there is to fetch from it.
    """
    rows = {name: part.detach().reshape(len(part), -1) for name, part in parts.items()}
    found: dict[str, npt.NDArray[np.float64]] = {}
    for device in dict.fromkeys(part.device for part in rows.values()):
        some = {name: part for name, part in rows.items() if part.device == device}
        together = torch.cat([_float(part) for part in some.values()], 1).cpu().double().numpy()
        ends = np.cumsum([part.shape[1] for part in some.values()])[:-1]
        found |= zip(some, np.split(together, ends, 1), strict=True)
    return found


def _float(part: Tensor) -> Tensor:
    """In float32 at least, which holds a truth value too."""
    return part if part.dtype == torch.float64 else part.float()
