"""SAR against a deep copy of the model, two passes and SGD of torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from checks import picture
from internals import NO_VIEW_PASSED
from plain_towers import classifier, entropy, tuned

from fair_tta import FairTTAError, FixedRate
from fair_tta.methods import SAR


def sam_step(margin: float, radius: float) -> Any:
    limit = margin * math.log(3)

    def step(log_p: Any, pixels: Any, optimizer: Any, parameters: Any) -> None:
        first = entropy(log_p(pixels))
        certain = first < limit
        optimizer.zero_grad()
        first[certain].mean().backward()
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        moves = [radius * p.grad / norm for p in parameters]
        with torch.no_grad():
            for parameter, move in zip(parameters, moves, strict=True):
                parameter += move
        second = entropy(log_p(pixels))[certain]
        optimizer.zero_grad()
        second[second < limit].mean().backward()
        with torch.no_grad():
            for parameter, move in zip(parameters, moves, strict=True):
                parameter -= move
        optimizer.step()

    return step


def entropies(clf: Any, image: Any) -> list[float]:
    """Of the views before any step, in units of the largest."""
    log_p = clf._task.log_probabilities(
        clf.encode([image])[0], clf._task.target_features
    )
    found: list[float] = (entropy(log_p) / math.log(3)).tolist()
    return found


def between(values: list[float], place: int) -> float:
    """A margin that lets so many pass, well away from the entropies of all views."""
    ordered = sorted(values)
    return (ordered[place - 1] + ordered[place]) / 2


@pytest.mark.parametrize("kept", [2, 4, 6])
def test_is_two_passes_over_certain_views(kept: int) -> None:
    model, clf = classifier()
    values = entropies(clf, picture())
    margin = 2.0 if kept == 6 else between(values, kept)
    method = SAR(margin=margin, radius=0.2, rate=FixedRate(0.05, torch.optim.SGD))
    found = clf.with_adapter(method).predict(picture())
    expected = tuned(
        model,
        clf,
        picture(),
        sam_step(margin, 0.2),
        lambda p: torch.optim.SGD(p, lr=0.05),
    )
    assert list(found.probabilities.values()) == pytest.approx(
        expected.tolist(), abs=1e-9
    )
    assert found.views_kept == kept
    if (
        kept == 6
    ):  # under a narrower margin all may leave on the way uphill: then nothing moves
        assert found.distance > 1e-6


def test_the_second_filter_counts() -> None:
    """Somewhere on the way uphill a view leaves the margin."""
    model, clf = classifier()
    margin = sorted(entropies(clf, picture()))[3] + 1e-3
    method = SAR(margin=margin, radius=0.5, rate=FixedRate(0.05, torch.optim.SGD))
    found = clf.with_adapter(method).predict(picture())
    expected = tuned(
        model,
        clf,
        picture(),
        sam_step(margin, 0.5),
        lambda p: torch.optim.SGD(p, lr=0.05),
    )
    assert list(found.probabilities.values()) == pytest.approx(
        expected.tolist(), abs=1e-9
    )


def test_nothing_certain_is_zero_shot_with_a_warning() -> None:
    _, clf = classifier(adapter=SAR(margin=1e-9))
    certain, unsure = (
        clf.with_adapter(SAR(margin=2.0)).predict(picture()),
        clf.predict(picture()),
    )
    assert certain.warnings == ()
    assert unsure.warnings == (NO_VIEW_PASSED,)
    assert unsure.probabilities == unsure.zero_shot
    assert (unsure.views_kept, unsure.learning_rate, unsure.relative_step) == (0, 0, 0)


def test_nothing_certain_uphill_is_zero_shot_too() -> None:
    _, clf = classifier()
    values = entropies(clf, picture())
    method = SAR(margin=min(values) + 1e-9, radius=0.5)
    found = clf.with_adapter(method).predict(picture())
    assert found.views_kept == 1
    assert found.probabilities == found.zero_shot
    assert found.warnings == (NO_VIEW_PASSED,)


def test_no_radius_is_gradient_descent_on_certain_views() -> None:
    model, clf = classifier()
    method = SAR(margin=2.0, radius=0.0, rate=FixedRate(0.05, torch.optim.SGD))
    found = clf.with_adapter(method).predict(picture())

    def step(log_p: Any, pixels: Any, optimizer: Any, _: Any) -> None:
        entropy(log_p(pixels)).mean().backward()
        optimizer.step()

    expected = tuned(model, clf, picture(), step, lambda p: torch.optim.SGD(p, lr=0.05))
    assert list(found.probabilities.values()) == pytest.approx(
        expected.tolist(), abs=1e-9
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: SAR(margin=0),
            "`margin` should be a share of the largest entropy above 0",
        ),
        (lambda: SAR(margin=math.nan), "`margin` should be a share"),
        (lambda: SAR(radius=-1), r"`radius` should be a number >= 0 \(got -1\)"),
        (lambda: SAR(radius=math.inf), "`radius` should be a number"),
        (lambda: SAR(steps=-1), "`steps` should be an integer >= 0"),
        (lambda: SAR(rate=1e-3), "`rate` should be a policy"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(FairTTAError, match=message):
        make()
