"""MEMO against a deep copy of the model, the marginal's entropy and an optimiser of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checks import picture
from internals import AugMix
from plain_towers import classifier, entropy, norm_parameters, tuned

from fair_tta import FixedRate
from fair_tta.methods import MEMO


def plain_step(log_p: Any, pixels: Any, optimizer: Any, _: Any) -> None:
    optimizer.zero_grad()
    entropy(log_p(pixels[1:]).exp().mean(0).log()).backward()
    optimizer.step()


def vision_parameters(model: Any) -> list[Any]:
    return [*model.vision_model.parameters(), *model.visual_projection.parameters()]


@pytest.mark.parametrize("every", [False, True])
def test_is_a_step_on_the_entropy_of_the_mean_without_the_image(every: bool) -> None:
    model, clf = classifier(
        adapter=MEMO(every_weight=every, rate=FixedRate(1e-3), steps=2)
    )
    expected = tuned(
        model,
        clf,
        picture(),
        plain_step,
        lambda p: torch.optim.AdamW(p, lr=1e-3),
        vision_parameters if every else norm_parameters,
        steps=2,
    )
    found = clf.predict(picture())
    assert list(found.probabilities.values()) == pytest.approx(
        expected.tolist(), abs=1e-9
    )
    assert found.distance > 1e-6
    assert found.views_kept == 5


def test_the_default_is_that_of_the_code_for_transformers() -> None:
    assert MEMO() == MEMO(
        every_weight=False, rate=FixedRate(1e-5, torch.optim.AdamW), steps=1
    )


def test_without_views_it_takes_the_image() -> None:
    _, clf = classifier(adapter=MEMO(rate=FixedRate(1e-2)), views=AugMix(1))
    found = clf.predict(picture())
    assert found.views_kept == 1
    assert found.entropy < found.entropy_zero_shot


def test_no_step_is_zero_shot() -> None:
    _, clf = classifier(adapter=MEMO(steps=0))
    found = clf.predict(picture())
    assert found.probabilities == found.zero_shot
