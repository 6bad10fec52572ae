"""What preprocessing does to pixels is either known, or left to the preprocessing itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import families
import numpy as np
import open_clip
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from families_open_clip import OPEN_CLIP
from internals import PixelSpec
from PIL import Image, ImageOps

from fair_tta import FairTPTClassifier
from fair_tta.extend import AugMix

Change = Callable[[Image.Image], Image.Image]


def gamma(image: Image.Image) -> Image.Image:
    return Image.fromarray(
        (255 * (np.asarray(image) / 255) ** 1.2).round().astype(np.uint8)
    )


FIRST: dict[str, Change] = {
    "grey": lambda image: image.convert("L").convert("RGB"),
    "bgr": lambda image: Image.fromarray(np.asarray(image)[..., ::-1].copy()),
    "gamma": gamma,
    "contrast": ImageOps.autocontrast,
}


def parts_with(first: Change | None = None) -> Any:
    model, preprocess, tokenizer = families.seeded(OPEN_CLIP["CLIP"])
    if first is None:
        return model, preprocess, tokenizer
    return model, lambda image: preprocess(first(image)), tokenizer


@pytest.mark.parametrize("name", FIRST)
def test_every_view_goes_through_the_whole_preprocessing(name: str) -> None:
    clf = FairTPTClassifier(
        parts_with(FIRST[name]), TARGETS, SENSITIVE, TEMPLATE, views=AugMix(4)
    )
    assert PixelSpec.from_backend(clf._backend) is None

    def as_images(
        image: Image.Image, generator: np.random.Generator
    ) -> list[Image.Image]:
        arrays = AugMix(4)(image, (224, 224), generator)
        return [Image.fromarray(array.round().astype(np.uint8)) for array in arrays]

    ours, theirs = (
        clf.encode([picture()]),
        clf.with_views(as_images).encode([picture()]),
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("resize", ["shortest", "longest", "squash"])
def test_levels_become_what_preprocessing_makes_of_them(resize: str) -> None:
    model, _, tokenizer = parts_with()
    preprocess = open_clip.image_transform(
        32,
        is_train=False,
        mean=(0.1, 0.2, 0.3),
        std=(0.5, 0.4, 0.3),
        resize_mode=resize,
    )
    clf = FairTPTClassifier(
        (model, preprocess, tokenizer), TARGETS, SENSITIVE, TEMPLATE
    )
    spec = PixelSpec.from_backend(clf._backend)
    assert spec is not None
    assert spec.size == (32, 32)
    image = picture(0, (32, 32))
    levels = torch.from_numpy(np.array(image, dtype=np.float32)).permute(2, 0, 1)
    torch.testing.assert_close(
        spec.normalise(levels), preprocess(image), rtol=0, atol=1e-5
    )
