"""Vision towers with other weights: which, their features and their gradients."""

from __future__ import annotations

import copy
from typing import Any

import families
import pytest
import torch
from checks import make_task, picture
from families_open_clip import OPEN_CLIP
from internals import ImageTower, is_norm_layer, tuned_weight_names, unit_features
from internals import weights_module as image_tower
from plain_towers import classifier, norm_parameters
from torch import Tensor, nn

from fair_tta import FairTPTClassifier
from fair_tta.errors import TowerError
from fair_tta.methods import Tent
from fair_tta.models import OpenClipBackend, TransformersBackend

FAMILIES = [
    pytest.param(kind, make, id=f"{kind.__name__}-{name}", marks=families.marks(name))
    for kind, known in (
        (TransformersBackend, families.TRANSFORMERS),
        (OpenClipBackend, OPEN_CLIP),
    )
    for name, make in known.items()
    if make is not families.siglip2
]


def clip(dtype: torch.dtype = torch.float64) -> Any:
    model, images, tokenizer = families.seeded(families.clip)
    return TransformersBackend(model.to(dtype), images, tokenizer)


def test_the_norm_layers_of_the_vision_tower_alone() -> None:
    backend = clip()
    names = tuned_weight_names(make_task(backend), False)
    expected = {id(p) for p in norm_parameters(backend.model)}
    parameters = dict(backend.model.named_parameters())
    assert {id(parameters[name.removeprefix("model.")]) for name in names} == expected
    assert all("vision_model" in name for name in names)


def test_all_weights_of_the_vision_tower() -> None:
    backend = clip()
    names = tuned_weight_names(make_task(backend), True)
    parameters = {f"model.{name}" for name, _ in backend.model.named_parameters()}
    assert set(names) == {
        n for n in parameters if "vision_model" in n or "visual_projection" in n
    }


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_gradient_is_that_of_a_copy(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """However few pictures are worked on at a time, also with a loss that couples them."""
    monkeypatch.setattr(image_tower, "views_per_pass", lambda _: at_once)
    backend = clip()
    tower = ImageTower.from_task(make_task(backend), False)
    pixels = backend.preprocess([picture(i) for i in range(5)])
    change = torch.randn(tower.start.shape, generator=torch.Generator().manual_seed(0))
    weights = tower.start + 0.1 * change

    def loss(features: Tensor) -> Tensor:
        return features.mean(0).square().sum() + features[0, 0] * features[-1, 1]

    tower_gradient = tower.gradient(weights, pixels, loss)
    model_copy = copy.deepcopy(backend.model).eval()
    parameters = dict(model_copy.named_parameters())
    chosen = [parameters[name.removeprefix("model.")] for name in tower.names]
    with torch.no_grad():
        for parameter, part in zip(
            chosen, weights.split([p.numel() for p in chosen]), strict=True
        ):
            parameter.copy_(part.view_as(parameter))
    output = model_copy.get_image_features(pixel_values=pixels.double())
    features = unit_features(
        output if isinstance(output, Tensor) else output.pooler_output
    )
    expected = torch.cat(
        [g.flatten() for g in torch.autograd.grad(loss(features), chosen)]
    )
    torch.testing.assert_close(tower_gradient, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        tower.encode(weights, pixels), features, rtol=1e-9, atol=1e-12
    )


def test_the_model_is_never_changed_not_even_meanwhile() -> None:
    """While other weights are in use, nobody else sees them."""
    backend = clip()
    tower = ImageTower.from_task(make_task(backend), False)
    pixels = backend.preprocess([picture()])
    expected = backend.encode_pixels(pixels)
    are_equal: list[bool] = []

    def ask(*_: Any) -> None:
        are_equal.append(torch.equal(backend.encode_pixels(pixels), expected))

    for module in tower.module.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_forward_hook(ask)
    assert not torch.equal(
        tower.encode(2 * tower.start, pixels), unit_features(expected)
    )
    assert len(are_equal) > 4
    assert all(are_equal)


@pytest.mark.parametrize(("kind", "make"), FAMILIES)
def test_every_family_that_takes_pixels(kind: Any, make: Any) -> None:
    """The answer moves, and the way from the model's own weights is the model's own way."""
    backend = kind(*families.seeded(make))
    task, pixels = make_task(backend), backend.preprocess([picture(0), picture(1)])
    tower = ImageTower.from_task(task, False)
    found = tower.encode(tower.start, pixels)
    torch.testing.assert_close(
        found, unit_features(backend.encode_pixels(pixels)), rtol=0, atol=1e-5
    )

    def loss(features: Tensor) -> Tensor:
        return task.log_probabilities(features, task.target_features)[:, 0].sum()

    gradient = tower.gradient(tower.start, pixels, loss)
    assert gradient.isfinite().all()
    assert gradient.norm() > 0


def test_what_counts_as_a_norm_layer() -> None:
    class RMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

    yes = (nn.LayerNorm(3), nn.BatchNorm2d(3), nn.GroupNorm(1, 3), RMSNorm())
    no = (nn.LayerNorm(3, elementwise_affine=False), nn.Linear(3, 3), nn.Identity())
    assert [is_norm_layer(layer) for layer in (*yes, *no)] == [True] * 4 + [False] * 3


class Wrapped:
    """Another backend that hands on what it does not have."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class NoTower(Wrapped):
    image_tower = None


class Shifted(Wrapped):
    def encode_pixels(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.inner.encode_pixels(pixels) + 1
        return features


class NoNorms(Wrapped):
    """A vision tower of one linear layer."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.linear = nn.Linear(3, 16, dtype=torch.float64)

    def image_tower(self) -> nn.Module:
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), self.linear)

    def encode_pixels(self, pixels: Tensor) -> Tensor:
        with torch.no_grad():
            features: Tensor = self.image_tower()(pixels.double())
            return features


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (NoTower, "there is no method `image_tower` that returns it"),
        (Shifted, "its features are not those of `encode_pixels`"),
        (NoNorms, "its features depend on no weights of norm layers"),
    ],
)
def test_a_tower_that_cannot_be_tuned_is_refused_at_once(
    wrap: Any, message: str
) -> None:
    with pytest.raises(
        TowerError,
        match=f"Tent tunes weights of the vision tower, which CLIPModel does not allow: {message}",
    ):
        FairTPTClassifier(wrap(clip()), ["cat", "dog"], adapter=Tent())
    assert FairTPTClassifier(wrap(clip()), ["cat", "dog"]).predict(picture()).label


def test_a_model_of_patches_is_refused() -> None:
    backend = TransformersBackend(*families.seeded(families.siglip2))
    with pytest.raises(
        TowerError, match="does not allow: it takes patches of any number, not pix"
    ):
        FairTPTClassifier(backend, ["cat", "dog"], adapter=Tent())


def test_half_precision_keeps_its_dtype_and_tunes_in_float32() -> None:
    _, clf = classifier(torch.bfloat16)
    tower = ImageTower.from_task(clf._task, False)
    assert tower.start.dtype == torch.float32
    assert tower.encode(tower.start, clf._vision.pixels(picture())).isfinite().all()
