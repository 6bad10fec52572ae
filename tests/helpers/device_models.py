"""Fixtures of `on_device`: models on the CPU and on the second device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import devices
import families
import open_clip
import pytest
import torch
from devices import Pair

from fair_tta.models import resolve


def _open_clip() -> tuple[Any, Any, Any]:
    vision = {
        "image_size": 32,
        "layers": 2,
        "width": 32,
        "patch_size": 8,
        "head_width": 8,
    }
    text = {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 32,
        "heads": 4,
        "layers": 2,
    }
    preprocess = open_clip.image_transform(32, is_train=False)
    return open_clip.CLIP(16, vision, text), preprocess, open_clip.SimpleTokenizer()


BUILD: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "CLIP": families.clip,
    "SigLIP": families.siglip,
    "SigLIP 2": families.siglip2,
    "open_clip": _open_clip,
}


@pytest.fixture(scope="session")
def models() -> dict[str, tuple[Any, ...]]:
    """All models on the CPU, twice, built before there is a second device."""
    built = {name: families.seeded(build) for name, build in BUILD.items()}
    return {name: (parts, copy.deepcopy(parts[0])) for name, parts in built.items()}


@pytest.fixture(scope="session")
def device(models: dict[str, tuple[Any, ...]]) -> torch.device:
    return devices.open_device()


@pytest.fixture(scope="session")
def pairs(models: dict[str, tuple[Any, ...]], device: torch.device) -> dict[str, Pair]:
    """Backends of each model, on the CPU and on the device."""
    pairs = {}
    for name, (parts, device_model) in models.items():
        moved = device_model.to(device)
        if name == "open_clip":
            pairs[name] = Pair(resolve(parts), resolve((moved, *parts[1:])))
        else:
            pairs[name] = Pair(resolve(parts[0], parts[1:]), resolve(moved, parts[1:]))
    return pairs
