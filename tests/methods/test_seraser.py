"""SEraser against its formula with `kl_div` and AdamW of torch, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from checks import picture
from internals import DistortedViews, KLFromUniform, WeightedSum, tune
from PIL import Image
from plain_towers import classifier
from torch.nn.functional import kl_div

from fair_tta import ELRA, FairTTAError, FixedRate
from fair_tta.methods import SEraser


def pair(image: Any, _: Any) -> list[Any]:
    """As of a segmentation: the upper half without the lower one, and turned."""
    background = image.copy()
    background.paste((0, 0, 0), (0, image.height // 2, image.width, image.height))
    return [background, background.transpose(Image.Transpose.ROTATE_180)]


def literal(clf: Any, method: SEraser, image: Any) -> list[float]:
    """One image, one optimiser, twenty steps."""
    task, black = clf._task, Image.new("RGB", image.size)
    pictures = [image, *pair(image, None), *([black] if method.black else [])]
    features = torch.cat([clf.encode([one], with_views=False)[0] for one in pictures])
    targets = len(task.targets)
    uniform = torch.full(
        (len(pictures) - 1, targets), 1 / targets, dtype=features.dtype
    )
    context = task.context.clone().requires_grad_()
    optimizer = torch.optim.AdamW([context], lr=5e-4)
    before = None
    for _ in range(method.steps):
        texts = task.encode(task.target_prompts, context)
        log_p = torch.log_softmax(task.scale * features @ texts.T, -1)
        before = log_p[0].detach() if before is None else before
        loss = kl_div(log_p[1:], uniform, reduction="batchmean")
        if method.loss.hold:  # type: ignore[attr-defined]
            loss = loss + kl_div(log_p[0], before, reduction="sum", log_target=True)
        else:
            loss = loss + torch.distributions.Categorical(logits=log_p[0]).entropy()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        texts = task.encode(task.target_prompts, context)
        p: list[float] = torch.softmax(task.scale * features[0] @ texts.T, -1).tolist()
    return p


@pytest.mark.parametrize("hold", [False, True])
def test_is_its_formula(hold: bool) -> None:
    method = SEraser(auxiliary=pair, loss=KLFromUniform(hold=hold))
    _, clf = classifier(adapter=method)
    pictures = [picture(0), picture(1, (31, 60))]
    for image, found in zip(pictures, clf.predict(pictures), strict=True):
        expected = literal(clf, method, image)
        assert list(found.probabilities.values()) == pytest.approx(expected, abs=1e-7)
        assert found.distance > 1e-4
        assert (found.views_kept, found.warnings) == (None, ())
        assert found.learning_rate == pytest.approx(5e-4)


def test_without_the_black_picture() -> None:
    method = SEraser(auxiliary=pair, black=False, steps=3)
    _, clf = classifier(adapter=method)
    found = clf.predict(picture())
    assert list(found.probabilities.values()) == pytest.approx(
        literal(clf, method, picture()), abs=1e-7
    )


def test_auxiliary_pictures_become_uncertain() -> None:
    """What it is for: the answer on the auxiliary pictures moves towards uniform."""
    _, clf = classifier()
    method = SEraser(auxiliary=pair, black=False, rate=FixedRate(5e-3))
    task, image = clf._task, picture()
    auxiliary = torch.cat(
        [clf.encode([one], with_views=False)[0] for one in pair(image, None)]
    )
    features = clf._vision.features([image], True, pair)
    log_p = task.log_probabilities(auxiliary, task.target_features)
    start = float((-log_p.mean(-1) - math.log(3)).mean())
    with torch.no_grad():
        tuned = tune(
            task,
            features,
            loss=method.loss,
            aggregator=WeightedSum(0),
            rate=method.rate,
            steps=20,
        )
        texts = task.encode_many(task.target_prompts, tuned.context)[0]
    log_p = task.log_probabilities(auxiliary, texts)
    assert float((-log_p.mean(-1) - math.log(3)).mean()) < 0.7 * start


@pytest.mark.parametrize(
    "method", [SEraser(steps=0), SEraser(steps=2, rate=FixedRate(1e-30))]
)
def test_no_step_is_zero_shot(method: SEraser) -> None:
    _, clf = classifier(adapter=method)
    found = clf.predict(picture())
    assert found.probabilities == pytest.approx(found.zero_shot, abs=1e-9)


def test_elra_changes_the_whole_loss_by_beta() -> None:
    """As the fairness paper has it: the step is as long as changes the loss by so much."""
    _, clf = classifier()
    method, task = (
        SEraser(auxiliary=pair, black=False, rate=ELRA(beta=1e-4), steps=1),
        clf._task,
    )
    features = clf._vision.features([picture()], True, pair)
    (term,) = method.loss.objective(task).terms
    with torch.no_grad():
        tuned = tune(
            task,
            features,
            loss=method.loss,
            aggregator=WeightedSum(0),
            rate=method.rate,
            steps=1,
        )
        texts = task.encode_many(task.target_prompts, tuned.context)
        before, after = (
            term.loss(task, features, t) for t in (task.target_features[None], texts)
        )
    assert float(before - after) == pytest.approx(1e-4, rel=0.2)  # curvature
    assert clf.with_adapter(method).predict(picture()).relative_step == pytest.approx(
        float(tuned.relative_step)
    )


def test_built_in_pictures_are_those_of_the_seed() -> None:
    _, clf = classifier(adapter=SEraser(auxiliary=DistortedViews(4), steps=2))
    first = clf.predict(picture())
    assert clf.with_views(clf._vision.views).predict(picture()) == first
    assert clf.with_views(clf._vision.views, seed=1).predict(picture()) != first
    distorted = clf.with_adapter(SEraser(auxiliary=DistortedViews(3), steps=2)).predict(
        picture()
    )
    assert distorted != first


def test_another_setting_needs_no_second_vision_pass() -> None:
    model, clf = classifier(adapter=SEraser(steps=1))
    seen: list[int] = []
    with model.vision_model.register_forward_hook(lambda *_: seen.append(1)):
        clf.predict(picture())
        once = len(seen)
        clf.with_adapter(SEraser(steps=2, loss=KLFromUniform(hold=True))).predict(
            picture()
        )
    assert len(seen) == once > 0


def test_pictures_of_different_number() -> None:
    def odd(image: Any, _: Any) -> list[Any]:
        return [image] * (image.width % 3)

    _, clf = classifier(adapter=SEraser(auxiliary=odd, steps=1))
    with pytest.raises(
        FairTTAError,
        match=r"`auxiliary` should return equally many views of each image",
    ):
        clf.predict([picture(0, (30, 40)), picture(1, (31, 40))])
    bare = clf.with_adapter(SEraser(auxiliary=odd, steps=1, black=False))
    with pytest.raises(
        FairTTAError, match="`auxiliary` returns no images, and without `black`"
    ):
        bare.predict(picture(0, (30, 40)))


def test_arrays_of_another_shape() -> None:
    class Wrong:
        n = 3

        def __call__(self, image: Any, size: Any, generator: Any) -> Any:
            return DistortedViews(3)(image, (8, 8), generator)

    _, clf = classifier(adapter=SEraser(auxiliary=Wrong()))
    with pytest.raises(
        FairTTAError, match=r"`auxiliary` should return an array \[2, 32, 32, 3\]"
    ):
        clf.predict(picture())


@dataclass
class NotFrozen:
    def __call__(self, image: Image.Image, _: np.random.Generator) -> list[Image.Image]:
        return [image]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: SEraser(auxiliary=3),  # type: ignore[arg-type]
            "`auxiliary` should be a function of an image and a random",
        ),
        (lambda: SEraser(auxiliary=DistortedViews), "`auxiliary` should be a function"),  # type: ignore[arg-type]
        (lambda: SEraser(steps=-1), "`steps` should be an integer >= 0"),
        (lambda: SEraser(rate=1), "`rate` should be a policy"),  # type: ignore[arg-type]
        (
            lambda: SEraser(auxiliary=NotFrozen()),
            r"and hashable as .* is \(got NotFrozen",
        ),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(FairTTAError, match=message):
        make()
