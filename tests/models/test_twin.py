"""A twin has the numbers of a model and modules of its own."""

from __future__ import annotations

import threading
from typing import Any

import families
import pytest
import torch
from checks import picture
from internals import image_twin
from plain_towers import open_clip_resnet
from torch import Tensor, nn

from fair_tta.errors import TowerError
from fair_tta.models import TransformersBackend

BACKENDS: dict[str, Any] = {
    "clip": lambda: TransformersBackend(*families.seeded(families.clip)),
    "siglip": lambda: TransformersBackend(*families.seeded(families.siglip)),
    "blip": lambda: TransformersBackend(*families.seeded(families.blip)),
    "align": lambda: TransformersBackend(*families.seeded(families.align)),
    "open_clip ResNet": open_clip_resnet,
}


@pytest.mark.parametrize("name", BACKENDS)
def test_gives_the_features_of_the_model(name: str) -> None:
    backend = BACKENDS[name]()
    pixels = backend.preprocess([picture(0), picture(1)])
    backend.model.train()
    tower = backend.image_tower()
    with torch.no_grad():
        features = tower(pixels)
    backend.model.eval()
    # attention that needs no gradient takes a faster way
    torch.testing.assert_close(
        features, backend.encode_pixels(pixels), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_shares_numbers_and_nothing_else(name: str) -> None:
    backend = BACKENDS[name]()
    model, tower = backend.model.train(), backend.image_tower()
    assert not set(model.modules()) & set(tower.modules())
    assert not any(module.training for module in tower.modules())
    assert all(module.training for module in model.modules())
    addresses = {t.data_ptr() for t in (*model.parameters(), *model.buffers())}
    assert {t.data_ptr() for t in (*tower.parameters(), *tower.buffers())} <= addresses
    assert not any(parameter.requires_grad for parameter in tower.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_later_twin_notices_other_weights() -> None:
    backend = BACKENDS["clip"]()
    pixels = backend.preprocess([picture()])
    before = backend.encode_pixels(pixels)
    with torch.no_grad():
        backend.model.visual_projection.weight.mul_(-1)
        features = backend.image_tower()(pixels)
    torch.testing.assert_close(features, -before, rtol=0, atol=1e-5)


def test_modules_that_cannot_be_copied() -> None:
    model = nn.Linear(2, 2)
    model.lock = threading.Lock()  # type: ignore[assignment]

    def call(module: Any, pixels: Tensor) -> Tensor:
        features: Tensor = module(pixels)
        return features

    with pytest.raises(
        TowerError, match=r"its modules cannot be copied \(TypeError: cannot pickle"
    ):
        image_twin(model, call)
