"""Images in, predictions out: loaded in batches, answered batch by batch, yielded in order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any

from fair_tta.errors import ImageError
from fair_tta.images._batches import (
    LoadedBatch,
    are_files,
    load_batches,
    load_batches_ahead,
)
from fair_tta.images._load import image_bar
from fair_tta.images._stored import ROWS_PER_CHUNK, Features
from fair_tta.images._vision import image_digest
from fair_tta.prediction import Prediction

Load = Callable[[Any], Any]
PredictBatch = Callable[[Sequence[Any]], list[Prediction]]
LogCost = Callable[[Iterable[Any], float], None]


def stream_predictions(
    images: Iterable[Any],
    load: Load,
    answer: PredictBatch,
    *,
    batch_size: int,
    progress: bool,
    skip_unreadable: bool,
    digests: list[str] | None,
    log_cost: LogCost,
) -> Iterator[Prediction | None]:
    """Yield a prediction for each image, at most one batch ahead of the caller.

    Args:
        images: images, or their `Features`.
        load: makes one of them ready to be encoded.
        answer: predicts a batch of loaded images.
        batch_size: images of a batch; more if they are rows of one feature each.
        progress: whether a progress bar is shown.
        skip_unreadable: whether None is yielded, with a warning, for an image that cannot be read.
        digests: takes the content digest of each image that could be read, if not None.
        log_cost: called after each batch with `images` and the seconds an image took so far.

    Raises:
        ImageError: an image cannot be read; the predictions before it have been yielded.
    """
    index = 0
    start = perf_counter()
    with image_bar(images, progress) as bar:
        for batch in _load_in_batches(images, load, batch_size, skip_unreadable):
            errors = [
                image if isinstance(image, ImageError) else None
                for image in batch.images
            ]
            readable = [
                image for image in batch.images if not isinstance(image, ImageError)
            ]
            if digests is not None:
                digests.extend(image_digest(image) for image in readable)
            predictions = answer(readable)
            # Nothing may hold the decoded images while the next batch is decoded.
            del readable
            batch.images.clear()
            batch.wait_for_decoding()

            bar.update(len(errors))
            if predictions:
                log_cost(images, (perf_counter() - start) / len(predictions))
            remaining = iter(predictions)
            for error in errors:
                if error is None:
                    yield next(remaining)
                else:
                    warnings.warn(f"image {index}: {error}", stacklevel=3)
                    yield None
                index += 1
            if batch.error is not None:
                raise batch.error


def _load_in_batches(
    images: Iterable[Any], load: Load, batch_size: int, skip_unreadable: bool
) -> Iterator[LoadedBatch]:
    """Yield batches; unreadable images are `ImageError` objects in them if they are skipped."""

    def load_or_error(image: Any) -> Any:
        try:
            return load(image)
        except ImageError as error:
            return error

    # Single rows are so cheap that the overhead of a small batch would dominate.
    if isinstance(images, Features) and images._views is None:
        batch_size = max(batch_size, ROWS_PER_CHUNK)
    batches = load_batches_ahead if are_files(images) else load_batches
    return batches(images, load_or_error if skip_unreadable else load, batch_size)
