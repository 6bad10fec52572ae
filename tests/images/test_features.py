"""Features of pictures: how many go through the vision tower at once."""

from __future__ import annotations

from typing import Any

import families
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from internals import vision_module as features
from PIL import Image

from fair_tta import FairTPTClassifier, Zero
from fair_tta.extend import AugMix, Cache
from fair_tta.models import TransformersBackend


def test_pictures_alone_go_through_the_tower_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend: Any = TransformersBackend(*families.seeded(families.clip))
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE)
    images = [picture(seed) for seed in range(7)]
    expected = clf.encode(images, with_views=False)
    seen: list[int] = []
    own = backend.encode_images

    def counted(pictures: list[Image.Image]) -> torch.Tensor:
        seen.append(len(pictures))
        made: torch.Tensor = own(pictures)
        return made

    backend.encode_images = counted
    monkeypatch.setattr(features, "_VIEWS_PER_PASS_ON_CPU", 3)
    clf._vision.forget()
    torch.testing.assert_close(
        clf.encode(images, with_views=False), expected, rtol=0, atol=1e-5
    )
    assert seen == [3, 3, 1]


@pytest.mark.parametrize("with_views", [True, False])
def test_of_a_batch_no_more_is_held_than_is_kept(with_views: bool) -> None:
    backend = TransformersBackend(*families.seeded(families.clip))
    cache = Cache(5000)
    clf = FairTPTClassifier(
        backend,
        TARGETS,
        SENSITIVE,
        TEMPLATE,
        adapter=Zero(),
        views=AugMix(4),
        cache=cache,
    )
    clf.encode([picture(seed) for seed in range(12)], with_views=with_views)
    kept = [value for value, _ in cache._entries.values()]
    assert 0 < len(kept) < 12
    storages = {value.untyped_storage().data_ptr(): value for value in kept}
    held = sum(value.untyped_storage().nbytes() for value in storages.values())
    assert held == sum(value.nbytes for value in kept) < cache.limit
