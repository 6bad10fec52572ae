"""Views made where the model is: those of the CPU up to rounding, each picture sent once."""

from __future__ import annotations

import copy
from typing import Any

import devices
import numpy as np
import pytest
import torch
from checks import picture
from devices import Pair
from internals import Renderer, content_generator, render_batch

from fair_tta import TPT, FairTPTClassifier, Zero, ZeroShot
from fair_tta.extend import AugMix

pytest_plugins = ("device_models",)

PICTURES = [
    picture(i, size) for i, size in enumerate([(52, 40), (33, 77), (52, 40), (90, 20)])
]
SIZE = (32, 24)


@pytest.mark.parametrize("views", [AugMix(16), AugMix(16, severity=6, width=2)])
def test_the_cpus_views(device: torch.device, views: Any) -> None:
    def generator(image: Any) -> np.random.Generator:
        return content_generator(image, 3)

    recipes = [views._draw_recipes(image, SIZE, generator(image)) for image in PICTURES]
    actual = render_batch(PICTURES, SIZE, recipes, device).cpu()
    for image, view in zip(PICTURES, actual, strict=True):
        expected = views(image, SIZE, generator(image)).transpose(0, 3, 1, 2)
        assert np.abs(view.numpy() - expected).mean() < 1


@pytest.mark.parametrize("model", ["CLIP", "SigLIP", "open_clip"])
@pytest.mark.parametrize("adapter", [TPT(), Zero()])
def test_the_cpus_answers(pairs: dict[str, Pair], model: str, adapter: Any) -> None:
    pair = pairs[model]
    on_cpu, on_device = (
        FairTPTClassifier(
            backend, ["cat", "dog"], adapter=adapter, views=AugMix(16), scale=30.0
        )
        for backend in (pair.cpu, pair.there)
    )
    difference = on_cpu.predict_proba(PICTURES) - on_device.predict_proba(PICTURES)
    assert np.abs(difference).max() < 1e-3


def test_every_picture_is_sent_once_as_it_is(
    pairs: dict[str, Pair], device: torch.device
) -> None:
    pictures = [picture(i, (200, 150)) for i in range(16)]
    clf = FairTPTClassifier(
        pairs["CLIP"].there, ["cat", "dog"], adapter=Zero(), views=AugMix(16)
    )
    clf.predict(pictures[:1])
    clf._vision.forget()
    with devices.Traffic(device) as traffic:
        clf.predict(pictures)
    bytes_per_image = 200 * 150 * 3
    first = 32 * 32 * 3 * 4  # view 0 as the model's own preprocessing makes it
    recipes = 15 * (
        4 * (5 + 4) + 9 * (8 + 24)
    )  # boxes, weights, rows and numbers of operations
    assert (
        16 * (bytes_per_image + first)
        <= traffic.uploaded
        <= 16 * (bytes_per_image + first + recipes) + 1000
    )


def test_one_view_is_all_that_goes_there_without_views(
    pairs: dict[str, Pair], device: torch.device
) -> None:
    clf = FairTPTClassifier(pairs["CLIP"].there, ["cat", "dog"], adapter=ZeroShot())
    clf.predict(picture(1))
    with devices.Traffic(device) as traffic:
        clf.predict([picture(i, (200, 150)) for i in range(16)])
    assert traffic.uploaded == 16 * 32 * 32 * 3 * 4


def test_pictures_may_be_preprocessed_there(
    pairs: dict[str, Pair], device: torch.device
) -> None:
    own: Any = pairs["CLIP"].there
    other_backend = copy.copy(own)
    other_backend.preprocess = lambda images: own.preprocess(images).to(device)
    first, second = (
        FairTPTClassifier(backend, ["cat", "dog"], adapter=Zero(), views=AugMix(8))
        for backend in (own, other_backend)
    )
    torch.testing.assert_close(
        second.encode(PICTURES).cpu(), first.encode(PICTURES).cpu()
    )


def test_views_of_the_cpu_can_be_asked_for(pairs: dict[str, Pair]) -> None:
    views = AugMix(8, render=Renderer.OPENCV)
    on_cpu, on_device = (
        FairTPTClassifier(backend, ["cat", "dog"], adapter=Zero(), views=views)
        for backend in (pairs["CLIP"].cpu, pairs["CLIP"].there)
    )
    torch.testing.assert_close(
        on_device.encode(PICTURES).cpu(), on_cpu.encode(PICTURES), rtol=0, atol=1e-5
    )
