"""DeYO against its formula, view by view in numpy, with AdamW of torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from checks import picture
from internals import NOTHING_PASSED, PatchShuffle, content_generator, unit_features
from plain_towers import classifier

from fair_tta import FairTTAError, FixedRate
from fair_tta.errors import TowerError
from fair_tta.methods import DeYO


def both_features(clf: Any, image: Any) -> tuple[Any, Any]:
    """Of the views, and of their shuffled copies, made here."""
    pixels = clf._vision.pixels(image)
    shuffled = PatchShuffle(4)(
        pixels, content_generator(image, 0, "PatchShuffle(patches=4)")
    )
    assert not torch.equal(shuffled, pixels)
    return unit_features(clf._backend.encode_pixels(pixels)), unit_features(
        clf._backend.encode_pixels(shuffled)
    )


def softmax(logits: Any) -> Any:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def numpy_weights(method: DeYO, p: Any, q: Any) -> list[float]:
    """Of each view, None's worth 0; p of views and q of copies, [views, targets]."""
    largest = math.log(p.shape[1])
    weights = []
    for view, copy in zip(p, q, strict=True):
        h = -sum(x * math.log(x) for x in view)
        y = int(view.argmax())
        drop = view[y] - copy[y]
        keep = h < method.margin * largest and drop > method.least_drop
        weights.append(
            math.exp(-(h - method.weight_margin * largest)) + math.exp(drop)
            if keep
            else 0.0
        )
    return weights


def literal(clf: Any, method: DeYO, image: Any) -> tuple[list[float], int]:
    task = clf._task
    views, copies = both_features(clf, image)
    context = task.context.clone().requires_grad_()
    optimizer = torch.optim.AdamW([context], lr=5e-3)
    kept = None
    for _ in range(method.steps):
        texts = task.encode(task.target_prompts, context)
        p, q = (
            softmax(task.scale * (x @ texts.T).detach().double().numpy())
            for x in (views, copies)
        )
        weights = torch.tensor(numpy_weights(method, p, q))
        kept = int((weights > 0).sum()) if kept is None else kept
        h = torch.distributions.Categorical(
            logits=task.scale * views @ texts.T
        ).entropy()
        chosen = weights > 0
        loss = (weights[chosen] * h[chosen]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        texts = task.encode(task.target_prompts, context)
        answer: list[float] = torch.softmax(
            task.scale * views[0] @ texts.T, -1
        ).tolist()
    return answer, kept or 0


@pytest.mark.parametrize(
    "method",
    [DeYO(least_drop=-1.0, margin=1.1), DeYO(least_drop=0.0, margin=0.95, steps=2)],
)
def test_is_its_formula(method: DeYO) -> None:
    _, clf = classifier(adapter=method)
    pictures = [picture(0), picture(3), picture(5, (31, 60))]
    counts = []
    for image, found in zip(pictures, clf.predict(pictures), strict=True):
        expected, kept = literal(clf, method, image)
        assert list(found.probabilities.values()) == pytest.approx(expected, abs=1e-7)
        assert found.views_kept == kept > 0
        assert found.distance > 1e-6
        counts.append(kept)
    assert (set(counts) == {6}) == (method.least_drop == -1)


def test_each_filter_counts() -> None:
    _, clf = classifier()
    images = [picture(i) for i in range(4)]
    both = torch.cat(
        [torch.stack(both_features(clf, one)).flatten(0, 1)[None] for one in images]
    )
    task = clf._task
    p, q = (
        softmax(task.scale * (x @ task.target_features.T).double().numpy())
        for x in both.chunk(2, dim=1)
    )
    seen = set()
    entropies = np.sort(-(p * np.log(p)).sum(-1), axis=None) / math.log(3)
    drops = np.sort(np.take_along_axis(p - q, p.argmax(-1)[..., None], -1), axis=None)
    certain, large = (
        entropies[15:17].mean(),
        drops[8:10].mean(),
    )  # of 24, well between two
    for margin, drop in ((2.0, -1.0), (certain, -1.0), (2.0, large), (certain, large)):
        method = DeYO(margin=margin, least_drop=drop)
        expected = [numpy_weights(method, *pair) for pair in zip(p, q, strict=True)]
        found = method._weights(task, both, task.target_features)
        assert found.tolist() == [pytest.approx(row) for row in expected]
        seen.add(int((found > 0).sum()))
    assert len(seen) == 4


def test_nothing_passes_is_zero_shot_with_a_warning() -> None:
    _, clf = classifier(adapter=DeYO(least_drop=1.0))
    for found in clf.predict([picture(0), picture(1)]):
        assert found.probabilities == pytest.approx(found.zero_shot, abs=1e-9)
        assert found.warnings == (NOTHING_PASSED,)
        assert (found.views_kept, found.learning_rate, found.relative_step) == (0, 0, 0)


def test_what_passes_for_one_image_does_not_matter_to_another() -> None:
    """Some of these have views that pass, some have none."""
    _, clf = classifier()
    images = [picture(i) for i in range(8)]
    for drop in (
        0.3,
        0.1,
        0.03,
        0.01,
        3e-3,
        1e-3,
        3e-4,
    ):  # weights are drawn: no telling which
        method = DeYO(margin=0.9, least_drop=drop)
        together = clf.with_adapter(method).predict(images)
        if len({bool(p.warnings) for p in together}) == 2:
            break
    assert {bool(p.warnings) for p in together} == {True, False}
    for image, found in zip(images, together, strict=True):
        alone = clf.with_adapter(method).predict(image)
        assert alone.probabilities == pytest.approx(found.probabilities, abs=1e-9)
        assert (alone.warnings, alone.views_kept) == (found.warnings, found.views_kept)


@pytest.mark.parametrize("method", [DeYO(steps=0), DeYO(rate=FixedRate(1e-30))])
def test_no_step_is_zero_shot(method: DeYO) -> None:
    _, clf = classifier(adapter=method)
    found = clf.predict(picture())
    assert found.probabilities == pytest.approx(found.zero_shot, abs=1e-9)


def test_copies_are_made_once_for_all_settings() -> None:
    model, clf = classifier(adapter=DeYO())
    seen: list[int] = []
    with model.vision_model.register_forward_hook(lambda *_: seen.append(1)):
        clf.predict(picture())
        once = len(seen)
        clf.with_adapter(DeYO(least_drop=0.0)).predict(picture())
    assert len(seen) == once > 0


def test_a_model_that_keeps_its_pixels_to_itself_is_refused() -> None:
    _, clf = classifier()

    class Hidden:
        preprocess = None

        def __getattr__(self, name: str) -> Any:
            return getattr(clf._backend, name)

    with pytest.raises(
        TowerError,
        match=r"DeYO changes pixels after preprocessing, which CLIPModel does not allow: it has no",
    ):
        type(clf)(Hidden(), ["cat", "dog"], adapter=DeYO())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: DeYO(margin=-1),
            "`margin` should be a share of the largest entropy above 0",
        ),
        (
            lambda: DeYO(least_drop=2),
            "`least_drop` should be a difference of probabilities",
        ),
        (
            lambda: DeYO(weight_margin=math.nan),
            r"`weight_margin` should be a number \(got nan\)",
        ),
        (lambda: DeYO(steps=1.5), "`steps` should be an integer >= 0"),  # type: ignore[arg-type]
        (lambda: DeYO(rate=None), "`rate` should be a policy"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(FairTTAError, match=message):
        make()


@dataclass
class NotFrozen:
    """A policy that cannot be hashed; it is no part of the loss."""

    lr: float = 5e-3

    def start(self, *args: Any) -> Any:
        return FixedRate(self.lr).start(*args)


def test_a_policy_need_not_be_hashable() -> None:
    _, clf = classifier(adapter=DeYO(rate=NotFrozen(1e-2), margin=2, least_drop=-1))
    other = clf.with_adapter(DeYO(rate=FixedRate(1e-2), margin=2, least_drop=-1))
    assert clf.predict(picture()).distance > 0
    assert clf.predict(picture()) == other.predict(picture())
