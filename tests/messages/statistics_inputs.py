"""Rates, counts and settings of intervals that do not exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from internals import wilson

from fair_tta import metrics
from fair_tta.metrics import Bootstrap

Case = Callable[[Path], object]


def case(function: Callable[..., object], *arguments: Any, **named: Any) -> Case:
    return lambda _: function(*arguments, **named)


CASES: dict[str, Case] = {
    "more right answers than images": case(wilson, 3, 2),
    "a rate of no images": case(wilson, 0, 0),
    "fewer than no right answers": case(wilson, -1, 3),
    "more changes than images": case(metrics.images_for_change, 3, 2, 4),
    "a rate above 1": case(metrics.images_for_half_width, 1.2, 0.1),
    "an interval without a width": case(metrics.images_for_half_width, 0.5, 0.0),
    "a power of 1": case(metrics.images_for_change, 1, 2, 9, power=1.0),
    "no resamples": case(Bootstrap, resamples=0),
    "a negative seed": case(Bootstrap, seed=-1),
    "a level of 1": case(Bootstrap, level=1.0),
    "a level that is text": case(Bootstrap, level="a"),
    "unknown strata": case(Bootstrap, strata="s"),
}
