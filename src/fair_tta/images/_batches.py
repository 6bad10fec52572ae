"""Images in batches, bounded by pixels; files are decoded ahead, in threads."""

from __future__ import annotations

import contextlib
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count, islice
from threading import Lock
from typing import IO, Any, Generic, TypeVar, cast

from PIL import Image

from fair_tta._io import open_file
from fair_tta.errors import ImageError
from fair_tta.images._load import FORMATS, LimitedFile

Load = Callable[[Any], Image.Image]
T = TypeVar("T")
_THREADS = 8  # at most; decoders let others run meanwhile
MAX_DECODED_PIXELS = 2**27
"""Of decoded images that wait or are worked on, together, unless there is only one: half a gigabyte
as PIL holds them, and twice as much while they are decoded."""


@dataclass(eq=False)
class Decoding(Generic[T]):
    """An image on its way; it has no future yet if it waits for room."""

    source: Any
    load: Callable[[Any], T]
    pixels: int
    future: Future[T] | None = None

    def result(self) -> T:
        """What a thread has loaded; read here if the caller's filters made a warning an error."""
        future, self.future = self.future, None  # or it would keep the image
        assert future is not None
        try:
            return future.result()
        except ImageError as error:
            if not isinstance(error.__cause__, Warning):
                raise
        return self.load(self.source)


class Decoder:
    """Threads that decode files in order, as many at a time as `MAX_DECODED_PIXELS` allow."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(
            min(_THREADS, os.cpu_count() or 1), "fair-tta-decode"
        )
        self._waiting: deque[Decoding[Any]] = deque()
        self._pixels = 0  # of images that were begun and are not done with
        self._lock = Lock()

    def submit(
        self,
        sources: Iterable[Any],
        load: Callable[[Any], T],
        file: Callable[[Any], Any] = lambda one: one,
    ) -> list[Decoding[T]]:
        """Load these after those before; `file` finds the path or bytes of a source."""
        every = list(sources)
        sizes = self._threads.map(_count_pixels, map(file, every))
        new = [
            Decoding(one, load, pixels)
            for one, pixels in zip(every, sizes, strict=True)
        ]
        with self._lock:
            self._waiting += new
            self._begin()
        return new

    def _begin(self) -> None:
        while self._waiting:
            if (
                self._pixels
                and self._pixels + self._waiting[0].pixels > MAX_DECODED_PIXELS
            ):
                break
            self._start(self._waiting[0])

    def _start(self, one: Decoding[Any]) -> None:
        self._waiting.remove(one)
        self._pixels += one.pixels
        one.future = self._threads.submit(one.load, one.source)

    @contextlib.contextmanager
    def take_batch(self, upcoming: deque[Decoding[T]]) -> Iterator[list[Decoding[T]]]:
        """Take the next images to work on together: all, or as many as half the pixels allow.

        Which these are depends on their sizes alone. Let go of them at the end, when the next ones
        are begun.
        """
        some = [upcoming.popleft()]
        pixels = some[0].pixels
        while upcoming and pixels + upcoming[0].pixels <= MAX_DECODED_PIXELS // 2:
            some.append(upcoming.popleft())
            pixels += some[-1].pixels
        with self._lock:
            for one in some:
                if (
                    one.future is None
                ):  # others were submitted before, and are needed later
                    self._start(one)
        yield some
        with self._lock:
            self._pixels -= pixels
            self._begin()

    def close(self) -> None:
        """End the threads; what they have not begun to decode is left."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def _count_pixels(source: Any) -> int:
    """Of a file, by its first bytes; 0 if it cannot be read, which loading it will explain."""
    is_data = isinstance(source, bytes | bytearray)
    if not is_data and not isinstance(source, str | os.PathLike):
        return 0
    try:
        opened: IO[bytes] = io.BytesIO(source) if is_data else open_file(source)
        metered = LimitedFile(cast(io.RawIOBase, opened))
        with opened, metered, Image.open(metered, formats=FORMATS) as image:
            return image.width * image.height
    except Exception:  # on broken data PIL may raise nearly anything
        return 0


@dataclass(frozen=True)
class LoadedBatch:
    """Images to work on together, in their order."""

    images: list[Image.Image]
    error: ImageError | None = None
    """Why the image after these cannot be read; None if it can, or is not known yet."""
    upcoming: Sequence[Future[Image.Image]] = ()
    """The images of the next batch, on their way."""

    def wait_for_decoding(self) -> None:
        """Wait until no thread decodes, so that none runs while the caller's code does."""
        wait(self.upcoming)


def are_files(images: Any) -> bool:
    """Whether these are a list of paths or of bytes, which take time to decode."""
    return isinstance(images, list | tuple) and all(
        isinstance(image, str | os.PathLike | bytes | bytearray) for image in images
    )


def load_batches(images: Iterable[Any], load: Load, size: int) -> Iterator[LoadedBatch]:
    """Batches of `size` images, or of fewer that are large, each loaded when its turn comes; none
    after one that fails."""
    loaded: list[Image.Image] = []
    pixels = 0
    for index, image in enumerate(images):
        try:
            loaded.append(load(image))
        except ImageError as error:
            yield LoadedBatch(loaded, _at(index, error))
            return
        if isinstance(loaded[-1], Image.Image):  # not a stored feature, nor an error
            pixels += loaded[-1].width * loaded[-1].height
        if len(loaded) == size or pixels >= MAX_DECODED_PIXELS // 2:
            yield LoadedBatch(loaded)
            loaded, pixels = [], 0
    if loaded:
        yield LoadedBatch(loaded)


def load_batches_ahead(
    images: Iterable[Any], load: Load, size: int
) -> Iterator[LoadedBatch]:
    """The same, with one more batch in memory: the next, which threads decode meanwhile."""
    stream, decoder, number = iter(images), Decoder(), count()
    try:
        upcoming = deque(decoder.submit(islice(stream, size), load))
        while upcoming:
            with decoder.take_batch(upcoming) as some:
                loaded: list[Image.Image] = []
                for one in some:
                    index = next(number)
                    try:
                        loaded.append(one.result())
                    except ImageError as error:
                        wait([one.future for one in (*some, *upcoming) if one.future])
                        yield LoadedBatch(loaded, _at(index, error))
                        return
                upcoming += decoder.submit(islice(stream, size - len(upcoming)), load)
                yield LoadedBatch(
                    loaded, None, [one.future for one in upcoming if one.future]
                )
    finally:
        decoder.close()


def _at(index: int, error: ImageError) -> ImageError:
    placed = ImageError(f"image {index}: {error}")
    placed.__cause__ = error
    return placed
