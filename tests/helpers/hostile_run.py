"""Every way in for a picture of a hundred bytes that preprocessing would make gigabytes of.

Run as a process of its own, whose address space is bounded: ``hostile_run.py FOLDER``. The last
line of stdout says by how many megabytes the memory has grown at most.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import families
import numpy as np
import torch
from internals import ImageInput
from PIL import Image

from fair_tta import FairTPTClassifier, ZeroShot
from fair_tta.errors import ImageError
from fair_tta.extend import AugMix
from fair_tta.models import resolve

ROOM = 2 << 30  # bytes that may be asked for; 12,000 x 1 pixels would need five
SIZE = 224


def models() -> dict[str, Any]:
    """The processors of transformers, the transforms of open_clip, and a backend of one's own."""
    import open_clip

    families.SIZE = SIZE
    parts = families.seeded(families.clip)
    model, images, tokenizer = parts
    vision = {
        "image_size": SIZE,
        "layers": 1,
        "width": 32,
        "patch_size": 32,
        "head_width": 8,
    }
    text = {
        "context_length": 16,
        "vocab_size": 49408,
        "width": 32,
        "heads": 4,
        "layers": 1,
    }
    mine = open_clip.CLIP(16, vision, text)
    transform = open_clip.image_transform(SIZE, is_train=False)
    return {
        "transformers": resolve(model, (images, tokenizer)),
        "open_clip": resolve(
            (mine, transform, open_clip.SimpleTokenizer(context_length=16))
        ),
        "own": Own(resolve(model, (images, tokenizer))),
    }


class Own:
    """A backend that says nothing of its preprocessing."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in ("preprocess", "encode_pixels"):
            raise AttributeError(name)
        return getattr(self._inner, name)


def refused(description: str, ask: Callable[[], object]) -> None:
    try:
        ask()
    except ImageError as error:
        assert "too long and narrow" in str(error), (description, error)
        assert "Crop the part that matters" in str(error), (description, error)
    else:
        raise AssertionError(f"{description}: not refused")


def python_api(folder: Path, backend: Any) -> None:
    names: tuple[Any, ...] = (["cat", "dog"], ["in", "on"], "a {target} {sensitive}.")
    clf = FairTPTClassifier(backend, *names, adapter=ZeroShot(), views=AugMix(4))
    whole, path = Image.new("RGB", (64, 64)), folder / "wide.png"
    wide_image = Image.open(path)
    inputs = {
        "PIL": wide_image,
        "path": path,
        "text": str(path),
        "bytes": path.read_bytes(),
        "file": path.open("rb"),
        "high": folder / "high.png",
        "turned": folder / "turned.jpg",
        "array": np.zeros((1, 12_000, 3), np.uint8),
        "tensor": torch.zeros(3, 12_000, 1),
    }
    for views in (False, True):
        mine = FairTPTClassifier(backend, *names, views=AugMix(4)) if views else clf
        for name, image in inputs.items():
            refused(name, partial(mine.predict, image))
        refused("list", partial(mine.predict, [whole, path]))
        refused("proba", partial(mine.predict_proba, [path]))
        refused("encode", partial(mine.encode, [path]))
        refused(
            "audit", partial(mine.audit, [whole, path], ["cat", "dog"], ["in", "on"])
        )
        both: list[ImageInput] = [whole, path]
        stream = mine.predict(iter(both))
        assert next(stream).label
        refused("stream", partial(next, stream))
        assert mine.predict(Image.new("RGB", (8000, 500))).label  # a panorama
        assert mine.predict(Image.new("RGB", (60, 3000))).label  # a long list
    for own in (lambda image, generator: [path], [Image.new("RGB", (12_000, 1))]):
        mine = FairTPTClassifier(backend, *names, views=own)
        refused("view", partial(mine.predict, whole))


def commands(folder: Path) -> None:
    from typer.testing import CliRunner

    from fair_tta.lab.cli import app

    model = ["--model", str(folder / "model"), "--views", "4"]

    def call(*arguments: str) -> Any:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 4, (result.output, result.exception)
        return result

    out = call(
        "predict", str(folder / "pics"), "--json", "--targets", "cat,dog", *model
    )
    rows = [json.loads(line) for line in out.stdout.splitlines()]
    assert [bool(row["error"]) for row in rows] == [False] * 8 + [True]
    labels = ["--target-column", "animal", "--sensitive-column", "place"]
    input_options = [
        "--images",
        str(folder / "pics"),
        "--labels",
        str(folder / "labels.csv"),
    ]
    call("audit", *input_options, *labels, "--out", str(folder / "out"), *model)
    assert "too long and narrow" in (folder / "out" / "problems.csv").read_text("utf-8")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    backends = models()
    clf = FairTPTClassifier(backends["open_clip"], ["a", "b"], views=AugMix(4))
    clf.predict(Image.new("RGB", (4000, 4000)))  # what a photo takes
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    before = peak()
    for backend in backends.values():
        python_api(folder, backend)
    commands(folder)
    print((peak() - before) // 1024)
