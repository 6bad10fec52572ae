"""Features of images that the user has already, in place of the images."""

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

_ENOUGH = 30  # rows that can be compared with text features; see `Features._compare`
_CONE, _VARIATION = 3.0, 2.0


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
        """Its content."""
        return _tensor(self.values).cpu().double().numpy().tobytes()


class Features(Sequence[StoredFeature]):
    """Features of images that you have already, to pass in place of images.

    They should be of the vision tower that belongs to the text features, before or after they were
    scaled to length one: only where they point to counts. The array is neither copied nor checked
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
        # Of no images `encode` returns none; an empty table is more likely a mistake.
        least = array.shape if array.ndim == 2 else array.shape[1:]
        if array.ndim not in (2, 3) or 0 in least:
            raise FairTTAError(
                "`features` should be [images, dim], a row for each image and at least one, or "
                f"[images, views, dim] as `encode` returns them (got {list(array.shape)}).",
                argument="features",
            )
        kind = (
            array.dtype.is_floating_point
            if isinstance(array, Tensor)
            else array.dtype.kind
        )
        if kind not in (True, "f"):
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
        """Numbers in a row."""
        return int(self.array.shape[-1])

    @property
    def _views(self) -> int | None:
        """How many views each image has, with itself; None if these are of images alone."""
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
            some = Features(self.array[index])
            some._rows, some._is_compared = self._rows[index], self._is_compared
            return some
        return StoredFeature(self.array[index], self._rows[index])

    def _chunks(self) -> Iterator[Features]:
        """Return the rows in order, some thousands at a time."""
        images = max(1, ROWS_PER_CHUNK // (self._views or 1))
        return (self[i : i + images] for i in range(0, len(self), images))

    def _warn_if_other_model(self, texts: Tensor) -> None:
        """Warn, once, if these seem to come from another model than text features ``[k, dim]``.

        Features of a matching model either share a cone with its text features (OpenAI's ViT-B/32:
        mean cosine 4.0 / sqrt(dim) and more, whatever the prompts) or, like SigLIP's, vary along
        the differences of prompts that fit the images (CelebA: 2.2 times as much as along a random
        direction, and more). Features of another model do neither: below 2.7 and 1.7 in 2,000
        random rotations. See docs/vector-database.md.
        """
        if self._is_compared or len(self) < _ENOUGH:
            return
        self._is_compared = True
        some = self[:: -(-len(self) // ROWS_PER_CHUNK)]._unit(texts)[:, 0]
        spread, differences = subtract_mean(some, 0), subtract_mean(texts, 0)
        along = (spread @ differences.mT).square().sum() / differences.square().sum()
        common = (some @ texts.mT).mean().abs() * self.dim**0.5
        if common < _CONE and along * self.dim / spread.square().sum() < _VARIATION:
            warnings.warn(
                "`features` point elsewhere than the text features, as those of another model "
                f"would (mean cosine {(some @ texts.mT).mean():.3f}): check that both come from "
                "the same model, and that the prompts are about these images.",
                FeatureMismatchWarning,
                stacklevel=5,
            )

    def _unit(self, like: Tensor) -> Tensor:
        """Return ``[images, views, dim]``, of length one, as `like` is; one view of rows alone.

        Raises:
            FairTTAError: `like` has another dimension, or a row is not finite or zero.
        """
        return _unit_rows(_tensor(self.array), self._rows, like)


def stack_features(features: Sequence[Any], like: Tensor) -> Tensor:
    """As `Features._unit` of the rows that these are."""
    if isinstance(features, Features):
        return features._unit(like)
    if not all(isinstance(one, StoredFeature) for one in features):
        raise FairTTAError(
            "`images` should be either images or stored features, not both.",
            argument="images",
        )
    if len({one.values.shape for one in features}) > 1:
        raise FairTTAError(
            "`features` should all have the same dimension.", argument="features"
        )
    rows = torch.stack([_tensor(one.values) for one in features])
    return _unit_rows(rows, [one.row for one in features], like)


def as_features(features: Any) -> Any:
    """An array ``[n, dim]`` as `Features`; all else stays."""
    is_array = isinstance(features, np.ndarray | Tensor)
    return Features(features) if is_array and features.ndim == 2 else features


def feature_batches(features: Any) -> Iterable[Any]:
    """Batches for `as_unit_features`: chunks of stored ones, batches as they are, or all as one."""
    features = as_features(features)
    if isinstance(features, Features):
        return features._chunks()
    many = isinstance(features, Iterable) and not isinstance(
        features, np.ndarray | Tensor
    )
    return features if many else [features]


def as_unit_features(features: Any, like: Tensor) -> Tensor:
    """Unit features ``[images, views, dim]`` with the dtype and on the device of `like`.

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
    """Whether some of these are stored features."""
    return isinstance(images, Features) or any(
        isinstance(one, StoredFeature) for one in images
    )


def dtype_of(images: Any) -> torch.dtype:
    """Return the dtype with the fewest digits in which `Features`, or rows of them, are stored."""
    if isinstance(images, Features):
        return dtype_of_rows(images.array)
    return least_precise_dtype(*{dtype_of_rows(one.values) for one in images})


def dtype_of_rows(rows: Rows) -> torch.dtype:
    """Return the dtype of an array as torch has it."""
    return rows.dtype if isinstance(rows, Tensor) else _tensor(rows[:0]).dtype


def _tensor(rows: Rows) -> Tensor:
    """As a tensor; rows of a numpy array, which may be read-only, are copied."""
    if isinstance(rows, Tensor):
        return rows.detach()
    return torch.from_numpy(np.array(rows, rows.dtype.newbyteorder("="), order="C"))


def _unit_rows(rows: Tensor, numbers: Sequence[int], like: Tensor) -> Tensor:
    if rows.shape[-1] != like.shape[-1]:
        raise FairTTAError(
            f"`features` should have {like.shape[-1]} numbers in a row, as the text features have "
            f"(got {rows.shape[-1]}): both should come from the same model.",
            argument="features",
        )
    rows = (rows.unsqueeze(1) if rows.ndim == 2 else rows).to(like)
    length = torch.linalg.vector_norm(rows, dim=-1)
    if not bool(((length > 0) & length.isfinite()).all()):
        finite, zero = rows.isfinite().all(-1), (rows == 0).all(-1)
        for wrong, what in (~finite, "NaN or infinite"), (zero, "zero"):
            if bool(wrong.any()):
                places = [numbers[i] for i in wrong.any(1).nonzero().flatten().tolist()]
                first = ", ".join(map(str, places[:5])) + ", ..." * (len(places) > 5)
                raise FairTTAError(
                    f"`features` should not be {what}: see row {first}.",
                    argument="features",
                )
    return ensure_unit_length(rows, length)


@dataclass(frozen=True)
class ImageSource:
    """An image to be classified.

    Attributes:
        name: its name in rows: within its dataset, or as the user wrote it.
        source: the path of its file, the content of one, or its features.
    """

    name: str
    source: str | bytes | StoredFeature
