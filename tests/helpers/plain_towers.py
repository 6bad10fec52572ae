"""Tuning of vision towers, written plainly: a deep copy of the model and an optimiser of torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import families
import open_clip
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE
from torch import Tensor, nn

from fair_tta import FairTPTClassifier
from fair_tta.extend import AugMix
from fair_tta.models import OpenClipBackend, TransformersBackend


def classifier(
    dtype: torch.dtype = torch.float64, **options: Any
) -> tuple[Any, FairTPTClassifier]:
    """A tiny CLIP, with gains and shifts that are not all 1 and 0, and a classifier of it."""
    model, images, tokenizer = families.seeded(families.clip)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in norm_parameters(model):
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    backend = TransformersBackend(model.to(dtype), images, tokenizer)
    settings: dict[str, Any] = {"scale": 40.0, "views": AugMix(6), **options}
    return model, FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE, **settings)


def open_clip_resnet() -> Any:
    """With batch norms, whose statistics must stay as they are."""
    vision = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8}
    text = {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 32,
        "heads": 4,
        "layers": 1,
    }
    model = families.seeded(lambda: (open_clip.CLIP(16, vision, text),))[0]
    preprocess = open_clip.image_transform(32, is_train=False)
    return OpenClipBackend(model, preprocess, open_clip.SimpleTokenizer())


def norm_parameters(model: Any) -> list[nn.Parameter]:
    layers = [m for m in model.vision_model.modules() if isinstance(m, nn.LayerNorm)]
    return [parameter for layer in layers for parameter in layer.parameters()]


def log_probabilities(
    model: Any, pixels: Tensor, texts: Tensor, scale: float
) -> Tensor:
    output = model.get_image_features(pixel_values=pixels.to(texts.dtype))
    features = output if isinstance(output, Tensor) else output.pooler_output
    features = features / features.norm(dim=-1, keepdim=True)
    return torch.log_softmax(scale * features @ texts.T, -1)


def entropy(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(-1)


def tuned(
    model: Any,
    clf: FairTPTClassifier,
    image: Any,
    step: Callable[[Callable[[Tensor], Tensor], Tensor, Any, list[Any]], None],
    make_optimizer: Callable[[list[Any]], torch.optim.Optimizer],
    parameters: Callable[[Any], list[Any]] = norm_parameters,
    steps: int = 1,
) -> Tensor:
    """Probabilities of the image after steps that the caller takes with a copy of the model."""
    float64_model = copy.deepcopy(model).eval()
    texts, pixels = clf._task.target_features, clf._vision.pixels(image)
    chosen = parameters(float64_model)
    optimizer = make_optimizer(chosen)
    with torch.enable_grad():
        for _ in range(steps):
            step(
                lambda pixels: log_probabilities(
                    float64_model, pixels, texts, clf._task.scale
                ),
                pixels,
                optimizer,
                chosen,
            )
    with torch.no_grad():
        return log_probabilities(float64_model, pixels[:1], texts, clf._task.scale)[
            0
        ].exp()
