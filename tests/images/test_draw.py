"""Who draws the views, and that answers hardly notice."""

from __future__ import annotations

import families
import pytest
import torch
from checks import picture
from internals import Renderer

from fair_tta import FairTPTClassifier, Zero
from fair_tta.extend import AugMix

CPU, OTHER = torch.device("cpu"), torch.device("meta")


def test_the_choice() -> None:
    assert AugMix().render is Renderer.AUTO
    assert AugMix(8, render="opencv") == AugMix(8, render=Renderer.OPENCV)
    for render, chosen in zip(
        Renderer, ((False, True), (False, False), (True, True)), strict=True
    ):
        assert (render.uses_tensors(CPU), render.uses_tensors(OTHER)) == chosen


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
