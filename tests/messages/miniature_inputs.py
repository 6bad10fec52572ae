"""Images that the miniature world cannot draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fair_tta.miniature import BIRDS

GROUP = ("water bird", "water")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "a negative number of images": {"n": -1},
    "half an image": {"n": 1.5},
    "a negative seed": {"n": 1, "seed": -1},
    "a seed that is a text": {"n": 1, "seed": "a"},
    "an unknown split": {"n": 1, "split": "dev"},
    "a mix with an unknown group": {"n": 1, "mix": {("water bird", "air"): 1.0}},
    "a mix without weight": {"n": 1, "mix": {GROUP: 0.0}},
    "a mix with a negative weight": {"n": 1, "mix": {GROUP: -1.0}},
    "a mix with an infinite weight": {"n": 1, "mix": {GROUP: float("inf")}},
    "a mix with a weight that is not a number": {"n": 1, "mix": {GROUP: float("nan")}},
}


def drawing_with(arguments: dict[str, Any]) -> Callable[[Path], object]:
    return lambda folder: BIRDS.draw(**arguments)


CASES = {title: drawing_with(arguments) for title, arguments in ARGUMENTS.items()}
