"""Methods fitted on reference images, which are not among the images to be classified."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from fair_tta._identity import feature_identity
from fair_tta._io import UnlistedFolder, find_image_files, printable
from fair_tta.classifier import FairTPTClassifier
from fair_tta.datasets._feature_files import FeatureFile, is_feature_file, read_features
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.images._batches import Decoder
from fair_tta.images._stored import ImageSource, StoredFeature
from fair_tta.images._vision import image_digest
from fair_tta.lab.runs._image_files import kept_features, read_image_bytes
from fair_tta.lab.runs._runner import batched
from fair_tta.lab.runs._worker import (
    EncodedImage,
    LoadedImage,
    encode_each,
    loaded_batches,
    submit_sources,
)
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter, check_adapter
from fair_tta.methods._cross_fit import CrossFitted, cross_fit
from fair_tta.methods._fitting import FittedMethod, fit_encoded
from fair_tta.models._stored_text import sees_images

OpenEndedProgress = Callable[[int, int | None], None]
"""Receives how many images are finished, and how many there are if that is known."""

K = TypeVar("K")


@dataclass(eq=False)
class _ReferenceImages:
    """The images of a reference that can be used, in order; lists have one entry per image.

    Attributes:
        features: of one batch each: ``[images, 1, dim]``.
        contents: digests of the files.
        pixel_digests: digests of the decoded images.
        positions: positions among all images of the reference.
        problems: why the other images cannot be used.
    """

    features: list[Tensor] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    pixel_digests: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)


def _encode_reference(
    classifier: FairTPTClassifier,
    images: Iterable[ImageSource],
    features_folder: Path | None,
    needs_pixel_digests: bool,
    progress: OpenEndedProgress,
) -> _ReferenceImages:
    """Encode reference images batch by batch; only features stay in memory."""
    reference = _ReferenceImages()
    # Without a vision tower features are read from a file, and need not be kept in another.
    identity: dict[str, Any] | None = None
    if features_folder is not None and sees_images(classifier._backend):
        identity = feature_identity(classifier._backend, None)

    def encode(
        loaded: Mapping[int, LoadedImage], batch: Sequence[int]
    ) -> list[EncodedImage]:
        def make_features() -> Tensor:
            decoded = [loaded[position].data for position in batch]
            return classifier.encode(decoded, with_views=False).float().cpu()

        if features_folder is None or identity is None:
            features = make_features()
        else:
            contents = [loaded[position].content for position in batch]
            features = kept_features(features_folder, identity, contents, make_features)
        return [EncodedImage(of_image, seconds=0.0) for of_image in features]

    progress(0, None)
    positions = count()
    with closing(Decoder()) as decoder:
        for sources in batched(images, classifier._batch_size):
            upcoming = submit_sources(decoder, classifier, sources)
            for loaded in loaded_batches(
                decoder, upcoming, positions, reference.problems
            ):
                encoded = encode_each(
                    loaded, partial(encode, loaded), reference.problems
                )
                usable = [
                    position
                    for position in encoded
                    if position not in reference.problems
                ]
                if usable:
                    batch_features = [encoded[position].features for position in usable]
                    reference.features.append(torch.stack(batch_features))
                for position in usable:
                    image = loaded[position]
                    reference.positions.append(position)
                    reference.contents.append(image.content)
                    # Only folds need these digests, which take time.
                    digest = image_digest(image.data) if needs_pixel_digests else ""
                    reference.pixel_digests.append(digest)
                classifier._vision.forget()  # these images do not come again
                progress(len(reference.contents), None)
    return reference


def fit_on_images(
    classifier: FairTPTClassifier,
    adapters: Mapping[K, Adapter],
    images: Iterable[ImageSource],
    classes: Sequence[str] = (),
    *,
    in_folds: bool = False,
    kept: Path | None = None,
    progress: OpenEndedProgress = lambda *_: None,
) -> tuple[dict[K, Adapter], list[str], list[str]]:
    """Fit or cross-fit the methods that need a reference; others are returned unchanged.

    Features are made once for all methods.

    Args:
        classes: the class of each image, for methods that need it.
        in_folds: cross-fit instead.
        kept: features stay in this folder, so that a call after a kill finds them.

    Returns:
        The methods, the digests of the images that were used, and why the others were not.
    """
    # Nothing to fit: the images are not even read.
    if all(adapter.is_fitted for adapter in adapters.values()):
        return dict(adapters), [], []
    reference = _encode_reference(classifier, images, kept, in_folds, progress)
    features = reference.features
    # Images that could not be read have no features, and their labels go with them.
    labels = [classes[position] for position in reference.positions] if classes else []
    if not reference.contents:
        fitted = dict(adapters)
    elif in_folds:
        digests = reference.pixel_digests
        fitted = cross_fit(classifier, adapters, features, digests, labels)
    else:
        fitted = {}
        for key, adapter in adapters.items():
            fitted[key] = fit_encoded(classifier, adapter, features, {}, labels or None)
    return fitted, reference.contents, list(reference.problems.values())


@dataclass(frozen=True, eq=False)
class FittedAdapters:
    """Methods that are ready, and their references.

    Attributes:
        notes: sentences on what they were fitted on.
        provenance: the folder that they were fitted on, as JSON; empty without one.
        left_out: images and folders that could not be used, and why.
    """

    adapters: Mapping[str, Adapter]
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def fit_on_folder(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    reference: str | os.PathLike[str] | FeatureFile,
    images: Iterable[ImageSource] | None = None,
    *,
    reference_is_data: bool = False,
    progress: OpenEndedProgress = lambda *_: None,
) -> FittedAdapters:
    """Fit the methods that need it on the images of a folder; others are returned unchanged.

    Args:
        reference: the folder, read with its subfolders, or a file of features.
        images: the images to be classified; None if they are not known.
        reference_is_data: some of them may be in the reference too.

    Raises:
        FairTTAError: it is not a folder, it has no image that can be used, or some of `images`.
    """
    check_fittable(adapters)
    path, sources, left_out = _reference_sources(reference)
    name = printable(Path(path).resolve().name)
    # Before any time is spent on features.
    shared = None if images is None else _count_shared(sources, images)
    if shared and not reference_is_data:
        raise FairTTAError(
            f"`reference` {name!r} has {shared} of the images to be classified, which flatters "
            "the methods fitted on it. Take others, or allow it with `reference_is_data`.",
            argument="reference",
        )
    fitted, contents, problems = fit_on_images(
        classifier, adapters, sources, progress=progress
    )
    if not contents:
        raise FairTTAError(
            f"`reference` {os.fspath(path)!r} has no image that can be read.",
            argument="reference",
        )
    left_out += problems
    methods = [method for method, adapter in adapters.items() if not adapter.is_fitted]
    provenance = {
        "folder": name,
        "images": len(contents),
        # Names and order of the files do not matter.
        "sha256": sha256(" ".join(sorted(contents)).encode()).hexdigest(),
        "left_out": len(left_out),
        "shared": shared,
        "methods": methods,
    }
    note = f"{', '.join(methods)}: fitted on {len(contents)} images of {name!r}"
    if shared is not None:
        note += f"; {shared or 'none'} of the images classified here are among them"
    if left_out:
        note += f"; {len(left_out)} could not be used"
    return FittedAdapters(fitted, (f"{note}.",), provenance, tuple(left_out))


def _reference_sources(
    reference: str | os.PathLike[str] | FeatureFile,
) -> tuple[str | os.PathLike[str], list[ImageSource], list[str]]:
    """Return the path of a reference, its images, and the folders that cannot be listed."""
    if not isinstance(reference, FeatureFile) and is_feature_file(reference):
        reference = read_features(reference)
    if isinstance(reference, FeatureFile):
        sources = [reference.source(image_id) for image_id in reference.row_of_id]
        return reference.path, sources, []
    if not os.path.isdir(reference):
        raise FairTTAError(
            f"`reference` should be a folder of images (got {os.fspath(reference)!r}).",
            argument="reference",
        )
    sources = []
    unlisted = []
    for path in find_image_files(reference):
        if isinstance(path, UnlistedFolder):
            unlisted.append(f"cannot look into the folder {path.path!r}: {path.reason}")
        else:
            sources.append(ImageSource(path, path))
    return reference, sources, unlisted


def _count_shared(
    reference: Iterable[ImageSource], images: Iterable[ImageSource]
) -> int:
    """Return how many images are in the reference too, byte for byte."""
    reference_contents = set()
    reference_sizes = set()
    for image in reference:
        with suppress(OSError, ValueError, ImageError):  # reported when it is used
            file = read_image_bytes(image)
            reference_contents.add(file.content)
            reference_sizes.add(_byte_count(file.data))
    shared = 0
    for image in images:
        with suppress(OSError, ValueError, ImageError):
            # Only files whose size occurs in the reference need to be read.
            if _byte_count(image.source) in reference_sizes:
                shared += read_image_bytes(image).content in reference_contents
    return shared


def _byte_count(source: str | bytes | StoredFeature) -> int | None:
    """Return the size of a file or of its content; None for features."""
    if isinstance(source, StoredFeature):
        return None
    return len(source) if isinstance(source, bytes) else os.stat(source).st_size


def check_fittable(
    adapters: Mapping[str, Adapter],
    has_reference: bool = True,
    has_labels: bool = False,
) -> None:
    """Raise an error if methods cannot be fitted, or a reference has no method to fit.

    Args:
        has_reference: methods are fitted on a reference folder, whose images have no labels.
        has_labels: the images have classes.
    """
    if has_reference and all(adapter.is_fitted for adapter in adapters.values()):
        raise FairTTAError(
            "a reference needs a method that is fitted on it (got "
            f"{', '.join(adapters) or 'no method'})."
        )
    for name, adapter in adapters.items():
        for part in adapter.parts:
            if part.is_fitted:
                continue
            if part.needs.reference_sensitive:
                raise FairTTAError(
                    f"{name!r} needs the attribute values of its reference images, which a "
                    "folder does not have: fit it in Python with `clf.fit(images, "
                    "sensitive=values)`, `clf.save(path)`, and write the path."
                )
            if part.needs.reference_labels and (has_reference or not has_labels):
                raise FairTTAError(
                    f"{name!r} needs class labels of the images that it is fitted on: `fair-tta "
                    "audit` cross-fits it without --reference; or fit it in Python and `save` it."
                )
            if not isinstance(part, FittedMethod):
                raise FairTTAError(
                    f"{name!r} cannot be fitted on a folder: its class should have the base "
                    "FittedMethod."
                )


def fit_adapters(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    reference: str | os.PathLike[str] | None,
    images: Callable[[], Iterable[ImageSource]],
    *,
    classes: Sequence[str] = (),
    reference_is_data: bool = False,
    kept: Path | None = None,
    progress: OpenEndedProgress = lambda *_: None,
) -> FittedAdapters:
    """Return methods that are ready, or raise an error before any image is classified.

    Methods that need a reference are fitted on the folder (see `fit_on_folder`). Without a folder
    they are cross-fitted on the images themselves, with their classes where methods need them.

    Args:
        kept: see `fit_on_images`.
    """
    notes_of_saved = []
    for name, adapter in adapters.items():
        for part in adapter.parts:
            if isinstance(part, FittedMethod) and part.is_fitted:
                n_images = part._checked_reference().images
                notes_of_saved.append(
                    f"{name}: fitted elsewhere, on {n_images} images; "
                    "whether some of them are classified here is not known."
                )
    if reference is not None:
        ready = fit_on_folder(
            classifier,
            adapters,
            reference,
            images(),
            reference_is_data=reference_is_data,
            progress=progress,
        )
    elif all(adapter.is_fitted for adapter in adapters.values()):
        ready = FittedAdapters(adapters)
    else:
        check_fittable(adapters, has_reference=False, has_labels=bool(classes))
        fitted, contents, _ = fit_on_images(
            classifier,
            adapters,
            images(),
            classes,
            in_folds=True,
            kept=kept,
            progress=progress,
        )
        if not contents:
            # No image can be read, so no method will be called; the run says why.
            fitted = dict.fromkeys(adapters, ZeroShot())
        ready = FittedAdapters(fitted)
    notes = list(ready.notes)
    for name, adapter in ready.adapters.items():
        check_adapter(adapter, classifier._task)
        if isinstance(adapter, CrossFitted):
            notes.append(f"{name}: {adapter.note}")
    return replace(ready, notes=(*notes, *notes_of_saved))
