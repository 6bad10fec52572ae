"""Checks of what callers pass as images, before any of it is encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fair_tta.errors import FairTTAError, ImageError, ModelError
from fair_tta.images._stored import StoredFeature


def check_images(images: Any) -> Iterable[Any]:
    """Return several images as something to iterate over.

    Raises:
        ImageError: `images` are neither an image nor an iterable of images.
    """
    if isinstance(images, Mapping) or not hasattr(images, "__iter__"):
        raise ImageError(
            "`images` should be an image (PIL image, path, bytes, array or tensor) or an "
            f"iterable of images (got {type(images).__name__}).",
            argument="images",
        )
    # A nested tensor has no length, which a progress bar would ask for.
    if isinstance(images, Tensor) and images.is_nested:
        return images.unbind()
    several: Iterable[Any] = images
    return several


def reject_feature_rows(image: Any, dim: int, model_name: str) -> None:
    """Raise if an array looks like rows of features: it would be read as a grey image."""
    if image.ndim == 2 and image.shape[1] == dim:
        raise FairTTAError(
            f"`images` should not be a two-dimensional array with rows of {dim} numbers, "
            f"as long as the features of {model_name} (got {list(image.shape)}): "
            "pass Features(array) if its rows are features, or array[:, :, None] if it is "
            "a grey image.",
            argument="images",
        )


def is_array(image: Any) -> bool:
    """Return whether an image is given as numbers."""
    return isinstance(image, np.ndarray | Tensor)


def have_stored_views(images: Sequence[Any]) -> bool:
    """Return whether these stored features include views beside each image."""
    first = images[0]
    return isinstance(first, StoredFeature) and first.values.ndim == 2


def check_dimensions(model_name: str, images: Tensor, texts: Tensor) -> None:
    """Raise `ModelError` if features of images and of prompts cannot be compared."""
    if images.shape[-1] != texts.shape[-1]:
        raise ModelError(
            f"{model_name} has image features of {images.shape[-1]} numbers and text features "
            f"of {texts.shape[-1]}: both sides should be of the same model, with its projections."
        )


def features_alone_error() -> FairTTAError:
    """Return the error of a method that needs more than one stored feature of an image."""
    return FairTTAError(
        "stored features have neither pixels nor further views (`with_views`): choose a "
        "method that works on features, such as with_adapter('association-correction'), or pass "
        "the images.",
        argument="with_views",
    )
