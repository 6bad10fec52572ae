"""Small sparse autoencoders, as files."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor


def random_weights(dim: int, latents: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "bpre": (dim,),
        "encoder.weight": (latents, dim),
        "encoder.bias": (latents,),
    }
    shapes["decoder.weight"] = (dim, latents)
    return {
        name: 0.3 * torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
    }


def trained_weights(
    features: Tensor, latents: int, steps: int = 300
) -> dict[str, Tensor]:
    """Of an autoencoder that was trained on features ``[n, dim]`` with few latents at work."""
    weights = random_weights(features.shape[1], latents)
    weights["bpre"] = features.mean(0)
    for weight in weights.values():
        weight.requires_grad_()
    optimizer = torch.optim.Adam(weights.values(), lr=0.02)
    for _ in range(steps):
        h = (features - weights["bpre"]) @ weights["encoder.weight"].mT + weights[
            "encoder.bias"
        ]
        h = h.relu()
        again = h @ weights["decoder.weight"].mT + weights["bpre"]
        loss = (again - features).square().sum(1).mean() + 1e-3 * h.sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: weight.detach() for name, weight in weights.items()}


def saved(path: Path, weights: dict[str, Tensor]) -> str:
    save_file(weights, path)
    return str(path)
