"""Labels of reference images: names of classes and attribute values, turned into indices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fair_tta.errors import FairTTAError
from fair_tta.prompts._task import Task

SensitiveLabels: TypeAlias = Iterable[str] | Mapping[str, Iterable[str]]
"""The name of an attribute value for each image, or these by attribute."""

ClassLabels: TypeAlias = Iterable[str | None] | Mapping[int, str]
"""The class of each image, None where it is not known, or ``{index of an image: class}``."""

# A message names no more unknown labels than these, however many images have one.
_MAX_UNKNOWN_SHOWN = 3


@dataclass(frozen=True, eq=False)
class ReferenceLabels:
    """Labels of reference images, as indices into the names of a task.

    Attributes:
        values: ``{attribute: [images]}``, indices of attribute values; empty if they are not used.
        classes: ``{index of an image: index of its class}``, where the class is known.
        least_images: the largest position that the class labels name, plus 1, of unknown class too.
        may_lack_images: further images may follow, whose class is not known.
    """

    values: Mapping[str, Tensor]
    classes: Mapping[int, int]
    least_images: int
    may_lack_images: bool

    @classmethod
    def parse(
        cls, task: Task, labels: ClassLabels | None, sensitive: SensitiveLabels | None
    ) -> ReferenceLabels:
        """Look up class labels and attribute values, either of them None if it is not used."""
        values: dict[str, Tensor] = {}
        if sensitive is not None:
            values = _index_attribute_values(sensitive, task.sensitive)
        if labels is None:
            return cls(values, {}, 0, may_lack_images=True)
        # A dict names single images, so it says nothing about how many there are.
        classes, least_images = _index_classes(labels, list(task.targets))
        may_lack_images = isinstance(labels, Mapping)
        return cls(values, classes, least_images, may_lack_images)

    def check_count(self, images: int) -> None:
        """Raise unless there are labels for as many images."""
        for attribute, indices in self.values.items():
            if len(indices) != images:
                raise FairTTAError(
                    f"`sensitive` should have one value of {attribute!r} for each of {images} "
                    f"images (got {len(indices)}).",
                    argument="sensitive",
                )
        lacks_images = self.least_images < images and not self.may_lack_images
        if self.least_images > images or lacks_images:
            raise FairTTAError(
                f"`labels` should have one entry for each of {images} images (got "
                f"{self.least_images}): use None where the class is not known, or pass "
                "{index of an image: class}.",
                argument="labels",
            )

    def of_images(self, start: int, stop: int) -> tuple[dict[str, Tensor], Tensor]:
        """Return the value and class indices of the images from `start` up to `stop`.

        A class that is not known is -1.
        """
        values = {}
        for attribute, indices in self.values.items():
            # Too many values show only at the end, too few at once.
            if len(indices) < stop:
                self.check_count(stop)
            values[attribute] = indices[start:stop]
        classes = [self.classes.get(image, -1) for image in range(start, stop)]
        return values, torch.tensor(classes, device="cpu")


def _index_attribute_values(
    labels: SensitiveLabels, sensitive: Mapping[str, Mapping[str, str]]
) -> dict[str, Tensor]:
    """Return ``{attribute: [images]}``, indices into the attribute's values."""
    # With one attribute its name may be left out.
    if not isinstance(labels, Mapping) and len(sensitive) == 1:
        (attribute,) = sensitive
        labels = {attribute: labels}
    if not isinstance(labels, Mapping) or set(labels) != set(sensitive):
        got = f"a {type(labels).__name__}"
        if isinstance(labels, Mapping):
            got = str(list(labels))
        raise FairTTAError(
            f"`sensitive` should be {{attribute: labels}} for {list(sensitive)} (got {got}).",
            argument="sensitive",
        )
    indices = {}
    counts = {}
    for attribute, names in sensitive.items():
        indices[attribute] = _index_values(attribute, labels[attribute], list(names))
        counts[attribute] = len(indices[attribute])
    if len(set(counts.values())) > 1:
        raise FairTTAError(
            f"`sensitive` should have as many labels for each attribute (got {counts}).",
            argument="sensitive",
        )
    return indices


def _index_values(attribute: str, labels: Any, names: list[str]) -> Tensor:
    """Return the index of each label among the names of an attribute's values."""

    def error(problem: str) -> FairTTAError:
        text = f"`sensitive` of {attribute!r} should {problem}."
        return FairTTAError(text, argument="sensitive")

    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise error(f"be a name for each image (got {labels!r})")
    labels = list(labels)
    unknown = _unknown_labels(labels, names)
    if unknown:
        raise error(f"be among {names} (got {', '.join(unknown)})")
    # Methods compare groups, so each of them needs at least one image.
    absent = [repr(name) for name in names if name not in labels]
    if absent:
        raise error(f"include every value (no image has {', '.join(absent)})")
    return torch.tensor([names.index(label) for label in labels], device="cpu")


def _index_classes(
    labels: ClassLabels, targets: list[str]
) -> tuple[dict[int, int], int]:
    """Return ``{index of an image: index of its class}``, and the least number of images."""
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise FairTTAError(
            f"`labels` should be a class or None for each image (got {labels!r}).",
            argument="labels",
        )
    by_image = dict(labels if isinstance(labels, Mapping) else enumerate(labels))
    for image in by_image:
        if not isinstance(image, int) or image < 0:
            raise FairTTAError(
                "`labels` as a dict should have indices of images, integers >= 0, as keys (got "
                f"{image!r}).",
                argument="labels",
            )
    # A user may list all images although only some classes are known.
    known = {image: label for image, label in by_image.items() if label is not None}
    index_of_class = {name: index for index, name in enumerate(targets)}
    unknown = _unknown_labels(known.values(), index_of_class)
    if unknown:
        raise FairTTAError(
            f"`labels` should be among the classes {targets} (got {', '.join(unknown)}).",
            argument="labels",
        )
    classes = {image: index_of_class[label] for image, label in known.items()}
    return classes, max(by_image, default=-1) + 1


def _unknown_labels(labels: Iterable[Any], names: Collection[str]) -> list[str]:
    """Return the first labels that are not among the names, each once, for a message."""
    unknown: list[str] = []
    for label in labels:
        if label not in names and repr(label) not in unknown:
            unknown.append(repr(label))
        if len(unknown) == _MAX_UNKNOWN_SHOWN:
            break
    return unknown
