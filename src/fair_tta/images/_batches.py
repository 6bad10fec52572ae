"""Images in batches, bounded by pixels; files are decoded ahead, in threads."""

from __future__ import annotations

import contextlib
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import IO, Any, Generic, TypeVar, cast

from PIL import Image

from fair_tta._io import open_file
from fair_tta.errors import ImageError
from fair_tta.images._load import FORMATS, LimitedFile

Load = Callable[[Any], Image.Image]
T = TypeVar("T")
_MAX_THREADS = 8  # decoders release Python's lock, so threads run side by side
MAX_DECODED_PIXELS = 2**27
"""Pixels of decoded images that wait or are in use, unless there is only one such image.

Half a gigabyte as PIL holds them, and twice as much while they are decoded.
"""


@dataclass(eq=False)
class Decoding(Generic[T]):
    """An image that a thread decodes; it has no future while it waits for room."""

    source: Any
    load: Callable[[Any], T]
    pixels: int
    future: Future[T] | None = None

    def result(self) -> T:
        """Return what a thread has loaded, once: the image is not kept here."""
        future = self.future
        self.future = None
        assert future is not None
        try:
            return future.result()
        except ImageError as error:
            if not isinstance(error.__cause__, Warning):
                raise
        # The caller's filters turned a warning into an error, in the threads too. Warnings can
        # be ignored in the main thread only.
        return self.load(self.source)


class Decoder:
    """Threads that decode files in order, as many at a time as `MAX_DECODED_PIXELS` allows."""

    def __init__(self) -> None:
        threads = min(_MAX_THREADS, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(threads, "fair-tta-decode")
        self._waiting: deque[Decoding[Any]] = deque()
        self._pixels = 0  # of images that were started and are still in use
        self._lock = Lock()

    def submit(
        self,
        sources: Iterable[Any],
        load: Callable[[Any], T],
        file: Callable[[Any], Any] = lambda source: source,
    ) -> list[Decoding[T]]:
        """Queue sources; `file` returns the path or the bytes of a source."""
        source_list = list(sources)
        files = [file(source) for source in source_list]
        pixel_counts = self._threads.map(_count_pixels, files)
        decodings = [
            Decoding(source, load, pixels)
            for source, pixels in zip(source_list, pixel_counts, strict=True)
        ]
        with self._lock:
            self._waiting += decodings
            self._start_waiting()
        return decodings

    def _start_waiting(self) -> None:
        """Start what fits; a single image fits always."""
        while self._waiting:
            pixels = self._pixels + self._waiting[0].pixels
            if self._pixels and pixels > MAX_DECODED_PIXELS:
                break
            self._start(self._waiting[0])

    def _start(self, decoding: Decoding[Any]) -> None:
        self._waiting.remove(decoding)
        self._pixels += decoding.pixels
        decoding.future = self._threads.submit(decoding.load, decoding.source)

    @contextlib.contextmanager
    def take_batch(self, upcoming: deque[Decoding[T]]) -> Iterator[list[Decoding[T]]]:
        """Take the next images to work on together: all, or as many as half the pixels allow.

        The batch depends on the sizes of the images alone. Drop the images when the block ends:
        the next ones are started then.
        """
        batch = [upcoming.popleft()]
        pixels = batch[0].pixels
        while upcoming and pixels + upcoming[0].pixels <= MAX_DECODED_PIXELS // 2:
            batch.append(upcoming.popleft())
            pixels += batch[-1].pixels
        # Those that still wait go first now: all others are needed later.
        with self._lock:
            for decoding in batch:
                if decoding.future is None:
                    self._start(decoding)
        yield batch
        with self._lock:
            self._pixels -= pixels
            self._start_waiting()

    def close(self) -> None:
        """End the threads without decoding what has not been started."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def _count_pixels(source: Any) -> int:
    """Return the pixels of a file by its header; 0 if it cannot be read, so that loading fails."""
    is_bytes = isinstance(source, bytes | bytearray)
    if not is_bytes and not isinstance(source, str | os.PathLike):
        return 0
    try:
        file: IO[bytes] = io.BytesIO(source) if is_bytes else open_file(source)
        limited = LimitedFile(cast(io.RawIOBase, file))
        with file, limited, Image.open(limited, formats=FORMATS) as image:
            return image.width * image.height
    except Exception:  # on broken data PIL may raise nearly anything
        return 0


@dataclass(frozen=True)
class LoadedBatch:
    """Images to work on together, in their order."""

    images: list[Image.Image]
    error: ImageError | None = None
    """The reason why the image after these cannot be read; None if it can or is not known yet."""
    upcoming: Sequence[Future[Image.Image]] = ()
    """The images of the next batch, which threads decode."""

    def wait_for_decoding(self) -> None:
        """Wait until no thread decodes, so that none runs while the caller's code does."""
        wait(self.upcoming)


def are_files(images: Any) -> bool:
    """Return whether these are a list of paths or of bytes, which take time to decode."""
    return isinstance(images, list | tuple) and all(
        isinstance(image, str | os.PathLike | bytes | bytearray) for image in images
    )


def load_batches(images: Iterable[Any], load: Load, size: int) -> Iterator[LoadedBatch]:
    """Yield batches of `size` images, or of fewer large ones, each loaded when its turn comes.

    A batch with an error is the last one.
    """
    loaded: list[Image.Image] = []
    pixels = 0
    for index, image in enumerate(images):
        try:
            loaded.append(load(image))
        except ImageError as error:
            yield LoadedBatch(loaded, _with_index(index, error))
            return
        if isinstance(loaded[-1], Image.Image):  # not a stored feature
            pixels += loaded[-1].width * loaded[-1].height
        if len(loaded) == size or pixels >= MAX_DECODED_PIXELS // 2:
            yield LoadedBatch(loaded)
            loaded = []
            pixels = 0
    if loaded:
        yield LoadedBatch(loaded)


def load_batches_ahead(
    images: Iterable[Any], load: Load, size: int
) -> Iterator[LoadedBatch]:
    """Yield the batches of `load_batches`, while threads decode the next one."""
    stream = iter(images)
    decoder = Decoder()
    index = 0
    try:
        upcoming = deque(decoder.submit(islice(stream, size), load))
        while upcoming:
            with decoder.take_batch(upcoming) as batch:
                loaded: list[Image.Image] = []
                for decoding in batch:
                    try:
                        loaded.append(decoding.result())
                    except ImageError as error:
                        wait(_futures([*batch, *upcoming]))
                        yield LoadedBatch(loaded, _with_index(index, error))
                        return
                    index += 1
                upcoming += decoder.submit(islice(stream, size - len(upcoming)), load)
                yield LoadedBatch(loaded, None, _futures(upcoming))
    finally:
        decoder.close()


def _futures(decodings: Iterable[Decoding[T]]) -> list[Future[T]]:
    return [decoding.future for decoding in decodings if decoding.future]


def _with_index(index: int, error: ImageError) -> ImageError:
    numbered = ImageError(f"image {index}: {error}")
    numbered.__cause__ = error
    return numbered
