"""Objects, strings and settings that are no models, and models that are damaged."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import families
import numpy as np
import torch
import transformers
from checks import picture
from families_open_clip import OPEN_CLIP
from internals import TextTable, advise_on_error, move
from torch import nn

from fair_tta import FairTPTClassifier
from fair_tta.extend import OnnxBackend
from fair_tta.models import TransformersBackend, resolve

Case = Callable[[Path], object]
NAMES: Any = (["circle", "square"], ["red", "blue"], "a {sensitive} {target}.")


@cache
def clip() -> Any:
    return families.seeded(families.clip)


@cache
def open_clip_parts() -> Any:
    return families.seeded(OPEN_CLIP["CLIP"])


def model(value: Any, processor: Any = None) -> Case:
    return lambda _: resolve(value, processor)


def open_clip_tuple(make: Callable[..., Any]) -> Case:
    return lambda _: resolve(make(*open_clip_parts()))


def miniature(**options: Any) -> Case:
    return lambda _: FairTPTClassifier("miniature", *NAMES, **options)


def clip_with(**options: Any) -> Case:
    def build(_: Path) -> object:
        model, *processor = clip()
        return FairTPTClassifier(model, *NAMES, processor=tuple(processor), **options)

    return build


class Unfinished:
    name = "unfinished"
    scale = 1.0

    def encode_images(self, images: Any) -> Any: ...


def another_head(folder: Path) -> object:
    model, images, tokenizer = clip()
    transformers.CLIPForImageClassification(model.config).save_pretrained(folder)
    transformers.CLIPProcessor(images, tokenizer).save_pretrained(folder)
    return resolve(folder)


def large_images(_: Path) -> object:
    model, _images, tokenizer = clip()
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 200_000})
    return resolve(model, (images, tokenizer))


def several_devices(_: Path) -> object:
    linear = nn.Linear(2, 2)
    linear.bias = nn.Parameter(torch.zeros(2, device="meta"))
    with advise_on_error(linear, "the tower"):
        raise RuntimeError("another device")


def without_torch_model(_: Path) -> None:
    move(TextOnly(), torch.device("cpu"))  # type: ignore[arg-type]


class TextOnly:
    name = "TextOnly"


def table(features: Any) -> Case:
    return lambda _: TextTable(features, 1.0)


def damaged_scale(_: Path) -> object:
    backend = TransformersBackend(*families.seeded(families.clip))
    backend.model.logit_scale.data.fill_(1e9)
    return backend.scale


CASES: dict[str, Case] = {
    "a number": model(3),
    "a class": model(TextTable),
    "a tuple of two": open_clip_tuple(lambda m, p, t: (m, p)),
    "a tuple without a tokenizer": open_clip_tuple(lambda m, p, t: (m, p, p)),
    "a tuple in another order": open_clip_tuple(lambda m, p, t: (p, m, t)),
    "a name instead of a tokenizer": open_clip_tuple(lambda m, p, t: (m, p, "ViT")),
    "an empty tuple": model(()),
    "a vision tower": open_clip_tuple(lambda m, p, t: m.visual),
    "a backend that lacks methods": model(Unfinished()),
    "a model without an origin": lambda _: resolve(clip()[0]),
    "a word as processor": lambda _: resolve(clip()[0], "processor"),
    "a processor beside another library's model": lambda _: resolve(
        open_clip_parts(), "processor"
    ),
    "a text tower without projection": lambda _: resolve(
        transformers.CLIPTextModel(clip()[0].config.text_config), clip()[1:]
    ),
    "a model with another head": another_head,
    "an image processor of large images": large_images,
    "a tokenizer of another library": lambda _: resolve(
        (*open_clip_parts()[:2], families.clip_tokenizer())
    ),
    "an unknown open_clip tokenizer": lambda _: resolve(OPEN_CLIP["SigLIP"]()[0]),
    "an unknown device": miniature(device="nix"),
    "a device without numbers": miniature(device="meta"),
    "an unknown dtype": miniature(dtype="int8"),
    "an unknown dtype of torch": miniature(dtype=torch.float8_e4m3fn),
    "a device for an object": clip_with(device="cpu"),
    "a dtype for an object": clip_with(dtype="bfloat16"),
    "a backend without a torch model": without_torch_model,
    "weights on several devices": several_devices,
    "a damaged logit scale": damaged_scale,
    "text features that are a list": table([1.0]),
    "no text features": table({}),
    "text features of two dimensions": table({"a": [1.0], "b": [1.0, 2.0]}),
    "text features that are matrices": table({"a": [[1.0]]}),
    "text features that are not finite": table({"a": [np.nan, 1.0]}),
    "text features that are zero": table({"a": [0.0, 0.0]}),
    "a prompt without text features": lambda _: TextTable(
        {"a cat": [1.0]}, 1.0
    ).tokenize(["a dog"]),
    "no ONNX file": lambda folder: OnnxBackend(
        folder / "none.onnx", picture, {"a": [1.0]}
    ),
}
