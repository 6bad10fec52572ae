"""Cross-fitting: methods fitted on the images that they answer, no image by a fit that saw it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeVar

import torch
from PIL.Image import Image
from torch import Tensor

from fair_tta.errors import FairTTAError, SmallReferenceWarning
from fair_tta.images._vision import image_digest
from fair_tta.methods._base import Adapter, Needs, Outcome
from fair_tta.methods._fitting import FittedMethod, fit_encoded
from fair_tta.prompts._task import Task

FOLDS = 5

K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class Fits:
    """What a method has learnt: for each fold of the images from the others, and from all."""

    of_folds: tuple[Adapter, ...] = field(repr=False)
    of_all: Adapter = field(repr=False)
    images: int
    sha256: str
    class_labels: bool = False

    def _identity_settings(self) -> dict[str, Any]:
        """For `fair_tta._identity.describe`: the same images make the same fits, in any order and
        with any batch size."""
        return {"folds": FOLDS, "images": self.images, "sha256": self.sha256}


@dataclass(frozen=True)
class CrossFitted(Adapter):
    """A method that answers each image by a fit that has not seen it, nor a copy of it."""

    method: Adapter
    fits: Fits

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """Those of the method, but for the reference, which it has."""
        return replace(self.method.needs, reference=False)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Raise an error: the classifier asks the fits."""
        raise FairTTAError(
            "a cross-fitted method needs the images themselves: call `predict`."
        )

    @property
    def note(self) -> str:
        """What a report says of it."""
        labels = (
            "and their class labels" if self.fits.class_labels else "without labels"
        )
        return (
            f"cross-fitted on these {self.fits.images} images {labels}; each is answered by one of "
            f"{FOLDS} fits, which has not seen it."
        )

    def folds(self, images: Sequence[Image]) -> Iterator[tuple[Adapter, list[int]]]:
        """The fits, each with the places of the images that it answers."""
        own = [_fold(image_digest(image)) for image in images]
        for fold in set(own):
            yield (
                self.fits.of_folds[fold],
                [i for i, other in enumerate(own) if other == fold],
            )


def cross_fit(
    classifier: Any,
    adapters: Mapping[K, Adapter],
    features: Sequence[Tensor],
    digests: Sequence[str],
    class_labels: Sequence[str] = (),
) -> dict[K, Adapter]:
    """Cross-fit the methods that need a reference; others stay as they are.

    Features are ``[images, 1, dim]`` in batches. The `image_digest` of an image decides its fold
    and its place in the fit. A fit that needs class labels has those of its own images only.
    """
    keys, n = list(zip(digests, class_labels or digests, strict=True)), len(digests)
    order = sorted(range(n), key=keys.__getitem__)
    seen = [
        [i for i in order if _fold(digests[i]) != fold]
        for fold in (*range(FOLDS), None)
    ]
    if not all(seen):
        raise FairTTAError(
            f"cross-fitting needs more different images (got {n}, all in one fold): name reference "
            "images, or methods that need none."
        )
    if n < FittedMethod._recommended_images:
        warnings.warn(
            f"cross-fitting on {n} images; with fewer than "
            f"{FittedMethod._recommended_images} what a method learns is uncertain.",
            SmallReferenceWarning,
            stacklevel=3,
        )
    every, content = torch.cat([*features]), sha256(" ".join(sorted(digests)).encode())
    labelled = sha256(repr([keys[i] for i in order]).encode())
    found = dict(adapters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallReferenceWarning)  # of each fit
        for name, method in adapters.items():
            if not method.is_fitted:
                uses = bool(class_labels) and method.needs.reference_labels
                *of_folds, of_all = (
                    fit_encoded(
                        classifier,
                        method,
                        every[some],
                        labels=[class_labels[i] for i in some] if uses else None,
                    )
                    for some in seen
                )
                digest = (labelled if uses else content).hexdigest()
                fits = Fits(tuple(of_folds), of_all, n, digest, uses)
                found[name] = CrossFitted(method, fits)
    return found


def _fold(digest: str) -> int:
    return int(digest, 16) % FOLDS
