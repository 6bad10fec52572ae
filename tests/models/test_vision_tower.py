"""Features of patches, of vision towers that have them."""

from __future__ import annotations

from typing import Any

import families
import families_open_clip
import numpy as np
import pytest
import torch
from checks import picture

from fair_tta import FairTTAError
from fair_tta.models import OpenClipBackend, TransformersBackend


def project(hidden: Any, norm: Any, matrix: Any) -> Any:
    """The last layer norm and the projection, in NumPy: ``[..., width] -> [..., dim]``."""
    x = hidden.detach().double().numpy()
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + norm.eps)
    x = x * norm.weight.detach().double().numpy() + norm.bias.detach().double().numpy()
    return x @ matrix.detach().double().numpy()


def tokens_of(module: Any, run: Any) -> Any:
    """What a module gave out when something ran."""
    outputs: list[Any] = []
    with torch.no_grad():
        handle = module.register_forward_hook(lambda _m, _i, out: outputs.append(out))
        run()
        handle.remove()
    return getattr(outputs[0], "last_hidden_state", outputs[0])


@pytest.mark.parametrize(
    "name", ["clip", "metaclip2", "altclip", "chinese_clip", "clipseg"]
)
def test_of_transformers(name: str) -> None:
    backend = TransformersBackend(*families.seeded(getattr(families, name)))
    pixels = backend.preprocess([picture(0), picture(1)])
    assert pixels is not None
    patches, vision = backend.encode_patches(pixels), backend.model.vision_model
    hidden = tokens_of(vision.encoder, lambda: backend.encode_pixels(pixels))
    expected = project(
        hidden, vision.post_layernorm, backend.model.visual_projection.weight.mT
    )
    np.testing.assert_allclose(patches.numpy(), expected[:, 1:], atol=1e-5)
    np.testing.assert_allclose(
        backend.encode_pixels(pixels).numpy(), expected[:, 0], atol=1e-5
    )


@pytest.mark.parametrize("pool", ["tok", "avg"])
def test_of_open_clip(pool: str) -> None:
    config = families_open_clip.shrunk("ViT-B-32")
    config["vision_cfg"]["pool_type"] = pool
    backend = OpenClipBackend(*families_open_clip.build(config))
    visual = backend.model.visual
    pixels = backend.preprocess([picture(0), picture(1)])
    assert pixels is not None
    patches = backend.encode_patches(pixels)
    hidden = tokens_of(visual.transformer, lambda: backend.encode_pixels(pixels))
    expected = project(hidden, visual.ln_post, visual.proj)
    np.testing.assert_allclose(patches.numpy(), expected[:, 1:], atol=1e-5)
    pooled = expected[:, 0] if pool == "tok" else expected[:, 1:].mean(1)
    np.testing.assert_allclose(backend.encode_pixels(pixels).numpy(), pooled, atol=1e-5)
    assert (visual.pool_type, visual.output_tokens) == (pool, False)  # the user's model


def test_of_blip() -> None:
    backend = TransformersBackend(*families.seeded(families.blip))
    pixels = backend.preprocess([picture(0)])
    assert pixels is not None
    hidden = tokens_of(
        backend.model.vision_model, lambda: backend.encode_pixels(pixels)
    )
    with torch.no_grad():
        expected = backend.model.vision_proj(hidden)
    torch.testing.assert_close(backend.encode_patches(pixels), expected[:, 1:])


@pytest.mark.parametrize("name", ["siglip", "siglip2", "align", "dual_encoder"])
def test_of_transformers_there_are_none(name: str) -> None:
    backend = TransformersBackend(*families.seeded(getattr(families, name)))
    with pytest.raises(
        FairTTAError, match=r"the vision tower of .* has no features of patches"
    ):
        backend.encode_patches(torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize("name", ["RN50", "coca_ViT-B-32"])
def test_of_open_clip_there_are_none(name: str) -> None:
    backend = OpenClipBackend(
        *families_open_clip.build(families_open_clip.shrunk(name))
    )
    with pytest.raises(
        FairTTAError, match=r"the vision tower of .* has no features of patches"
    ):
        backend.encode_patches(torch.zeros(1, 3, 32, 32))
