"""Rows for a unit of images, and their cost.

**How time is billed**, here and nowhere else: a row costs its share of the time its method took for
the images of the unit, and its share of making and encoding what the method looks at, all views or
the image alone. Shared work is billed in full to every method, so a method's cost does not depend
on which others ran with it. A method that needs the images themselves makes all that it looks at,
and that is what it costs. Decoding is billed to nobody.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from threading import Lock

import torch
from PIL.Image import Image
from torch import Tensor

from fair_tta._cache import Cache
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.images._batches import Decoder, Decoding
from fair_tta.images._stored import ImageSource
from fair_tta.lab.runs._image_files import ImageFile, read_image
from fair_tta.lab.runs._job import Asked, Job, WorkUnit
from fair_tta.lab.runs._store import StoredRow
from fair_tta.methods._base import Adapter
from fair_tta.prediction import Prediction

ImageRows = list[StoredRow] | str
"""The rows of an image in the order of what is asked, or why it cannot be used."""

_NOT_THE_IMAGE: tuple[type[Exception], ...] = (
    FairTTAError,
    MemoryError,
    torch.OutOfMemoryError,
)
if hasattr(torch, "AcceleratorError"):  # since torch 2.8
    _NOT_THE_IMAGE += (torch.AcceleratorError,)


LoadedImage = ImageFile[Image]
_Upcoming = deque[Decoding[LoadedImage]]
_Encoded = tuple[Tensor, float]
"""Unit features ``[views, dim]`` of an image, and the seconds that they took."""


class Worker:
    """Does units of a job, one after another; threads decode the images of those begun."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._classifiers: dict[int, FairTPTClassifier] = {}  # by question
        self._cache = Cache()  # of all questions together
        self._decoder = Decoder()
        self._lock = (
            Lock()
        )  # of classifiers: a unit may begin while another is processed

    def close(self) -> None:
        """End the threads; what they have not begun to decode is left."""
        self._decoder.close()

    def begin(self, unit: WorkUnit) -> Callable[[], list[ImageRows]]:
        """Decode in threads while another unit is processed: this holds the images in memory.

        What is returned processes the unit: for each image the rows, or why there are none. An
        image that the model's own code fails on is left out alone. What fails with each of several
        images, or for want of memory, is not the fault of an image and is raised.
        """
        is_new = all(some == frozenset(unit.asked) for some in unit.missing or ())
        upcoming = self._submit(unit) if is_new else None
        return lambda: self._finish(unit, upcoming)

    def _submit(self, unit: WorkUnit) -> _Upcoming:
        return submit_sources(
            self._decoder, self._classifier(unit.asked[0][0], unit.seed), unit.images
        )

    def _finish(self, unit: WorkUnit, upcoming: _Upcoming | None) -> list[ImageRows]:
        """Process a unit, all images together unless they are large."""
        problems: dict[int, str] = {}
        asked = set(unit.asked)
        if upcoming is None:
            asked = self._wanted(unit, problems)
            upcoming = self._submit(unit) if asked else deque()
        rows: list[list[StoredRow]] = [[] for _ in unit.images]
        for loaded in loaded_portions(self._decoder, upcoming, count(), problems):
            self._process(unit, asked, loaded, problems, rows)
        return [problems.get(place) or made for place, made in enumerate(rows)]

    def _wanted(self, unit: WorkUnit, problems: dict[int, str]) -> set[Asked]:
        """What is missing for images that can be read; if it is nothing, no other is read."""
        clf = self._classifier(unit.asked[0][0], unit.seed)
        wanted: set[Asked] = set()
        for place, missing in enumerate(unit.missing or ()):
            try:
                if not missing <= wanted:
                    load_source(clf, unit.images[place])
                    wanted |= missing
            except ImageError as error:
                problems[place] = str(error)
        return wanted

    def _process(
        self,
        unit: WorkUnit,
        asked: set[Asked],
        loaded: dict[int, LoadedImage],
        problems: dict[int, str],
        rows: list[list[StoredRow]],
    ) -> None:
        """Add to rows and problems those of images that are loaded."""
        clf = self._classifier(unit.asked[0][0], unit.seed)
        looks = {_looks(self._job.adapters[adapter]) for _, adapter in asked}
        encoded = {views: self._encode(clf, loaded, views, problems) for views in looks}
        usable = {place: one for place, one in loaded.items() if place not in problems}
        for question, adapter in (one for one in unit.asked if one in asked and usable):
            of = encoded[_looks(self._job.adapters[adapter])]
            made = self._predict(unit, (question, adapter), usable, of)
            for place, row in zip(usable, made, strict=True):
                rows[place].append(row)
        clf._vision.forget()  # nobody asks for these images again

    def _predict(
        self,
        unit: WorkUnit,
        asked: Asked,
        usable: dict[int, LoadedImage],
        encoded: dict[int, _Encoded],
    ) -> list[StoredRow]:
        question, place = asked
        adapter = self._job.adapters[place]
        clf = self._classifier(question, unit.seed).with_adapter(adapter)
        is_own, images = adapter.needs.pixels, [one.data for one in usable.values()]
        if adapter.needs.other_images:
            clf._batch_size = len(
                images
            )  # the unit is the batch, as it is for `predict`
        if is_own:
            clf._vision.forget()  # or it would cost less after others that look at the same
        start = time.perf_counter()
        if is_own:
            predictions: Sequence[Prediction] = clf.predict(images)
        else:
            features = torch.stack([encoded[i][0] for i in usable])
            predictions = clf._predict_encoded(features, images)
        own = (time.perf_counter() - start) / len(usable)
        return [
            StoredRow(
                self._job.key(unit, asked, i, one.content),
                unit.images[i].name,
                one.signature,
                prediction,
                own if is_own else own + encoded[i][1],
            )
            for (i, one), prediction in zip(usable.items(), predictions, strict=True)
        ]

    def _encode(
        self,
        clf: FairTPTClassifier,
        loaded: dict[int, LoadedImage],
        views: bool,
        problems: dict[int, str],
    ) -> dict[int, _Encoded]:
        """Features of the images; those that the model cannot use become problems."""

        def encode(some: Sequence[int]) -> list[_Encoded]:
            start = time.perf_counter()
            features = clf.encode([loaded[i].data for i in some], with_views=views)
            _ = features.sum().item()  # an accelerator is done when it answers
            seconds = (time.perf_counter() - start) / max(1, len(some))
            return [(one, seconds) for one in features]

        return encode_each(loaded, encode, problems)

    def _classifier(self, question: int, seed: int) -> FairTPTClassifier:
        with self._lock:
            clf = self._classifiers.get(question)
            if clf is None:
                clf = self._job.classifier(question, self._cache)
                _ = (
                    clf._task.target_features,
                    clf._task.sensitive_features,
                )  # before any clock runs
            if clf._vision.seed != seed:
                clf = clf.with_views(self._job.views, seed)
            self._classifiers[question] = clf
            return clf


def encode_each(
    loaded: Mapping[int, LoadedImage],
    encode: Callable[[Sequence[int]], list[_Encoded]],
    problems: dict[int, str],
) -> dict[int, _Encoded]:
    """Features of images at these places; those that the model cannot use become problems."""
    places = list(loaded)
    found, failed = {}, {}
    try:
        found = dict(zip(places, encode(places), strict=True))
    except _NOT_THE_IMAGE:
        raise
    except Exception:  # an image of odd shape makes a model's own code fail
        for place in places:
            try:
                (found[place],) = encode([place])
            except _NOT_THE_IMAGE:
                raise
            except Exception as error:
                failed[place] = f"{type(error).__name__}: {error}"
        if len(failed) == len(places) > 1:
            raise  # not the images but the program
    finite = {p: bool(features.isfinite().all()) for p, (features, _) in found.items()}
    if any(finite.values()):  # else the classifier raises
        failed |= {
            p: "its features are not finite" for p, good in finite.items() if not good
        }
    for place, why in failed.items():
        size = "{} x {}".format(*loaded[place].data.size)
        problems[place] = f"the model cannot use this image of {size} pixels ({why})"
    return found


def _looks(adapter: Adapter) -> bool:
    """Whether features of all views are to be made for a method."""
    return adapter.needs.views and not adapter.needs.pixels


def start_worker(
    job: Job, threads: int
) -> Callable[[WorkUnit], Callable[[], list[ImageRows]]]:
    """Return `Worker.begin` in another process; with so many threads of torch.

    What keeps it from starting is raised when it is asked to work: raised before, it would be lost.
    """
    try:
        torch.set_num_threads(threads)
        job.load_here()
        return Worker(job).begin
    except FairTTAError as error:
        reason = str(error)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"

    def fail(_: WorkUnit) -> Callable[[], list[ImageRows]]:
        raise FairTTAError(f"a worker process cannot start: {reason}")

    return fail


def submit_sources(
    decoder: Decoder, clf: FairTPTClassifier, images: Iterable[ImageSource]
) -> _Upcoming:
    """Begin to load images, as there is room."""
    return deque(
        decoder.submit(
            images, lambda one: load_source(clf, one), lambda one: one.source
        )
    )


def loaded_portions(
    decoder: Decoder,
    upcoming: _Upcoming,
    places: Iterator[int],
    problems: dict[int, str],
) -> Iterator[dict[int, LoadedImage]]:
    """Images by their places, all together unless they are large; what cannot be used becomes a
    problem. They are let go when the next are asked for."""
    while upcoming:
        with decoder.take_batch(upcoming) as some:
            loaded: dict[int, LoadedImage] = {}
            for one in some:
                place = next(places)
                try:
                    loaded[place] = one.result()
                except ImageError as error:
                    problems[place] = str(error)
            if loaded:
                yield loaded
            loaded.clear()


def load_source(clf: FairTPTClassifier, image: ImageSource) -> LoadedImage:
    """Read an image once, for its content and its pixels; `ImageError` if it cannot be used."""
    try:
        file = read_image(image)
        return LoadedImage(clf._vision.load(file.data), file.content, file.signature)
    except (OSError, ImageError):
        clf._vision.load(image.source)  # raises too, with the path of the file
        raise
