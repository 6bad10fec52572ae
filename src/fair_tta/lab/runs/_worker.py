"""Rows for a unit of images, and their cost.

**How time is billed**, here and nowhere else: a row costs its share of the time its method took for
the images of the unit, and its share of making and encoding the views that the method needs, or the
image alone. Shared work is billed in full to every method, so a method's cost does not depend on
which others ran with it. A method that needs the images themselves makes its own views, and that is
what it costs. Decoding is not billed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from threading import Lock
from typing import NamedTuple

import torch
from PIL.Image import Image
from torch import Tensor

from fair_tta._cache import Cache
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.images._batches import Decoder, Decoding
from fair_tta.images._stored import ImageSource
from fair_tta.lab.runs._image_files import ImageFile, read_image_bytes
from fair_tta.lab.runs._job import Job, Query, WorkUnit
from fair_tta.lab.runs._store import StoredRow
from fair_tta.prediction import Prediction

ImageRows = list[StoredRow] | str
"""The rows of an image in the order of the queries, or why it cannot be used."""

_NOT_THE_IMAGES_FAULT: tuple[type[Exception], ...] = (
    FairTTAError,
    MemoryError,
    torch.OutOfMemoryError,
)
if hasattr(torch, "AcceleratorError"):  # since torch 2.8
    _NOT_THE_IMAGES_FAULT += (torch.AcceleratorError,)


LoadedImage = ImageFile[Image]
_Upcoming = deque[Decoding[LoadedImage]]


class EncodedImage(NamedTuple):
    """Unit features ``[views, dim]`` of an image, and the seconds that they took."""

    features: Tensor
    seconds: float


class Worker:
    """Does units of a job, one after another; threads decode the images of those begun."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._classifiers: dict[int, FairTPTClassifier] = {}  # by question
        self._cache = Cache()  # of all questions together
        self._decoder = Decoder()
        # Guards the classifiers: a unit may begin while another is processed.
        self._lock = Lock()

    def close(self) -> None:
        """End the threads. Images that they have not begun are not decoded."""
        self._decoder.close()

    def begin(self, unit: WorkUnit) -> Callable[[], list[ImageRows]]:
        """Start decoding a unit, and return the function that processes it.

        Images are decoded in threads while another unit is processed, and stay in memory until
        then. The function returns the rows of each image, or why there are none. An image on which
        the model's own code fails is left out alone. A failure on each of several images, or for
        want of memory, is not the fault of an image and is raised.
        """
        # Where some rows are stored, it takes a look at the images to know which are missing:
        # that is work, and happens when the unit is processed.
        upcoming = None
        if not unit.missing or all(
            missing == frozenset(unit.queries) for missing in unit.missing
        ):
            upcoming = self._submit(unit)
        return lambda: self._finish(unit, upcoming)

    def _submit(self, unit: WorkUnit) -> _Upcoming:
        return submit_sources(self._decoder, self._first_classifier(unit), unit.images)

    def _finish(self, unit: WorkUnit, upcoming: _Upcoming | None) -> list[ImageRows]:
        """Process a unit, all images together unless they are large."""
        problems: dict[int, str] = {}
        queries = set(unit.queries)
        if upcoming is None:  # some rows are stored
            queries = self._queries_to_compute(unit, problems)
            upcoming = self._submit(unit) if queries else deque()
        rows: list[list[StoredRow]] = [[] for _ in unit.images]
        for loaded in loaded_batches(self._decoder, upcoming, count(), problems):
            self._process(unit, queries, loaded, problems, rows)
        return [problems.get(i) or image_rows for i, image_rows in enumerate(rows)]

    def _queries_to_compute(
        self, unit: WorkUnit, problems: dict[int, str]
    ) -> set[Query]:
        """Return the queries without a row for some readable image.

        Images are read only as far as that takes.
        """
        clf = self._first_classifier(unit)
        queries: set[Query] = set()
        for position, missing in enumerate(unit.missing or ()):
            # Nothing this image lacks is new, so it need not be read.
            if missing <= queries:
                continue
            try:
                load_source(clf, unit.images[position])
                queries |= missing
            except ImageError as error:
                problems[position] = str(error)
        return queries

    def _process(
        self,
        unit: WorkUnit,
        queries: set[Query],
        loaded: dict[int, LoadedImage],
        problems: dict[int, str],
        rows: list[list[StoredRow]],
    ) -> None:
        """Answer the queries for loaded images, and add to their rows and problems."""
        clf = self._first_classifier(unit)
        # Features are shared by the methods that need views, and by those that do not.
        encoded = {}
        for with_views in sorted(
            {self._needs_view_features(query) for query in queries}
        ):
            encoded[with_views] = self._encode(clf, loaded, with_views, problems)
        # Encoding may have found further images that cannot be used.
        usable = {
            position: image
            for position, image in loaded.items()
            if position not in problems
        }
        if usable:
            for query in unit.queries:
                if query in queries:
                    features = encoded[self._needs_view_features(query)]
                    answered = self._predict(unit, query, usable, features)
                    for position, row in zip(usable, answered, strict=True):
                        rows[position].append(row)
        clf._vision.forget()  # these images do not come again

    def _predict(
        self,
        unit: WorkUnit,
        query: Query,
        usable: dict[int, LoadedImage],
        encoded: dict[int, EncodedImage],
    ) -> list[StoredRow]:
        """Return the row of each usable image for one query."""
        adapter = self._job.adapters[query.adapter]
        clf = self._classifier(query.question, unit.seed).with_adapter(adapter)
        images = [image.data for image in usable.values()]
        needs_pixels = adapter.needs.pixels
        if adapter.needs.other_images:
            clf._batch_size = len(images)  # the unit is the batch, as in `predict`
        if needs_pixels:
            # Views left over from another method would make this one look cheaper.
            clf._vision.forget()
        start = time.perf_counter()
        if needs_pixels:
            predictions: Sequence[Prediction] = clf.predict(images)
        else:
            features = torch.stack([encoded[position].features for position in usable])
            predictions = clf._predict_encoded(features, images)
        seconds_per_image = (time.perf_counter() - start) / len(usable)

        rows = []
        for position, prediction in zip(usable, predictions, strict=True):
            image = usable[position]
            # Shared work is billed in full to every method, so a method's cost does not depend on
            # which others ran with it. Methods of pixels have encoded the image themselves.
            seconds = seconds_per_image
            if not needs_pixels:
                seconds += encoded[position].seconds
            key = self._job.key(unit, query, position, image.content)
            name = unit.images[position].name
            rows.append(StoredRow(key, name, image.signature, prediction, seconds))
        return rows

    def _encode(
        self,
        clf: FairTPTClassifier,
        loaded: dict[int, LoadedImage],
        with_views: bool,
        problems: dict[int, str],
    ) -> dict[int, EncodedImage]:
        """Return the features of loaded images by position, and their cost."""

        def encode(positions: Sequence[int]) -> list[EncodedImage]:
            start = time.perf_counter()
            images = [loaded[position].data for position in positions]
            features = clf.encode(images, with_views=with_views)
            _ = features.sum().item()  # waits until an accelerator is done
            seconds = (time.perf_counter() - start) / max(1, len(positions))
            return [EncodedImage(of_image, seconds) for of_image in features]

        return encode_each(loaded, encode, problems)

    def _needs_view_features(self, query: Query) -> bool:
        """Return whether the worker makes the features of all views for a method."""
        needs = self._job.adapters[query.adapter].needs
        return needs.views and not needs.pixels

    def _first_classifier(self, unit: WorkUnit) -> FairTPTClassifier:
        """Return a classifier to load and encode images, which do not depend on the question."""
        return self._classifier(unit.queries[0].question, unit.seed)

    def _classifier(self, question: int, seed: int) -> FairTPTClassifier:
        with self._lock:
            clf = self._classifiers.get(question)
            if clf is None:
                clf = self._job.classifier(question, self._cache)
                # Text features are computed before any clock runs.
                _ = clf._task.target_features, clf._task.sensitive_features
            # Text features do not depend on the seed of the views: the classifier is kept.
            if clf._vision.seed != seed:
                clf = clf.with_views(self._job.views, seed)
            self._classifiers[question] = clf
            return clf


def encode_each(
    loaded: Mapping[int, LoadedImage],
    encode: Callable[[Sequence[int]], list[EncodedImage]],
    problems: dict[int, str],
) -> dict[int, EncodedImage]:
    """Return features by position; images that the model cannot use become problems.

    Args:
        encode: positions to the features of these images, in their order.
    """
    positions = list(loaded)
    encoded: dict[int, EncodedImage] = {}
    failures: dict[int, str] = {}
    try:
        encoded = dict(zip(positions, encode(positions), strict=True))
    except _NOT_THE_IMAGES_FAULT:
        raise
    except Exception:
        # An image of odd shape may make the model's own code fail: try each one alone.
        for position in positions:
            try:
                (encoded[position],) = encode([position])
            except _NOT_THE_IMAGES_FAULT:
                raise
            except Exception as error:
                failures[position] = f"{type(error).__name__}: {error}"
        if len(failures) == len(positions) > 1:
            raise  # the fault is the program's

    not_finite = [
        position
        for position, image in encoded.items()
        if not image.features.isfinite().all()
    ]
    if len(not_finite) < len(encoded):  # otherwise the classifier raises an error
        for position in not_finite:
            failures[position] = "its features are not finite"
    for position, reason in failures.items():
        width, height = loaded[position].data.size
        problems[position] = (
            f"the model cannot use this image of {width} x {height} pixels ({reason})"
        )
    return encoded


def start_worker(
    job: Job, threads: int
) -> Callable[[WorkUnit], Callable[[], list[ImageRows]]]:
    """Return `Worker.begin` in another process, with this number of torch threads.

    An error that keeps it from starting is raised when its first unit begins: raised before, it
    would be lost.
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
    """Begin to load images, as far as the decoder has room."""
    return deque(
        decoder.submit(
            images, lambda image: load_source(clf, image), lambda image: image.source
        )
    )


def loaded_batches(
    decoder: Decoder,
    upcoming: _Upcoming,
    positions: Iterator[int],
    problems: dict[int, str],
) -> Iterator[dict[int, LoadedImage]]:
    """Yield images by position, all together unless they are large.

    Images that cannot be used become problems. A batch is emptied when the next is requested.
    """
    while upcoming:
        with decoder.take_batch(upcoming) as decodings:
            loaded: dict[int, LoadedImage] = {}
            for decoding in decodings:
                position = next(positions)
                try:
                    loaded[position] = decoding.result()
                except ImageError as error:
                    problems[position] = str(error)
            if loaded:
                yield loaded
            loaded.clear()


def load_source(clf: FairTPTClassifier, image: ImageSource) -> LoadedImage:
    """Read an image once, for its content and its pixels.

    Raises:
        ImageError: it cannot be used.
    """
    try:
        file = read_image_bytes(image)
        return LoadedImage(clf._vision.load(file.data), file.content, file.signature)
    except (OSError, ImageError):
        clf._vision.load(image.source)  # raises too, with the path of the file
        raise
