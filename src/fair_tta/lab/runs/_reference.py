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
from fair_tta.datasets._features import FeatureFile, is_feature_file, read_features
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.images._batches import Decoder
from fair_tta.images._stored import ImageSource, StoredFeature
from fair_tta.images._vision import image_digest
from fair_tta.lab.runs._image_files import kept_features, read_image
from fair_tta.lab.runs._runner import batched
from fair_tta.lab.runs._worker import (
    LoadedImage,
    encode_each,
    loaded_portions,
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


def fit_on_images(
    classifier: FairTPTClassifier,
    adapters: Mapping[K, Adapter],
    images: Iterable[ImageSource],
    sensitive: Sequence[Mapping[str, str]] = (),
    classes: Sequence[str] = (),
    *,
    in_folds: bool = False,
    kept: Path | None = None,
    progress: OpenEndedProgress = lambda *_: None,
) -> tuple[dict[K, Adapter], list[str], list[str]]:
    """Fit the methods that need a reference, or cross-fit them; others stay as they are.

    Features are made once for all methods. `sensitive` has the attribute values of each image, for
    methods that need them, and `classes` the class of each, for methods that need those. With
    `kept`, features stay in that folder, so that a call after a kill finds them.

    Returns:
        The methods, the digests of the images that were used, and why the others were not.
    """
    if all(adapter.is_fitted for adapter in adapters.values()):
        return dict(adapters), [], []
    contents: list[str] = []
    digests: list[str] = []
    problems: dict[int, str] = {}
    labels: dict[str, list[str]] = {}
    known: list[str] = []

    def encode(some: Mapping[int, LoadedImage], places: Sequence[int]) -> list[Any]:
        def make() -> Tensor:
            of = classifier.encode(
                [some[place].data for place in places], with_views=False
            )
            return of.float().cpu()

        contents = [some[place].content for place in places]
        made = make() if store is None else kept_features(*store, contents, make)
        return [(one, 0.0) for one in made]

    store = None
    if kept is not None and sees_images(classifier._backend):
        store = kept, feature_identity(classifier._backend, None)
    features: list[Tensor] = []
    progress(0, None)
    places = count()
    with closing(Decoder()) as decoder:
        for few in batched(images, classifier._batch_size):
            upcoming = submit_sources(decoder, classifier, few)
            for some in loaded_portions(decoder, upcoming, places, problems):
                found = encode_each(some, partial(encode, some), problems)
                used = [place for place in found if place not in problems]
                features += (
                    [torch.stack([found[place][0] for place in used])] if used else []
                )
                for place in used:
                    contents.append(some[place].content)
                    digests.append(image_digest(some[place].data) if in_folds else "")
                    for attribute, value in (
                        sensitive[place].items() if sensitive else ()
                    ):
                        labels.setdefault(attribute, []).append(value)
                    known += [classes[place]] if classes else []
                classifier._vision.forget()  # nobody asks for these images again
                progress(len(contents), None)

    if not contents:
        fitted = dict(adapters)
    elif in_folds:
        fitted = cross_fit(classifier, adapters, features, digests, known)
    else:
        fitted = {
            k: fit_encoded(classifier, one, features, labels, known or None)
            for k, one in adapters.items()
        }
    return fitted, contents, list(problems.values())


@dataclass(frozen=True, eq=False)
class FittedAdapters:
    """Methods that are ready, and sentences about their references.

    Attributes:
        provenance: of the folder that they were fitted on, as JSON; empty without one.
        left_out: what of the folder could not be used, and why.
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
    """Fit the methods that need it on the images of a folder; others stay as they are.

    Args:
        reference: the folder, read with its subfolders, or a file of features.
        images: to be classified; None if they are not known.
        reference_is_data: whether some of them may be in the reference too.

    Raises:
        FairTTAError: it is not a folder, it has no image that can be used, or some of `images`.
    """
    check_fittable(adapters)
    if not isinstance(reference, FeatureFile) and is_feature_file(reference):
        reference = read_features(reference)
    left_out, paths = list[str](), list[ImageSource]()
    if isinstance(reference, FeatureFile):
        paths, reference = [*map(reference.source, reference.row_of_id)], reference.path
    elif not os.path.isdir(reference):
        raise FairTTAError(
            f"`reference` should be a folder of images (got {os.fspath(reference)!r}).",
            argument="reference",
        )
    for path in () if paths else find_image_files(reference):
        if isinstance(path, UnlistedFolder):
            left_out.append(f"cannot look into the folder {path.path!r}: {path.reason}")
        else:
            paths.append(ImageSource(path, path))
    name = printable(Path(reference).resolve().name)
    shared = None if images is None else _shared(paths, images)
    if shared and not reference_is_data:
        raise FairTTAError(
            f"`reference` {name!r} has {shared} of the images to be classified, which flatters "
            "the methods fitted on it. Take others, or allow it with `reference_is_data`.",
            argument="reference",
        )
    fitted, contents, problems = fit_on_images(
        classifier, adapters, paths, progress=progress
    )
    if not contents:
        raise FairTTAError(
            f"`reference` {os.fspath(reference)!r} has no image that can be read.",
            argument="reference",
        )
    left_out += problems
    methods = [method for method, adapter in adapters.items() if not adapter.is_fitted]
    about = {
        "folder": name,
        "images": len(contents),
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
    return FittedAdapters(fitted, (f"{note}.",), about, tuple(left_out))


def _shared(reference: Iterable[ImageSource], images: Iterable[ImageSource]) -> int:
    """How many images are in the reference too, byte for byte; others of its sizes are read."""
    contents, sizes = set(), set()
    for image in reference:
        with suppress(OSError, ValueError, ImageError):  # reported when it is used
            file = read_image(image)
            contents.add(file.content)
            sizes.add(_size(file.data))
    found = 0
    for image in images:
        with suppress(OSError, ValueError, ImageError):
            if _size(image.source) in sizes:
                found += read_image(image).content in contents
    return found


def _size(source: str | bytes | StoredFeature) -> int | None:
    """Of a file; None for features."""
    if isinstance(source, StoredFeature):
        return None
    return len(source) if isinstance(source, bytes) else os.stat(source).st_size


def check_fittable(
    adapters: Mapping[str, Adapter],
    has_reference: bool = True,
    has_labels: bool = False,
) -> None:
    """Raise if a method cannot be fitted on images alone, or a reference has none to fit.

    With `has_labels` the images have classes too, which those of a reference folder do not.
    """
    if has_reference and all(adapter.is_fitted for adapter in adapters.values()):
        raise FairTTAError(
            "a reference goes with a method that is to be fitted (got "
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
                    f"{name!r} cannot be fitted on a folder: no FittedMethod."
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
    """Methods that are ready, or an error before any image is classified.

    Those that need a reference are fitted on the folder (see `fit_on_folder`), or, if it is None,
    cross-fitted on the images themselves, with their classes where they need them; features are
    `kept` in a folder until `forget`.
    """
    elsewhere = tuple(
        f"{name}: fitted elsewhere, on {part._checked_reference().images} images; "
        "whether some of them are classified here is not known."
        for name, adapter in adapters.items()
        for part in adapter.parts
        if isinstance(part, FittedMethod) and part.is_fitted
    )
    if reference is None and all(adapter.is_fitted for adapter in adapters.values()):
        found = FittedAdapters(adapters)
    elif reference is None:
        check_fittable(adapters, has_reference=False, has_labels=bool(classes))
        fitted, contents, _ = fit_on_images(
            classifier,
            adapters,
            images(),
            classes=classes,
            in_folds=True,
            kept=kept,
            progress=progress,
        )  # without contents nothing will be answered, and the run says why
        found = FittedAdapters(
            fitted if contents else dict.fromkeys(adapters, ZeroShot())
        )
    else:
        found = fit_on_folder(
            classifier,
            adapters,
            reference,
            images(),
            reference_is_data=reference_is_data,
            progress=progress,
        )
    for adapter in found.adapters.values():
        check_adapter(adapter, classifier._task)
    crossed = {
        k: one for k, one in found.adapters.items() if isinstance(one, CrossFitted)
    }
    notes = (f"{name}: {method.note}" for name, method in crossed.items())
    return replace(found, notes=(*found.notes, *notes, *elsewhere))
