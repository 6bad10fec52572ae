"""Methods fitted on reference images, which are not among the images to be classified."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fair_tta._io import Unlisted, images_below, printable
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.lab._runs.bank import ImageSource, read_image
from fair_tta.lab._runs.runner import batched
from fair_tta.lab._runs.worker import LoadedImage, load_source
from fair_tta.methods import Chained
from fair_tta.methods._base import Adapter, check_adapter
from fair_tta.methods._fitted import FittedMethod

Counting = Callable[[int, int | None], None]
"""Receives how many images are finished, and how many there are if that is known."""

K = TypeVar("K")


class Fitted(NamedTuple, Generic[K]):
    """What `fit_on_images` returns.

    Attributes:
        adapters: the methods, fitted.
        contents: digests of the images that were used.
        problems: why the others were not.
    """

    adapters: dict[K, Adapter]
    contents: list[str]
    problems: list[str]


def fit_on_images(
    classifier: FairTPTClassifier,
    adapters: Mapping[K, Adapter],
    images: Iterable[ImageSource],
    sensitive: Sequence[Mapping[str, str]] = (),
    *,
    progress: Counting = lambda *_: None,
) -> Fitted[K]:
    """Fit the methods that need a reference; others stay as they are.

    Features are made once for all methods and lie in a temporary file.

    Args:
        classifier: whose model and prompts they are for; its adapter does not matter.
        adapters: the methods.
        images: the reference.
        sensitive: the attribute values of each image, for methods that need them.
        progress: receives how many images are finished.
    """
    if all(adapter.is_fitted for adapter in adapters.values()):
        return Fitted(dict(adapters), [], [])
    contents: list[str] = []
    problems: list[str] = []
    labels: dict[str, list[str]] = {}
    sizes: list[int] = []

    def loaded(some: Iterable[tuple[int, ImageSource]]) -> Iterator[LoadedImage]:
        for place, image in some:
            try:
                one = load_source(classifier, image)
            except ImageError as error:
                problems.append(str(error))
                continue
            contents.append(one.content)
            for attribute, value in sensitive[place].items() if sensitive else ():
                labels.setdefault(attribute, []).append(value)
            yield one

    with TemporaryFile() as file:
        for some in batched(loaded(enumerate(images)), classifier.batch_size):
            features = classifier.encode([one.image for one in some], with_views=False)[:, 0]
            classifier.vision.forget()  # nobody asks for these images again
            file.write(features.float().cpu().numpy().tobytes())
            sizes.append(len(features))
            progress(len(contents), None)
        dim = classifier.task.target_features.shape[1]

        def fit(method: Any) -> Any:
            if isinstance(method, Chained):
                return Chained(fit(method.first), fit(method.then))
            if method.is_fitted or not contents:
                return method
            features = _read_back(file, sizes, dim)
            if method.needs.labels:
                return method.fit_encoded(classifier, features, labels)
            return method.fit_encoded(classifier, features)

        return Fitted({name: fit(one) for name, one in adapters.items()}, contents, problems)


def _read_back(file: IO[bytes], sizes: Iterable[int], dim: int) -> Iterator[Tensor]:
    file.seek(0)
    for size in sizes:
        data = np.frombuffer(file.read(4 * size * dim), dtype=np.float32)
        yield torch.from_numpy(data.reshape(size, 1, dim).copy())


@dataclass(frozen=True, eq=False)
class FittedAdapters:
    """Methods that are ready, and what they were fitted on.

    Attributes:
        adapters: by their names.
        notes: sentences about their references.
        provenance: of the folder that they were fitted on, as JSON; empty without one.
        left_out: what of the folder could not be used, and why.
    """

    adapters: Mapping[str, Adapter]
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ReferenceFolder:
    """Which images there are, by content.

    Attributes:
        folder: where.
        contents: digests of the files.
        sizes: how many bytes files have; those of other sizes need not be read to know that they
            are not among them.
    """

    folder: Path
    contents: frozenset[str] = field(repr=False)
    sizes: frozenset[int] = field(repr=False)

    @classmethod
    def scan(cls, folder: str | os.PathLike[str]) -> ReferenceFolder:
        """Read a folder with its subfolders once.

        Raises:
            FairTTAError: it is not a folder, or there is no image in it.
        """
        if not os.path.isdir(folder):
            raise FairTTAError(
                f"`reference` should be a folder of images (got {os.fspath(folder)!r})."
            )
        contents, sizes = set(), set()
        for path in images_below(folder):
            with suppress(OSError, ValueError, ImageError):  # reported when it is used
                if not isinstance(path, Unlisted):
                    file = read_image(ImageSource(path, path))
                    contents.add(file.content)
                    sizes.add(len(file.data))
        if not contents:
            raise FairTTAError(f"`reference` {os.fspath(folder)!r} has no image that can be read.")
        return cls(Path(folder), frozenset(contents), frozenset(sizes))

    @property
    def name(self) -> str:
        """Of the folder, without its path."""
        return printable(self.folder.resolve().name)

    def shared(self, images: Iterable[ImageSource], *, is_allowed: bool) -> int:
        """How many images are in the folder too, byte for byte.

        Args:
            images: to be classified.
            is_allowed: whether there may be any.

        Raises:
            FairTTAError: there are some, and they may not be.
        """
        found = sum(map(self._has, images))
        if found and not is_allowed:
            raise FairTTAError(
                f"`reference` {self.name!r} has {found} of the images to be classified, "
                "which flatters the methods fitted on it. Take others, or allow it with "
                "`reference_is_data`."
            )
        return found

    def fit(
        self,
        classifier: FairTPTClassifier,
        adapters: Mapping[str, Adapter],
        *,
        shared: int | None = None,
        progress: Counting = lambda *_: None,
    ) -> FittedAdapters:
        """Fit the methods that need it on the images of the folder; others stay as they are.

        Args:
            classifier: whose model and prompts they are for; its adapter does not matter.
            adapters: by their names.
            shared: of `shared`; None if it is not known which images will be classified.
            progress: receives how many images are finished.
        """
        names = [name for name, adapter in adapters.items() if not adapter.is_fitted]
        check_fittable(adapters)
        closed: list[str] = []

        def images() -> Iterator[ImageSource]:
            for path in images_below(self.folder):
                if isinstance(path, Unlisted):
                    closed.append(f"cannot look into the folder {path.path!r}: {path.reason}")
                else:
                    yield ImageSource(path, path)

        fitted, contents, problems = fit_on_images(
            classifier, adapters, images(), progress=progress
        )
        left_out = [*closed, *problems]
        about = {
            "folder": self.name,
            "images": len(contents),
            "sha256": sha256(" ".join(sorted(contents)).encode()).hexdigest(),
            "left_out": len(left_out),
            "shared": shared,
            "methods": names,
        }
        note = f"{', '.join(names)}: fitted on {len(contents)} images of {self.name!r}"
        if shared is not None:
            note += f"; {shared or 'none'} of the images classified here are among them"
        if left_out:
            note += f"; {len(left_out)} could not be used"
        return FittedAdapters(fitted, (f"{note}.",), about, tuple(left_out))

    def _has(self, image: ImageSource) -> bool:
        try:
            if os.stat(image.source).st_size not in self.sizes:
                return False
            return read_image(image).content in self.contents
        except (OSError, ValueError, ImageError):
            return False


def check_fittable(adapters: Mapping[str, Adapter]) -> None:
    """Raise unless there is a method to be fitted, and all can be on images alone."""
    if all(adapter.is_fitted for adapter in adapters.values()):
        raise FairTTAError(
            "a reference goes with a method that is to be fitted (got "
            f"{', '.join(adapters) or 'no method'})."
        )
    for name, adapter in adapters.items():
        for part in adapter.parts:
            if part.is_fitted:
                continue
            if part.needs.labels:
                raise FairTTAError(
                    f"{name!r} needs the attribute values of its reference images, which a "
                    "folder does not have: fit it in Python, `save` it, and write "
                    f"'{name}:reference=FILE'."
                )
            if not hasattr(part, "fit_encoded"):
                raise FairTTAError(f"{name!r} cannot be fitted on a folder: no `fit_encoded`.")


def fit_adapters(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    reference: str | os.PathLike[str] | None,
    images: Callable[[], Iterable[ImageSource]],
    *,
    reference_is_data: bool = False,
    progress: Counting = lambda *_: None,
) -> FittedAdapters:
    """Methods that are ready, or an error before any image is classified.

    Args:
        classifier: its adapter does not matter.
        adapters: by their names; those that need a reference and have none are fitted.
        reference: a folder of images, None if all have what they need.
        images: to be classified.
        reference_is_data: whether some of them may be in the reference too.
        progress: receives how many images of the reference are finished.
    """
    fitted = [
        (name, part.checked_reference())
        for name, adapter in adapters.items()
        for part in adapter.parts
        if isinstance(part, FittedMethod) and part.is_fitted
    ]
    elsewhere = tuple(
        f"{name}: fitted elsewhere, on {learnt.images} images; "
        "whether some of them are classified here is not known."
        for name, learnt in fitted
    )
    if reference is None:
        found = FittedAdapters(dict(adapters), elsewhere)
    else:
        check_fittable(adapters)
        folder = ReferenceFolder.scan(reference)
        shared = folder.shared(images(), is_allowed=reference_is_data)
        found = folder.fit(classifier, adapters, shared=shared, progress=progress)
        found = replace(found, notes=(*found.notes, *elsewhere))
    for adapter in found.adapters.values():
        check_adapter(adapter, classifier.task)
    return found
