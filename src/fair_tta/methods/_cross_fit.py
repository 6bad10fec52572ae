"""Cross-fitting: each image is classified by a fit on other images than itself."""

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

# Each fit sees four fifths of the images.
FOLDS = 5

K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class Fits:
    """A method fitted once without each fold of the images, and once on all of them.

    Attributes:
        by_fold: for each fold the method fitted on the images of the other folds.
        on_all_images: the method fitted on all images.
        images: their number.
        sha256: digest of the images, and of their classes if these were used.
        class_labels: their classes were used.
    """

    by_fold: tuple[Adapter, ...] = field(repr=False)
    on_all_images: Adapter = field(repr=False)
    images: int
    sha256: str
    class_labels: bool

    def _identity_settings(self) -> dict[str, Any]:
        """Return the JSON by which `fair_tta._identity.describe` knows the fits.

        The same images make the same fits, in any order and with any batch size.
        """
        return {"folds": FOLDS, "images": self.images, "sha256": self.sha256}


@dataclass(frozen=True)
class CrossFitted(Adapter):
    """A method that classifies each image by a fit that has seen neither it nor a copy of it."""

    method: Adapter
    fits: Fits

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """Those of the method, except the reference, which it has."""
        return replace(self.method.needs, reference=False)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Raise an error: features alone do not show which fit has not seen an image."""
        raise FairTTAError(
            "a cross-fitted method needs the images themselves: call `predict`."
        )

    @property
    def note(self) -> str:
        """A sentence about it for reports."""
        labels = "without labels"
        if self.fits.class_labels:
            labels = "and their class labels"
        return (
            f"cross-fitted on these {self.fits.images} images {labels}; each is answered by one of "
            f"{FOLDS} fits, which has not seen it."
        )

    def folds(self, images: Sequence[Image]) -> Iterator[tuple[Adapter, list[int]]]:
        """Yield the fits that are needed, each with the indices of the images it classifies."""
        images_of_fold: dict[int, list[int]] = {}
        for index, image in enumerate(images):
            fold = _fold(image_digest(image))
            images_of_fold.setdefault(fold, []).append(index)
        for fold, indices in images_of_fold.items():
            yield self.fits.by_fold[fold], indices


def cross_fit(
    classifier: Any,
    adapters: Mapping[K, Adapter],
    features: Sequence[Tensor],
    digests: Sequence[str],
    class_labels: Sequence[str] = (),
) -> dict[K, Adapter]:
    """Cross-fit the methods that need a reference; others stay unchanged.

    A fit that needs class labels gets those of its own images only.

    Args:
        classifier: its model and prompts are fitted for.
        adapters: the methods, by name.
        features: ``[images, 1, dim]``, in batches.
        digests: the `image_digest` of each image, which decides its fold and its place in the fit.
        class_labels: the class of each image, empty if classes are not known.
    """
    # Sorted, so that sums over images do not depend on the order in which they came.
    n_images = len(digests)
    sort_keys = list(zip(digests, class_labels or digests, strict=True))
    order = sorted(range(n_images), key=sort_keys.__getitem__)
    training_sets = [
        [image for image in order if _fold(digests[image]) != fold]
        for fold in range(FOLDS)
    ]
    if not all([*training_sets, order]):
        raise FairTTAError(
            f"cross-fitting needs more different images (got {n_images}, all in one fold): name "
            "reference images, or methods that need none."
        )
    if n_images < FittedMethod._recommended_images:
        warnings.warn(
            f"cross-fitting on {n_images} images; with fewer than "
            f"{FittedMethod._recommended_images} the result of a fit is uncertain.",
            SmallReferenceWarning,
            stacklevel=3,
        )

    all_features = torch.cat(list(features))
    digest_of_images = sha256(" ".join(sorted(digests)).encode()).hexdigest()
    sorted_labels = [sort_keys[image] for image in order]
    digest_with_labels = sha256(repr(sorted_labels).encode()).hexdigest()

    def fit(method: Adapter, images: list[int], use_labels: bool) -> Adapter:
        labels = [class_labels[image] for image in images] if use_labels else None
        fitted: Adapter = fit_encoded(
            classifier, method, all_features[images], labels=labels
        )
        return fitted

    cross_fitted = dict(adapters)
    with warnings.catch_warnings():
        # The number of images was mentioned above; each fit would do so again.
        warnings.simplefilter("ignore", SmallReferenceWarning)
        for name, method in adapters.items():
            if method.is_fitted:
                continue
            use_labels = bool(class_labels) and method.needs.reference_labels
            by_fold = [fit(method, images, use_labels) for images in training_sets]
            fits = Fits(
                tuple(by_fold),
                fit(method, order, use_labels),
                n_images,
                digest_with_labels if use_labels else digest_of_images,
                use_labels,
            )
            cross_fitted[name] = CrossFitted(method, fits)
    return cross_fitted


def _fold(digest: str) -> int:
    # By content, so that copies of an image are in the same fold.
    return int(digest, 16) % FOLDS
