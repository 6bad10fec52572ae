"""Cross-fitting: methods fitted on the images that they answer, no image by a fit that saw it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeVar

from PIL.Image import Image
from torch import Tensor

from fair_tta._images.vision import image_digest
from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError, SmallReferenceWarning
from fair_tta.methods._base import Adapter, Needs, Outcome
from fair_tta.methods._fitted import FittedMethod, fit_parts

FOLDS = 5

K = TypeVar("K")


@dataclass(frozen=True, eq=False, repr=False)
class Fits:
    """What a method has learnt of images.

    Attributes:
        of_folds: for each fold what was fitted on the images of the others.
        of_all: what was fitted on all images.
        images: how many.
        sha256: of their contents, whatever their order.
    """

    of_folds: tuple[Adapter, ...]
    of_all: Adapter
    images: int
    sha256: str

    def identity_settings(self) -> dict[str, Any]:
        """For `fair_tta._identity.describe`: fits of the same images are the same, on any machine
        and with any batch size."""
        return {"folds": FOLDS, "images": self.images, "sha256": self.sha256}

    def __repr__(self) -> str:
        return f"Fits(images={self.images})"


@dataclass(frozen=True)
class CrossFitted(Adapter):
    """A method that answers each image by a fit that has not seen it.

    The content of an image decides its fold, so that copies share one.

    Args:
        method: as it was before it was fitted.
        fits: what it has learnt.
    """

    method: Adapter
    fits: Fits

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """Those of the method, but for the reference, which it has."""
        return replace(self.method.needs, reference=False)

    def check_fitted(self, task: Task | None = None) -> None:
        self.fits.of_all.check_fitted(task)

    def check_task(self, task: Task) -> None:
        self.method.check_task(task)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Raise an error: the classifier asks the fits."""
        raise FairTTAError("a cross-fitted method needs the images themselves: call `predict`.")

    def folds(self, images: Sequence[Image]) -> Iterator[tuple[Adapter, list[int]]]:
        """The fits, each with the places of the images that it answers."""
        own = [_fold(image_digest(image)) for image in images]
        for fold, fit in enumerate(self.fits.of_folds):
            places = [place for place, other in enumerate(own) if other == fold]
            if places:
                yield fit, places


def cross_fit(
    classifier: Any, adapters: Mapping[K, Adapter], features: Tensor, digests: Sequence[str]
) -> dict[K, Adapter]:
    """Cross-fit the methods that need a reference; others stay as they are.

    Args:
        classifier: whose model and prompts they are for.
        adapters: methods by name.
        features: ``[images, 1, dim]``
        digests: the `image_digest` of each, by which they are put in order.
    """
    order = sorted(range(len(digests)), key=digests.__getitem__)
    folds = [_fold(digests[place]) for place in order]
    if len(set(folds)) < 2:
        raise FairTTAError(
            f"cross-fitting needs more different images (got {len(digests)} that share a fold): "
            "name reference images, or methods that need none."
        )
    if len(digests) < FittedMethod.enough:
        warnings.warn(
            f"cross-fitting on {len(digests)} images; with fewer than {FittedMethod.enough} what "
            "a method learns is uncertain.",
            SmallReferenceWarning,
            stacklevel=3,
        )
    digest = sha256(" ".join(sorted(digests)).encode()).hexdigest()

    def fit(method: Adapter, without: int | None = None) -> Adapter:
        seen = [place for place, fold in zip(order, folds, strict=True) if fold != without]
        made: Adapter = fit_parts(classifier, method, features[seen])
        return made

    def fitted(method: Adapter) -> Adapter:
        if method.is_fitted:
            return method
        of_folds = tuple(fit(method, fold) for fold in range(FOLDS))
        return CrossFitted(method, Fits(of_folds, fit(method), len(digests), digest))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallReferenceWarning)  # of each fit
        return {name: fitted(method) for name, method in adapters.items()}


def cross_fit_notes(adapters: Mapping[str, Adapter]) -> tuple[str, ...]:
    """What a report says of each method that is cross-fitted."""
    return tuple(
        f"{name}: cross-fitted on these {adapter.fits.images} images without labels; each is "
        f"answered by one of {FOLDS} fits, which has not seen it."
        for name, adapter in adapters.items()
        if isinstance(adapter, CrossFitted)
    )


def _fold(digest: str) -> int:
    return int(digest, 16) % FOLDS
