"""Types of the arrays and columns that metrics take."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

Column: TypeAlias = Any
"""One value per image: a list, numpy array, torch tensor or pandas series of names or numbers."""

Sensitive: TypeAlias = Any
"""A column, or ``{attribute: column}``: with several attributes, groups are intersections."""

Targets: TypeAlias = Sequence[Hashable] | None
"""All classes; None stands for those that occur."""

Values: TypeAlias = Sequence[Hashable] | Mapping[str, Sequence[Hashable]]
"""All values of the attribute, or ``{attribute: all values}``."""
