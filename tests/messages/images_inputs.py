"""Inputs that are no images, no views and no features."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checks import picture
from internals import (
    DistortedViews,
    check_enlarged,
    fetch_image,
    load_image,
    stack_features,
)
from PIL import Image

from fair_tta import FairTPTClassifier, Features
from fair_tta.extend import AugMix

Case = Callable[[Path], object]


def load(image: Any) -> Case:
    return lambda _: load_image(image)


def pil(mode: str, value: Any) -> Case:
    return load(Image.new(mode, (3, 2), value))


def values(value: float, dtype: str) -> Case:
    array = np.zeros((3, 5, 6), dtype)
    array[1, 2, 3] = value
    return load(array)


def zeros(*shape: int, dtype: str = "uint8") -> Case:
    return load(np.zeros(shape, dtype))


def file(name: str, content: bytes) -> Case:
    def open_file(folder: Path) -> object:
        (folder / name).write_bytes(content)
        return load_image(folder / name)

    return open_file


def encoded(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def text_stream(folder: Path) -> object:
    (folder / "a.txt").write_text("hello")
    with (folder / "a.txt").open() as stream:
        return load_image(stream)  # type: ignore[arg-type]


class CustomViews:
    def __init__(self, arrays: Any, n: Any = 3) -> None:
        self.arrays = arrays
        self.n = n

    def __call__(self, image: Any, size: Any, generator: Any) -> Any:
        return self.arrays


@cache
def classifier() -> FairTPTClassifier:
    return FairTPTClassifier("miniature", ["circle", "star"], adapter="zero")


def views(custom: Any) -> Case:
    return lambda _: classifier().with_views(custom).predict(picture())


def view_arrays(arrays: Any, n: Any = 3) -> Case:
    return views(CustomViews(arrays, n))


def function(images: Any) -> Case:
    return views(lambda image, generator: images)


def features(array: Any) -> Case:
    return lambda _: Features(array)


def rows(*wrong: float) -> Any:
    array = np.ones((20, 2))
    array[3 : 3 + len(wrong)] = np.array(wrong)[:, None]
    return array


def unit_rows(array: Any, dim: int = 2) -> Case:
    return lambda _: Features(array)._unit(torch.zeros(1, dim))


def stack(*images: Any) -> Case:
    return lambda _: stack_features(images, torch.zeros(1, 2))


VIEWS = np.zeros((2, 64, 64, 3), np.float32)
TWO_ROWS = Features(np.ones((2, 2)))

CASES: dict[str, Case] = {
    "no such file": lambda folder: load_image(folder / "none.png"),
    "a directory": lambda folder: load_image(str(folder)),
    "an empty file": file("empty.jpg", b""),
    "a file of text": file("notes.jpg", b"not a picture"),
    "a file with values out of range": file(
        "depth.tiff", encoded(Image.new("F", (3, 2), 1000.0), "TIFF")
    ),
    "no bytes": load(b""),
    "an empty stream": load(io.BytesIO()),
    "a stream of text": text_stream,
    "a URL": load("https://a.b/c.png"),
    "a URL in capitals": load("HTTP://A.B/C.PNG"),
    "an empty path": load(""),
    "an image without pixels": load(Image.new("RGB", (0, 5))),
    "mode I below 0": pil("I", -1),
    "mode I above 16 bits": pil("I", 65536),
    "mode F out of range": pil("F", 255.5),
    "mode F that is not a number": pil("F", float("nan")),
    "a number": load(5),
    "a dict": load({"a": b"x"}),
    "a list": load([b"x"]),
    "normalised floats": values(-2.1, "float32"),
    "unscaled floats": values(255.0, "float16"),
    "slightly too large floats": values(1.002, "float64"),
    "floats that are not a number": values(float("nan"), "float32"),
    "infinite floats": values(float("inf"), "float16"),
    "integers above 255": values(256, "int64"),
    "negative integers": values(-1, "int8"),
    "a batch": zeros(2, 3, 5, 5),
    "no axis": zeros(),
    "one axis": zeros(7),
    "an axis of zero": zeros(3, 5, 0),
    "no channel axis": zeros(5, 6, 7),
    "complex numbers": zeros(5, 5, dtype="complex64"),
    "objects": zeros(5, 5, dtype="object"),
    "a tensor of another range": load(torch.full((3, 5, 6), 300.0)),
    "an image that is long and narrow": lambda _: check_enlarged(
        Image.new("RGB", (12_000, 1)), 224, "a"
    ),
    "a private address": lambda _: fetch_image("http://127.0.0.1:9/", 1.0),
    "no views": lambda _: AugMix(0),
    "half a view": lambda _: AugMix(2.5),  # type: ignore[arg-type]
    "no chains": lambda _: AugMix(width=0),
    "no severity": lambda _: AugMix(severity=0),
    "a severity that is not a number": lambda _: AugMix(severity=float("nan")),
    "an unknown renderer": lambda _: AugMix(8, render="gpu"),
    "no distorted views": lambda _: DistortedViews(0),
    "views that are a list": view_arrays([[1], [2, 3]]),
    "views that are None": view_arrays(None),
    "views of another shape": view_arrays(VIEWS[..., 0]),
    "views of objects": view_arrays(VIEWS.astype(object)),
    "views that are not a number": view_arrays(VIEWS + np.nan),
    "views of another range": view_arrays(VIEWS - 1e30),
    "an unknown number of views": view_arrays(VIEWS, None),
    "a negative number of views": view_arrays(VIEWS, -1),
    "a function that returns None": function(None),
    "a function that returns a path": function("x"),
    "a function that returns numbers": function([1]),
    "views that may be one image": views(np.zeros((64, 64, 3))),
    "views that are a word": views("augmix"),
    "a seed that is a word": lambda _: FairTPTClassifier(
        "miniature",
        ["circle", "star"],
        seed="x",  # type: ignore[arg-type]
    ),
    "features that are a list": features([[1.0]]),
    "one feature": features(np.ones(8)),
    "features of four dimensions": features(np.ones((2, 1, 1, 8))),
    "no features": features(np.ones((0, 8))),
    "features that are integers": features(np.ones((2, 8), np.int8)),
    "features that are integers of torch": features(torch.ones(2, 8).long()),
    "features that are words": features(np.ones((2, 8)).astype(str)),
    "features that are not finite": unit_rows(rows(np.nan, np.inf)),
    "features that are zero": unit_rows(rows(*[0.0] * 7)),
    "features of another dimension": unit_rows(rows(), 3),
    "features beside an image": stack(TWO_ROWS[0], "image.png"),
    "features of several dimensions": stack(TWO_ROWS[0], Features(np.ones((1, 3)))[0]),
}
