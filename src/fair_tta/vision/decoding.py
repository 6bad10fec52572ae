"""Pictures in batches; files of a list are decoded while the batch before is worked on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any

from PIL import Image

from fair_tta.errors import ImageError

Load = Callable[[Any], Image.Image]
_THREADS = 8  # at most; decoders let others run meanwhile


@dataclass(frozen=True)
class LoadedBatch:
    """Pictures to work on together.

    Attributes:
        pictures: in their order.
        error: why the picture after these cannot be read, None if it is not known yet or can.
        upcoming: the pictures of the next batch, on their way.
    """

    pictures: list[Image.Image]
    error: ImageError | None = None
    upcoming: Sequence[Future[Image.Image]] = ()

    def settle(self) -> None:
        """Wait until no thread decodes, so that none runs while the caller's code does."""
        wait(self.upcoming)


def are_files(images: Any) -> bool:
    """Whether these are a list of paths or of bytes, which take time to decode."""
    return isinstance(images, list | tuple) and all(
        isinstance(image, str | os.PathLike | bytes | bytearray) for image in images
    )


def decoding_threads() -> ThreadPoolExecutor:
    """Threads that decode, as many as there is work and are useful; the caller ends them."""
    return ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1), "fair-tta-decode")


def in_turn(images: Iterable[Any], load: Load, size: int) -> Iterator[LoadedBatch]:
    """Batches of so many pictures, each loaded when its turn comes; none after one that fails."""
    pictures: list[Image.Image] = []
    for index, image in enumerate(images):
        try:
            pictures.append(load(image))
        except ImageError as error:
            yield LoadedBatch(pictures, _at(index, error))
            return
        if len(pictures) == size:
            yield LoadedBatch(pictures)
            pictures = []
    if pictures:
        yield LoadedBatch(pictures)


def ahead(images: Iterable[Any], load: Load, size: int) -> Iterator[LoadedBatch]:
    """The same, with one more batch in memory: the next, which threads decode meanwhile."""
    stream, start = iter(images), 0
    pool = decoding_threads()
    try:
        taken = list(islice(stream, size))
        upcoming = [pool.submit(load, image) for image in taken]
        while upcoming:
            pictures: list[Image.Image] = []
            for index, future in enumerate(upcoming):
                try:
                    pictures.append(_result(future, load, taken[index]))
                except ImageError as error:
                    wait(upcoming)
                    yield LoadedBatch(pictures, _at(start + index, error))
                    return
            start += len(upcoming)
            taken = list(islice(stream, size))
            upcoming = [pool.submit(load, image) for image in taken]
            yield LoadedBatch(pictures, None, upcoming)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _result(future: Future[Image.Image], load: Load, image: Any) -> Image.Image:
    """What a thread has loaded; read here if the caller's filters made a warning an error there."""
    try:
        return future.result()
    except ImageError as error:
        if not isinstance(error.__cause__, Warning):
            raise
    return load(image)


def _at(index: int, error: ImageError) -> ImageError:
    told = ImageError(f"image {index}: {error}")
    told.__cause__ = error
    return told
