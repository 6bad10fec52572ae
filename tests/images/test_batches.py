"""Pictures in batches: order, memory, errors, and threads that end."""

from __future__ import annotations

import io
import threading
import time
import warnings
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest
from checks import picture
from internals import Decoder, are_files, load_batches, load_batches_ahead, load_image
from PIL import Image

from fair_tta import FairTPTClassifier
from fair_tta.errors import ImageError

BOTH = pytest.mark.parametrize("batches", [load_batches_ahead, load_batches])


def load(number: Any) -> Image.Image:
    """The smaller, the slower, so that later ones are done first."""
    time.sleep(0.02 if number % 4 == 0 else 0)
    if number == 11:
        raise ImageError("broken")
    return Image.new("L", (1 + number, 1))


@BOTH
@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_order_is_kept(batches: Any, count: int) -> None:
    batch_numbers = [
        [p.width - 1 for p in batch.images] for batch in batches(range(count), load, 4)
    ]
    assert [number for batch in batch_numbers for number in batch] == list(range(count))
    assert all(len(batch) == 4 for batch in batch_numbers[:-1])


@BOTH
def test_what_comes_before_an_error_is_not_lost(batches: Any) -> None:
    *earlier, last = batches(range(8, 30), load, 2)
    assert [len(batch.images) for batch in earlier] == [2]
    assert [p.width for p in last.images] == [11]
    assert str(last.error) == "image 3: broken"
    assert isinstance(last.error.__cause__, ImageError)


def test_no_more_than_one_batch_ahead() -> None:
    loaded: list[int] = []

    def note(number: int) -> Image.Image:
        loaded.append(number)
        return Image.new("L", (1, 1))

    before = set(threading.enumerate())  # other tests may have left some
    stream = load_batches_ahead(range(100), note, 5)
    for batches in (1, 2, 3):
        batch = next(stream)
        batch.wait_for_decoding()
        assert len(loaded) == 5 * (batches + 1)
    stream.close()  # type: ignore[attr-defined]
    assert not {t for t in threading.enumerate() if "decode" in t.name} - before


def test_ctrl_c_ends_the_threads() -> None:
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        for batch in load_batches_ahead(range(100), load, 2):
            assert batch.images
            raise KeyboardInterrupt
    del batch
    assert not {t for t in threading.enumerate() if "decode" in t.name} - before


def large_files(folder: Path, sizes: list[int]) -> list[Path]:
    for i, size in enumerate(sizes):
        Image.new("1", (size, 10)).save(folder / f"{i}.png")
    return [folder / f"{i}.png" for i in range(len(sizes))]


def test_large_images_wait_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 pixels, half may be worked on at once; one that is larger has all to itself."""
    monkeypatch.setattr("fair_tta.images._batches.MAX_DECODED_PIXELS", 100)
    paths = large_files(tmp_path, [2, 2, 1, 4, 30, 1, 1])
    alive = WeakValueDictionary[int, Image.Image]()
    most = [0]

    def note(path: Path) -> Image.Image:
        image = load_image(path)
        alive[id(image)] = image
        most[0] = max(
            most[0], sum(image.width * image.height for image in alive.values())
        )
        return image

    for batches in (load_batches_ahead, load_batches):
        widths = []
        for batch in batches(paths, note, 4):
            widths.append([image.width for image in batch.images])
            batch.wait_for_decoding()
            batch.images.clear()
        assert [width for batch_widths in widths for width in batch_widths] == [
            2,
            2,
            1,
            4,
            30,
            1,
            1,
        ]
        if batches is load_batches_ahead:
            assert widths == [[2, 2, 1], [4], [30], [1, 1]]
            assert most == [300]
    assert all(sum(batch_widths[:-1]) < 5 for batch_widths in widths), (
        "in turn a batch ends with what is too much"
    )


def test_images_that_are_needed_first_do_not_wait_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fair_tta.images._batches.MAX_DECODED_PIXELS", 100)
    paths = large_files(tmp_path, [30, 20, 4])
    with closing(Decoder()) as decoder:
        later = deque(decoder.submit(paths[:1], load_image))
        first = deque(decoder.submit(paths[1:], load_image))
        for upcoming, widths in ((first, [20]), (first, [4]), (later, [30])):
            with decoder.take_batch(upcoming) as decodings:
                assert [decoding.result().width for decoding in decodings] == widths


def test_large_images_have_the_answers_of_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = large_files(tmp_path, [20, 30, 40, 20, 20])
    clf = FairTPTClassifier("miniature", ["circle", "square"], batch_size=4)
    expected = clf.predict_proba(paths)
    features = clf.encode(paths, with_views=False)
    monkeypatch.setattr("fair_tta.images._batches.MAX_DECODED_PIXELS", 500)
    clf.forget()
    assert clf.predict_proba(paths) == pytest.approx(expected, abs=1e-4)
    clf.forget()
    assert clf.encode(paths, with_views=False) == pytest.approx(features, abs=1e-4)


def test_are_files(tmp_path: Path) -> None:
    assert are_files(["a.png", tmp_path, b"..."])
    assert not are_files([picture()])
    assert not are_files(iter(["a.png"]))  # somebody may still be making them
    assert not are_files("a.png")


def test_a_classifier_answers_files_as_it_answers_pictures(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for i, path in enumerate(paths):
        picture(i).save(path)
    clf = FairTPTClassifier("miniature", ["circle", "square"], batch_size=2)
    expected = clf.predict([picture(i) for i in range(5)])
    assert clf.predict(paths) == expected
    assert clf.predict([path.read_bytes() for path in paths]) == expected
    with pytest.raises(ImageError, match=r"image 2: .*nix"):
        clf.predict([*paths[:2], "nix.png"])


def test_a_thread_that_reads_leaves_the_filters_of_the_caller_alone() -> None:
    """They are those of all threads: what it takes back the caller would set again at the end."""
    reading, go_on = threading.Event(), threading.Event()
    data = io.BytesIO()
    picture().save(data, "PNG")

    class Slow(io.BytesIO):
        def read(self, *args: Any) -> bytes:
            reading.set()
            go_on.wait(10)
            return super().read(*args)

    before = list(warnings.filters)
    thread = threading.Thread(
        target=load_image, args=(Slow(data.getvalue()),), daemon=True
    )
    thread.start()
    assert reading.wait(10)
    with warnings.catch_warnings():  # as in user-defined views
        assert list(warnings.filters) == before
        go_on.set()
        thread.join(10)
        assert not thread.is_alive()
    assert list(warnings.filters) == before


@pytest.mark.parametrize("action", ["error", "ignore"])
def test_filters_of_the_caller_do_not_change_what_is_read(
    tmp_path: Path, action: Any
) -> None:
    """Here the EXIF data say which way up, and end too early, of which PIL warns."""
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x02\x01\x12\0\x03\0\0\0\x01\0\x06\0\0"
    picture(0, (52, 40)).save(tmp_path / "a.jpg", exif=exif)
    with (
        pytest.warns(UserWarning, match="EXIF"),
        Image.open(tmp_path / "a.jpg") as image,
    ):
        image.getexif()
    expected = load_image(tmp_path / "a.jpg")
    assert expected.size == (40, 52)
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        loaded = [
            image
            for batch in load_batches_ahead([tmp_path / "a.jpg"] * 3, load_image, 2)
            for image in batch.images
        ]
    assert loaded == [expected] * 3
