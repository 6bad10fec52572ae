"""Who draws the views, and that answers hardly notice."""

from __future__ import annotations

from typing import Any

import families
import pytest
import torch
from checks import picture

from fair_tta import AugMix, FairTPTClassifier, FairTTAError, Zero
from fair_tta._images.draw import uses_tensors
from fair_tta._images.views import CropFlip
from fair_tta.extend import Identity, Renderer

CPU, OTHER = torch.device("cpu"), torch.device("meta")


def test_the_choice() -> None:
    for views in (AugMix(8), CropFlip(8)):
        assert not uses_tensors(views, CPU)
        assert uses_tensors(views, OTHER)
    for render, chosen in ((Renderer.OPENCV, False), (Renderer.TENSORS, True)):
        for device in (CPU, OTHER):
            assert uses_tensors(AugMix(8, render=render), device) is chosen
    assert not uses_tensors(Identity(), OTHER)
    assert not uses_tensors(lambda image, generator: [image], OTHER)


@pytest.mark.parametrize("kind", [AugMix, CropFlip])
def test_a_bad_renderer(kind: Any) -> None:
    with pytest.raises(FairTTAError, match=r"`render` should be one of Renderer.AUTO, .*got 'gpu'"):
        kind(8, render="gpu")


@pytest.mark.parametrize("count", [1, 8])
def test_answers_do_not_depend_on_who_draws(count: int) -> None:
    model, *processor = families.seeded(families.clip)
    pictures = [picture(i, (40 + i % 2, 30)) for i in range(4)]
    answers = [
        FairTPTClassifier(
            (model, tuple(processor)), ["cat", "dog"], adapter=Zero(1.0), scale=30.0,
            views=AugMix(count, render=render),
        ).encode(pictures)
        for render in (Renderer.OPENCV, Renderer.TENSORS)
    ]  # fmt: skip
    assert float((answers[0] - answers[1]).abs().mean()) < 1e-3
