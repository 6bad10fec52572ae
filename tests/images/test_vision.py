"""Features of images and of their views: batches, the cache, and views of any kind."""

from __future__ import annotations

from typing import Any

import families
import numpy as np
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from internals import vision_module
from PIL import Image

from fair_tta import TPT, FairTPTClassifier, FairTTAError, Zero
from fair_tta.extend import AugMix, Cache
from fair_tta.models import TransformersBackend


def test_images_go_through_the_tower_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend: Any = TransformersBackend(*families.seeded(families.clip))
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE)
    images = [picture(seed) for seed in range(7)]
    expected = clf.encode(images, with_views=False)
    sizes: list[int] = []
    encode_images = backend.encode_images

    def counted(batch: list[Image.Image]) -> Any:
        sizes.append(len(batch))
        return encode_images(batch)

    backend.encode_images = counted
    monkeypatch.setattr(vision_module, "_VIEWS_PER_PASS_ON_CPU", 3)
    clf._vision.forget()
    features = clf.encode(images, with_views=False)
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-5)
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize("with_views", [True, False])
def test_the_cache_holds_no_more_of_a_batch_than_its_entries(with_views: bool) -> None:
    backend = TransformersBackend(*families.seeded(families.clip))
    cache = Cache(5000)
    clf = FairTPTClassifier(
        backend, TARGETS, SENSITIVE, TEMPLATE, adapter=Zero(), views=AugMix(4), cache=cache
    )  # fmt: skip
    clf.encode([picture(seed) for seed in range(12)], with_views=with_views)
    cached = [features for features, _ in cache._entries.values()]
    assert 0 < len(cached) < 12
    storages = {features.untyped_storage().data_ptr(): features for features in cached}
    held = sum(features.untyped_storage().nbytes() for features in storages.values())
    assert held == sum(features.nbytes for features in cached) < cache.limit


class CustomViews:
    def __init__(self, arrays: Any, n: Any = 3) -> None:
        self.arrays = arrays
        self.n = n

    def __call__(self, image: Image.Image, size: Any, generator: Any) -> Any:
        return self.arrays


@pytest.fixture(scope="module")
def clf() -> FairTPTClassifier:
    return FairTPTClassifier("miniature", ["circle", "star"], adapter=TPT())


def test_arrays_of_any_dtype_and_number_are_views(clf: FairTPTClassifier) -> None:
    for dtype in (np.uint8, np.int64, np.float64):
        arrays = np.full((2, 64, 64, 3), 255, dtype)
        clf.with_views(CustomViews(arrays)).predict(picture())
    clf.with_views(CustomViews(np.zeros((0, 64, 64, 3)), 1)).predict(picture())


@pytest.mark.parametrize("shape", [(1, 64, 64), (4, 64, 64), (64, 64, 3), (64, 64, 1)])
@pytest.mark.parametrize("kind", [torch.rand, np.zeros])
def test_one_image_is_no_views(shape: tuple[int, ...], kind: Any) -> None:
    with pytest.raises(FairTTAError, match="could be one image"):
        FairTPTClassifier("miniature", ["circle", "star"], views=kind(shape))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_views_of_several_sizes_are_views(clf: FairTPTClassifier) -> None:
    nested = torch.nested.nested_tensor([torch.rand(3, 64, 64), torch.rand(3, 32, 48)])
    assert clf.with_views(nested)._vision.count == 3
    grey = torch.nested.nested_tensor([torch.rand(64, 64), torch.rand(32, 48)])
    assert clf.with_views(grey)._vision.count == 3
    predictions: Any = clf.with_adapter("zero-shot").predict(nested)
    assert len(predictions) == 2


def test_grey_views_are_views(clf: FairTPTClassifier) -> None:
    assert clf.with_views(torch.rand(5, 64, 64))._vision.count == 6
