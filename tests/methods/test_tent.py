"""Tent against a deep copy of the model, a mean of entropies and an optimiser of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checks import picture
from plain_towers import classifier, entropy, tuned

from fair_tta import FixedRate
from fair_tta.methods import Tent


def plain_step(log_p: Any, pixels: Any, optimizer: Any, _: Any) -> None:
    optimizer.zero_grad()
    entropy(log_p(pixels)).mean().backward()
    optimizer.step()


@pytest.mark.parametrize("steps", [1, 3])
def test_is_a_step_of_adam_on_the_mean_entropy(steps: int) -> None:
    model, clf = classifier(adapter=Tent(steps=steps))
    pictures = [picture(0), picture(1, (31, 60))]
    for image, found in zip(pictures, clf.predict(pictures), strict=True):
        expected = tuned(
            model,
            clf,
            image,
            plain_step,
            lambda p: torch.optim.Adam(p, lr=1e-3),
            steps=steps,
        )
        assert list(found.probabilities.values()) == pytest.approx(
            expected.tolist(), abs=1e-9
        )
        assert found.distance > 1e-6
        assert found.views_kept == 6
        assert found.learning_rate == pytest.approx(1e-3)
        assert found.warnings == ()


def test_lowers_the_mean_entropy_of_the_views() -> None:
    _, clf = classifier(
        adapter=Tent(rate=FixedRate(1e-2)), views=lambda image, _: [image]
    )
    found = clf.predict([picture(i) for i in range(4)])
    assert all(p.entropy < p.entropy_zero_shot for p in found)


@pytest.mark.parametrize("method", [Tent(steps=0), Tent(rate=FixedRate(0.0))])
def test_no_step_is_zero_shot(method: Tent) -> None:
    _, clf = classifier(adapter=method)
    found = clf.predict(picture())
    assert found.probabilities == pytest.approx(found.zero_shot, abs=1e-9)
    assert found.relative_step == 0
    if not method.steps:
        assert (found.distance, found.learning_rate, found.warnings) == (0, 0, ())
