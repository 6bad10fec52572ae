"""Sensitive labels of reference images: names become numbers, and what is wrong is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fair_tta.errors import FairTTAError

SensitiveLabels: TypeAlias = Iterable[str] | Mapping[str, Iterable[str]]
"""The name of a value for each image, or these by attribute."""


def read_labels(
    labels: SensitiveLabels | None, sensitive: Mapping[str, Mapping[str, str]]
) -> dict[str, Tensor]:
    """``{attribute: [images]}``, the places of the values among those of the attribute.

    Args:
        labels: as the user has them.
        sensitive: ``{attribute: {name: phrase}}`` of the task.
    """
    if not isinstance(labels, Mapping):
        if len(sensitive) > 1:
            raise FairTTAError(
                f"`sensitive_labels` should be {{attribute: labels}} for {list(sensitive)} (got a "
                f"{type(labels).__name__})."
            )
        labels = dict.fromkeys(sensitive, labels)
    if set(labels) != set(sensitive):
        raise FairTTAError(
            f"`sensitive_labels` should be of the attributes {list(sensitive)} (got "
            f"{list(labels)})."
        )
    values = {name: _places(name, labels[name], list(sensitive[name])) for name in sensitive}
    counts = {name: len(places) for name, places in values.items()}
    if len(set(counts.values())) > 1:
        raise FairTTAError(
            f"`sensitive_labels` should be as many of each attribute (got {counts})."
        )
    return values


def check_as_many(values: Mapping[str, Tensor], images: int | None) -> None:
    """Raise unless there is a label for each image, if it is known how many there are."""
    for name, places in values.items():
        if images is not None and len(places) != images:
            raise FairTTAError(
                f"`sensitive_labels` should have one of {name!r} for each of {images} images (got "
                f"{len(places)})."
            )


def _places(attribute: str, labels: Any, names: list[str]) -> Tensor:
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise FairTTAError(
            f"`sensitive_labels` of {attribute!r} should be a name for each image (got {labels!r})."
        )
    given = list(labels)
    unknown = list(dict.fromkeys(repr(name) for name in given if name not in names))
    if unknown:
        raise FairTTAError(
            f"`sensitive_labels` of {attribute!r} should be among {names} (got "
            f"{', '.join(unknown[:3])})."
        )
    absent = [name for name in names if name not in given]
    if absent:
        raise FairTTAError(
            f"`sensitive_labels` should have an image of each value of {attribute!r} (none has "
            f"{', '.join(map(repr, absent))})."
        )
    return torch.tensor([names.index(name) for name in given], dtype=torch.long, device="cpu")
