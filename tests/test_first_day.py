"""The page of the public API, line by line, on the embedded model."""

from __future__ import annotations

from pathlib import Path

import pytest

from fair_tta import (
    FairPipeline,
    FairTPT,
    FairTPTClassifier,
    FairTTAError,
    audit,
    compare,
    miniature,
)
from fair_tta.prediction import Predictions

TASK = miniature.BADGES
HELD_OUT, TEST = TASK.draw(300, seed=0), TASK.draw(24, seed=1)


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_the_first_day(tmp_path: Path) -> None:
    clf = FairTPTClassifier(
        "miniature",
        TASK.targets,
        TASK.sensitive,
        TASK.template,
        adapter="association-correction",
    )
    image, test = TEST[0].image, [drawn.image for drawn in TEST]
    y, group = [one.target for one in TEST], [one.sensitive["colour"] for one in TEST]
    assert clf.predict(image).label in clf.targets
    before = clf.with_adapter("zero-shot").predict(test)
    assert isinstance(before, Predictions)
    assert before.probabilities.shape == (24, len(clf.targets))
    assert clf.with_adapter(FairTPT()).adapter == FairTPT()

    images, labels = [one.image for one in HELD_OUT], [one.target for one in HELD_OUT]
    balanced = clf.with_adapter("logit-balance").fit(images)
    assert balanced.adapter.is_fitted
    result = clf.mitigate(images, labels, [one.sensitive["colour"] for one in HELD_OUT])
    assert result.adapter in (result.classifier.adapter, None)
    assert result.reason
    after = result.classifier.predict(test)
    named = audit(y, after, group, name="after")  # two runs of one method need names
    assert compare([audit(y, before, group), named]).runs == ("ZeroShot", "after")
    result.classifier.save(tmp_path / "fitted.safetensors")
    again = clf.with_adapter(str(tmp_path / "fitted.safetensors"))
    assert again.predict(test).labels == after.labels

    clf.audit(test, y, group)
    clf.examine(test)
    classify = FairPipeline("miniature", sensitive=["something red", "something blue"])
    assert classify(image, candidate_labels=["a star", "a circle"])


def test_a_method_that_is_not_fitted_is_refused_with_the_line_to_write() -> None:
    clf = FairTPTClassifier(
        "miniature", TASK.targets, TASK.sensitive, adapter="logit-balance"
    )
    with pytest.raises(
        FairTTAError, match=r"call `clf\.fit\(images\)` with 300 or more images"
    ):
        clf.predict(TEST[0].image)
