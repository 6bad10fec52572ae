"""Views that code of the user's makes: what they should be, before a model sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fair_tta.errors import FairTTAError
from fair_tta.vision.views import AugMix, CropFlip, Identity, Views

_SLACK = 1.0  # how far values may overshoot 0..255, as those of some ways to resize do


def check_view_count(views: Views) -> None:
    """Raise unless `n` is a number of views."""
    if not isinstance(views.n, int) or views.n < 1:
        raise FairTTAError(
            f"`views` should have `n`, a whole number from 1 on (got {views.n!r} of "
            f"{type(views).__name__})."
        )


def check_arrays(
    name: str, views: Views, arrays: Any, size: tuple[int, int]
) -> npt.NDArray[np.float32]:
    """What views gave, if it is an array ``[n - 1, height, width, 3]`` from 0 to 255.

    Args:
        name: of the argument, for messages.
        views: who gave it.
        arrays: what they gave.
        size: height and width.
    """
    wanted = [views.n - 1, *size, 3]
    is_array = isinstance(arrays, np.ndarray)
    if not is_array or list(arrays.shape) != wanted or arrays.dtype.kind not in "fiu":
        got = f"{list(arrays.shape)} of {arrays.dtype}" if is_array else type(arrays).__name__
        raise FairTTAError(
            f"`{name}` should give an array {wanted} of numbers, all views but the image itself "
            f"(got {got} from {type(views).__name__})."
        )
    if arrays.size and not isinstance(views, AugMix | CropFlip | Identity):
        low, high = float(arrays.min()), float(arrays.max())  # nan if there is one
        if not (low >= -_SLACK and high <= 255 + _SLACK):
            raise FairTTAError(
                f"`{name}` should give values from 0 to 255 (got {low:g} to {high:g} from "
                f"{type(views).__name__})."
            )
    checked: npt.NDArray[np.float32] = arrays
    return checked


def listed_views(name: str, made: Any) -> Iterable[Any]:
    """What a function of views, the argument `name`, gave, if it is several pictures."""
    if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
        raise FairTTAError(
            f"`{name}` should return pictures, such as [image.rotate(90)] (got "
            f"{type(made).__name__})."
        )
    return made
