"""A folder of reference pictures: methods are fitted on it, and it shares none with an audit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from fair_tta._io import Unlisted, images_below, printable
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.lab._runs.bank import ImageSource, read_image
from fair_tta.lab._runs.worker import LoadedImage, load_source
from fair_tta.methods import Chained
from fair_tta.methods._base import Adapter, check_adapter
from fair_tta.methods._fitted import FittedMethod

Tell = Callable[[int, int | None], None]
"""Is told how many pictures are finished, and how many there are if that is known."""


@dataclass(frozen=True, eq=False)
class FittedAdapters:
    """Methods that can answer, and what they have learnt from.

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
    """Which pictures there are, by content.

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
            FairTTAError: it is no folder, or there is no picture in it.
        """
        if not os.path.isdir(folder):
            raise FairTTAError(
                f"`reference` should be a folder of pictures (got {os.fspath(folder)!r})."
            )
        contents, sizes = set(), set()
        for path in images_below(folder):
            with suppress(OSError, ValueError, ImageError):  # it will be told when it is used
                if not isinstance(path, Unlisted):
                    file = read_image(ImageSource(path, path))
                    contents.add(file.content)
                    sizes.add(len(file.data))
        if not contents:
            raise FairTTAError(
                f"`reference` {os.fspath(folder)!r} has no picture that can be read."
            )
        return cls(Path(folder), frozenset(contents), frozenset(sizes))

    @property
    def name(self) -> str:
        """Of the folder, without the way to it."""
        return printable(self.folder.resolve().name)

    def shared(self, pictures: Iterable[ImageSource], *, is_allowed: bool) -> int:
        """How many pictures are in the folder too, byte for byte.

        Args:
            pictures: that are to be answered.
            is_allowed: whether this may be.

        Raises:
            FairTTAError: there are some, and they may not be.
        """
        found = sum(map(self._has, pictures))
        if found and not is_allowed:
            raise FairTTAError(
                f"`reference` {self.name!r} has {found} of the pictures that are to be answered: "
                "what a method has learnt of them flatters its answers. Take others, or allow it "
                "with `reference_is_data`."
            )
        return found

    def fit(
        self,
        classifier: FairTPTClassifier,
        adapters: Mapping[str, Adapter],
        *,
        shared: int | None = None,
        progress: Tell = lambda *_: None,
    ) -> FittedAdapters:
        """Fit the methods that need it on the pictures of the folder; others stay as they are.

        Features are made once for all methods and lie in a temporary file.

        Args:
            classifier: whose model and prompts they are for; its adapter does not matter.
            adapters: by their names.
            shared: of `shared`; None if it is not known what is to be answered.
            progress: is told how many pictures are finished.
        """
        names = [name for name, adapter in adapters.items() if not adapter.is_fitted]
        check_fittable(adapters)
        left_out: list[str] = []
        contents: list[str] = []
        with TemporaryFile() as file:
            sizes = []
            for loaded in self._batches(classifier, left_out):
                features = classifier.encode([one.image for one in loaded], with_views=False)[:, 0]
                classifier.vision.forget()  # nobody asks for these pictures again
                file.write(features.float().cpu().numpy().tobytes())
                sizes.append(len(features))
                contents += [one.content for one in loaded]
                progress(len(contents), None)
            dim = classifier.task.target_features.shape[1]

            def fit(method: Any) -> Any:
                return method.fit_encoded(classifier, _read_back(file, sizes, dim))

            fitted = {name: _fitted(adapter, fit) for name, adapter in adapters.items()}
        about = {
            "folder": self.name,
            "images": len(contents),
            "sha256": sha256(" ".join(sorted(contents)).encode()).hexdigest(),
            "left_out": len(left_out),
            "shared": shared,
            "methods": names,
        }
        told = f"{', '.join(names)}: fitted on {len(contents)} pictures of {self.name!r}"
        if shared is not None:
            told += f"; {shared or 'none'} of the pictures answered here are among them"
        if left_out:
            told += f"; {len(left_out)} could not be used"
        return FittedAdapters(fitted, (f"{told}.",), about, tuple(left_out))

    def _has(self, picture: ImageSource) -> bool:
        try:
            if os.stat(picture.source).st_size not in self.sizes:
                return False
            return read_image(picture).content in self.contents
        except (OSError, ValueError, ImageError):
            return False

    def _batches(
        self, classifier: FairTPTClassifier, left_out: list[str]
    ) -> Iterator[list[LoadedImage]]:
        loaded: list[LoadedImage] = []
        for path in images_below(self.folder):
            if isinstance(path, Unlisted):
                left_out.append(f"cannot look into the folder {path.path!r}: {path.reason}")
                continue
            try:
                loaded.append(load_source(classifier, ImageSource(path, path)))
            except ImageError as error:
                left_out.append(str(error))
            if len(loaded) == classifier.batch_size:
                yield loaded
                loaded = []
        if loaded:
            yield loaded


def check_fittable(adapters: Mapping[str, Adapter]) -> None:
    """Raise unless there is a method to be fitted, and all can be on pictures alone."""
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
                    f"{name!r} needs the sensitive values of its reference pictures, which a "
                    "folder does not tell: fit it in Python, `save` it, and write "
                    f"'{name}:reference=FILE'."
                )
            if not hasattr(part, "fit_encoded"):
                raise FairTTAError(f"{name!r} cannot be fitted on a folder: no `fit_encoded`.")


def fit_adapters(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    reference: str | os.PathLike[str] | None,
    pictures: Callable[[], Iterable[ImageSource]],
    *,
    reference_is_data: bool = False,
    progress: Tell = lambda *_: None,
) -> FittedAdapters:
    """Methods that can answer, or an error before any picture is answered.

    Args:
        classifier: its adapter does not matter.
        adapters: by their names; those that need a reference and have none are fitted.
        reference: a folder of pictures, None if all have what they need.
        pictures: that are to be answered.
        reference_is_data: whether some of them may be in the reference too.
        progress: is told how many pictures of the reference are finished.
    """
    fitted = [
        (name, part.checked_reference())
        for name, adapter in adapters.items()
        for part in adapter.parts
        if isinstance(part, FittedMethod) and part.is_fitted
    ]
    elsewhere = tuple(
        f"{name}: fitted elsewhere, on {learnt.images} pictures; "
        "whether some of them are answered here is not known."
        for name, learnt in fitted
    )
    if reference is None:
        found = FittedAdapters(dict(adapters), elsewhere)
    else:
        check_fittable(adapters)
        folder = ReferenceFolder.scan(reference)
        shared = folder.shared(pictures(), is_allowed=reference_is_data)
        found = folder.fit(classifier, adapters, shared=shared, progress=progress)
        found = replace(found, notes=(*found.notes, *elsewhere))
    for adapter in found.adapters.values():
        check_adapter(adapter, classifier.task)
    return found


def _fitted(adapter: Any, fit: Callable[[Any], Any]) -> Any:
    if isinstance(adapter, Chained):
        return Chained(_fitted(adapter.first, fit), _fitted(adapter.then, fit))
    return adapter if adapter.is_fitted else fit(adapter)


def _read_back(file: IO[bytes], sizes: Iterable[int], dim: int) -> Iterator[Tensor]:
    file.seek(0)
    for size in sizes:
        data = np.frombuffer(file.read(4 * size * dim), dtype=np.float32)
        yield torch.from_numpy(data.reshape(size, 1, dim).copy())
