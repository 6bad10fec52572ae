"""Features of pictures: how many go through the vision tower at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from PIL import Image

import families
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from fair_tta import FairTPTClassifier
from fair_tta.backends import TransformersBackend
from fair_tta.vision import features


def test_pictures_alone_go_through_the_tower_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend: Any = TransformersBackend(*families.seeded(families.clip))
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE)
    images = [picture(seed) for seed in range(7)]
    expected = clf.encode(images, views=False)
    seen: list[int] = []
    own = backend.encode_images

    def counted(pictures: list[Image.Image]) -> torch.Tensor:
        seen.append(len(pictures))
        made: torch.Tensor = own(pictures)
        return made

    backend.encode_images = counted
    monkeypatch.setattr(features, "_VIEWS_AT_ONCE", 3)
    clf.vision.forget()
    torch.testing.assert_close(clf.encode(images, views=False), expected, rtol=0, atol=1e-5)
    assert seen == [3, 3, 1]
