"""Methods that need the pictures: where features are handed around they say so, or get pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from checks import picture
from internals import (
    DistortedViews,
    ImageSource,
    Worker,
    WorkUnit,
    make_job,
)
from PIL.Image import Image
from plain_towers import classifier

from fair_tta import FairTPTClassifier, Zero, ZeroShot
from fair_tta.errors import TowerError
from fair_tta.extend import Outcome, PixelAdapter, Task
from fair_tta.methods import SAR, DeYO, SEraser, Tent

METHODS: list[Any] = [
    SEraser(auxiliary=DistortedViews(3), steps=2),
    DeYO(margin=2.0, least_drop=-1.0),
    Tent(),
]
NAMES = [type(method).__name__ for method in METHODS]


@pytest.fixture(scope="module")
def clf() -> FairTPTClassifier:
    return classifier()[1]


def test_examine_hands_them_pictures(clf: FairTPTClassifier) -> None:
    images = [picture(i) for i in range(3)]
    examination = clf.examine(images, [Zero(), *METHODS])
    assert {change.name for change in examination.document.adapters} == {"Zero", *NAMES}


def test_the_runner_hands_them_pictures(clf: FairTPTClassifier, tmp_path: Path) -> None:
    sources = []
    for i in range(2):
        picture(i).save(tmp_path / f"{i}.png")
        sources.append(ImageSource(f"{i}.png", str(tmp_path / f"{i}.png")))
    methods = (ZeroShot(), *METHODS)
    job = make_job(clf, methods)
    rows = Worker(job).begin(WorkUnit(tuple(sources), 0, job.queries()))()
    for source, answers in zip(sources, rows, strict=True):
        assert isinstance(answers, list)
        for method, answer in zip(methods, answers, strict=True):
            from_runner = answer.prediction
            expected = clf.with_adapter(method).predict(source.source)
            assert from_runner.probabilities == pytest.approx(
                expected.probabilities, abs=1e-4
            )
            assert from_runner.views_kept == expected.views_kept
            assert answer.seconds > 0


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_no_attribute_is_needed_and_none_changes_the_answer(
    clf: FairTPTClassifier, method: Any
) -> None:
    template = "a photo of a {}."
    bare = FairTPTClassifier(
        clf._backend, ["cat", "dog"], None, template, adapter=method
    )
    named = FairTPTClassifier(
        clf._backend, ["cat", "dog"], ["male", "female"], "a photo of a {target}{sensitive}.",
        adapter=method,
    )  # fmt: skip
    bare_prediction, named_prediction = (
        clf_of_names.predict(picture()) for clf_of_names in (bare, named)
    )
    assert bare_prediction.sensitive == {}
    if (
        not method.needs.prompt_gradient
    ):  # there may be more to tune in a longer template
        assert bare_prediction.probabilities == pytest.approx(
            named_prediction.probabilities, abs=1e-9
        )


@dataclass(frozen=True)
class Upright(PixelAdapter):
    """One of a user: the answer on the picture turned upside down."""

    def _check_task(self, task: Task) -> None:
        if "unicorn" in task.targets:
            raise TowerError("there are no unicorns")

    def adapt_pixels(self, task: Task, vision: Any, images: Sequence[Image]) -> Outcome:
        turned = [image.rotate(180) for image in images]
        return ZeroShot().adapt(task, vision.features(turned, False))


def test_one_of_your_own(clf: FairTPTClassifier) -> None:
    image = picture()
    turned = clf.with_adapter(ZeroShot()).predict(image.rotate(180))
    prediction = clf.with_adapter(Upright()).predict(image)
    assert prediction.probabilities == pytest.approx(turned.probabilities, abs=1e-9)
    with pytest.raises(TowerError, match="there are no unicorns"):
        FairTPTClassifier(clf._backend, ["cat", "unicorn"], adapter=Upright())


def test_views_that_only_a_function_knows(clf: FairTPTClassifier) -> None:
    """Their pixels come from the model's own preprocessing, picture by picture."""

    def mirrored(image: Image, _: Any) -> list[Image]:
        return [image.transpose(0)] * 2  # type: ignore[arg-type]

    mirroring = clf.with_views(mirrored)
    assert mirroring._vision.pixels(picture()).shape == (3, 3, 32, 32)
    for method in (DeYO(margin=2.0, least_drop=-1.0), Tent(), SAR(margin=2.0)):
        assert mirroring.with_adapter(method).predict(picture()).views_kept == 3
