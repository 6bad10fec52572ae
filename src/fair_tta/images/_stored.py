"""Features of images that the user has already, instead of the images."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fair_tta._linalg import ensure_unit_length, least_precise_dtype, subtract_mean
from fair_tta.errors import FairTTAError, FeatureMismatchWarning

Rows: TypeAlias = npt.NDArray[Any] | Tensor

ROWS_PER_CHUNK = 2048
"""Rows that are worked on together: in float32 about what fits into a processor's cache."""

# Limits of `Features._warn_if_other_model`, between what features of the same model and of
# another one show.
_MIN_ROWS_TO_COMPARE = 30
_MIN_COMMON_DIRECTION = 3.0  # mean cosine to text features, times sqrt(dim)
_MIN_VARIATION = (
    2.0  # along differences of text features, relative to a random direction
)


@dataclass(frozen=True, eq=False)
class StoredFeature:
    """One row of `Features`, which takes the place of a loaded image.

    Attributes:
        values: ``[dim]``, or of an image with its views ``[views, dim]``
        row: its number, for messages.
    """

    values: Rows
    row: int

    def tobytes(self) -> bytes:
        """Return its content, the same for all dtypes."""
        return _tensor(self.values).cpu().double().numpy().tobytes()


class Features(Sequence[StoredFeature]):
    """Features of images that you have already, to pass instead of images.

    They should come from the vision tower that belongs to the text features, before or after they
    were scaled to length one: only their direction counts. The array is neither copied nor checked
    as a whole, so it may be memory-mapped; rows are read when they are used. ``features[a:b]`` are
    `Features` too.

    Args:
        array: ``[images, dim]``, or with the features of views ``[images, views, dim]`` as
            `FairTPTClassifier.encode` returns them, view 0 being the image; of numpy or torch, in
            float16, float32, float64 or bfloat16.

    Example:
        >>> clf.predict_proba(Features(np.load("vectors.npy", mmap_mode="r")))  # doctest: +SKIP
        >>> clf.predict(Features(clf.encode(images)))  # doctest: +SKIP
    """

    def __init__(self, array: Rows) -> None:
        if not isinstance(array, np.ndarray | Tensor):
            raise FairTTAError(
                f"`features` should be an array of numpy or torch (got {type(array).__name__}).",
                argument="features",
            )
        # Without images `encode` returns an empty array with views; an empty table is more likely
        # a mistake.
        required_sizes = array.shape if array.ndim == 2 else array.shape[1:]
        if array.ndim not in (2, 3) or 0 in required_sizes:
            raise FairTTAError(
                "`features` should be [images, dim], a row for each image and at least one, or "
                f"[images, views, dim] as `encode` returns them (got {list(array.shape)}).",
                argument="features",
            )
        if isinstance(array, Tensor):
            is_floating = array.dtype.is_floating_point
        else:
            is_floating = array.dtype.kind == "f"
        if not is_floating:
            raise FairTTAError(
                f"`features` should be floating-point numbers (got {array.dtype}): turn quantised "
                "ones back into those of the model.",
                argument="features",
            )
        self.array = array
        self._rows = range(len(array))
        self._is_compared = False

    @property
    def dim(self) -> int:
        """Length of a feature."""
        return int(self.array.shape[-1])

    @property
    def _views(self) -> int | None:
        """Number of views of each image, including itself; None without a dimension of views."""
        return int(self.array.shape[1]) if self.array.ndim == 3 else None

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Features({list(self.array.shape)} of {self.array.dtype})"

    @overload
    def __getitem__(self, index: int) -> StoredFeature: ...
    @overload
    def __getitem__(self, index: slice) -> Features: ...
    def __getitem__(self, index: int | slice) -> StoredFeature | Features:
        if isinstance(index, slice):
            part = Features(self.array[index])
            part._rows = self._rows[index]
            part._is_compared = self._is_compared
            return part
        return StoredFeature(self.array[index], self._rows[index])

    def _chunks(self) -> Iterator[Features]:
        """Yield the rows in order, some thousands at a time."""
        images = max(1, ROWS_PER_CHUNK // (self._views or 1))
        for start in range(0, len(self), images):
            yield self[start : start + images]

    def _warn_if_other_model(self, texts: Tensor) -> None:
        """Warn, once, if these seem to come from another model than text features ``[k, dim]``.

        Features of a matching model either share a cone with its text features (OpenAI's ViT-B/32:
        mean cosine 4.0 / sqrt(dim) and more, whatever the prompts) or, like SigLIP's, vary along
        the differences of prompts that fit the images (CelebA: 2.2 times as much as along a random
        direction, and more). Features of another model do neither: below 2.7 and 1.7 in 2,000
        random rotations. See docs/vector-database.md.
        """
        if self._is_compared or len(self) < _MIN_ROWS_TO_COMPARE:
            return
        self._is_compared = True
        step = -(-len(self) // ROWS_PER_CHUNK)  # rounded up
        features = self[::step]._unit(texts)[:, 0]  # [rows, dim]

        cosines = features @ texts.mT
        common_direction = cosines.mean().abs() * self.dim**0.5

        # Variance along the differences of the texts, over the mean variance of all directions.
        deviations = subtract_mean(features, 0)
        differences = subtract_mean(texts, 0)
        along = (deviations @ differences.mT).square().sum()
        along = along / differences.square().sum()
        variation = along * self.dim / deviations.square().sum()

        if common_direction < _MIN_COMMON_DIRECTION and variation < _MIN_VARIATION:
            warnings.warn(
                "`features` point elsewhere than the text features, as those of another model "
                f"would (mean cosine {cosines.mean():.3f}): check that both come from "
                "the same model, and that the prompts are about these images.",
                FeatureMismatchWarning,
                stacklevel=5,
            )

    def _unit(self, like: Tensor) -> Tensor:
        """Return ``[images, views, dim]`` of length one, with dtype and device of `like`.

        There is one view if these are features of images alone.

        Raises:
            FairTTAError: `like` has another dimension, or a row is not finite or zero.
        """
        return _unit_rows(_tensor(self.array), self._rows, like)


def stack_features(features: Sequence[Any], like: Tensor) -> Tensor:
    """Return ``[images, views, dim]`` of length one; see `Features._unit`."""
    if isinstance(features, Features):
        return features._unit(like)
    if not all(isinstance(feature, StoredFeature) for feature in features):
        raise FairTTAError(
            "`images` should be either images or stored features, not both.",
            argument="images",
        )
    if len({feature.values.shape for feature in features}) > 1:
        raise FairTTAError(
            "`features` should all have the same dimension.", argument="features"
        )
    rows = torch.stack([_tensor(feature.values) for feature in features])
    return _unit_rows(rows, [feature.row for feature in features], like)


def as_features(features: Any) -> Any:
    """Return an array ``[n, dim]`` as `Features`, and anything else unchanged."""
    is_array = isinstance(features, np.ndarray | Tensor)
    return Features(features) if is_array and features.ndim == 2 else features


def feature_batches(features: Any) -> Iterable[Any]:
    """Return batches for `as_unit_features`.

    Stored features are split into chunks; an iterable holds batches; an array is one batch.
    """
    features = as_features(features)
    if isinstance(features, Features):
        return features._chunks()
    if isinstance(features, np.ndarray | Tensor):
        return [features]
    return features if isinstance(features, Iterable) else [features]


def as_unit_features(features: Any, like: Tensor) -> Tensor:
    """Return unit features ``[images, views, dim]`` with dtype and device of `like`.

    `features` are `Features`, or an array ``[images, views, dim]`` with at least one view.
    """
    features = as_features(features)
    if isinstance(features, Features):
        return features._unit(like)
    shape = list(features.shape) if isinstance(features, np.ndarray | Tensor) else None
    dim = like.shape[-1]
    if shape is None or shape[2:] != [dim] or shape[1] == 0:
        raise FairTTAError(
            f"`features` should be [images, {dim}], or what `encode` returns, [images, views, "
            f"{dim}] (got {shape or type(features).__name__}).",
            argument="features",
        )
    return ensure_unit_length(_tensor(features).to(like))


def has_stored_features(images: Sequence[Any]) -> bool:
    """Return whether some of these are stored features."""
    return isinstance(images, Features) or any(
        isinstance(image, StoredFeature) for image in images
    )


def dtype_of(images: Any) -> torch.dtype:
    """Return the dtype with the fewest digits in which `Features`, or rows of them, are stored."""
    if isinstance(images, Features):
        return dtype_of_rows(images.array)
    return least_precise_dtype(*{dtype_of_rows(image.values) for image in images})


def dtype_of_rows(rows: Rows) -> torch.dtype:
    """Return the dtype of an array as a dtype of torch."""
    return rows.dtype if isinstance(rows, Tensor) else _tensor(rows[:0]).dtype


def _tensor(rows: Rows) -> Tensor:
    """Return a tensor; rows of a numpy array, which may be read-only, are copied."""
    if isinstance(rows, Tensor):
        return rows.detach()
    return torch.from_numpy(np.array(rows, rows.dtype.newbyteorder("="), order="C"))


def _unit_rows(rows: Tensor, numbers: Sequence[int], like: Tensor) -> Tensor:
    """Return rows with a dimension of views, of length one; `numbers` are those of the images."""
    if rows.shape[-1] != like.shape[-1]:
        raise FairTTAError(
            f"`features` should have {like.shape[-1]} numbers in a row, as the text features have "
            f"(got {rows.shape[-1]}): both should come from the same model.",
            argument="features",
        )
    rows = (rows.unsqueeze(1) if rows.ndim == 2 else rows).to(like)
    length = torch.linalg.vector_norm(rows, dim=-1)
    if not bool(((length > 0) & length.isfinite()).all()):
        _refuse_rows(~rows.isfinite().all(-1), "NaN or infinite", numbers)
        _refuse_rows((rows == 0).all(-1), "zero", numbers)
    return ensure_unit_length(rows, length)


def _refuse_rows(is_wrong: Tensor, reason: str, numbers: Sequence[int]) -> None:
    """Raise an error that lists the first rows of ``[images, views]`` that are wrong, if any."""
    indices = is_wrong.any(1).nonzero().flatten().tolist()
    if not indices:
        return
    listed = ", ".join(str(numbers[index]) for index in indices[:5])
    if len(indices) > 5:
        listed += f" and {len(indices) - 5} more"
    raise FairTTAError(
        f"`features` should not be {reason}: see row {listed}.",
        argument="features",
    )


@dataclass(frozen=True)
class ImageSource:
    """An image to be classified.

    Attributes:
        name: its name in rows: within its dataset, or as the user wrote it.
        source: the path of its file, the content of one, or its features.
    """

    name: str
    source: str | bytes | StoredFeature
