"""Rows for a store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from internals import RowKey, StoredRow

from fair_tta.prediction import Prediction

PREDICTION = Prediction(
    label="dog",
    probabilities={"cat": 0.25, "dog": 0.75},
    zero_shot={"cat": 0.5, "dog": 0.5},
    sensitive={"place": {"sea": 0.1, "wood": 0.9}},
    sensitive_zero_shot={"place": {"sea": 0.2, "wood": 0.8}},
    entropy=0.8,
    entropy_zero_shot=1.0,
    sensitive_entropy={"place": 0.4},
    sensitive_entropy_zero_shot={"place": 0.7},
    distance=0.1 + 0.2,  # a number that needs all its digits
    flip_margin=0.0,
    certified_unchanged=False,
    learning_rate=0.005,
    warnings=("bounded",),
)


def row(i: int = 0, **fields: Any) -> StoredRow:
    key = RowKey(f"{i:04x}", "m", "t", "s", 0)
    return replace(
        StoredRow(key, f"{i}.jpg", f"{i:032x}", PREDICTION, 0.1, "me"), **fields
    )


def rows(count: int) -> list[StoredRow]:
    return [row(i) for i in range(count)]
