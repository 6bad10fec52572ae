"""How true sensitive values reach a method that has to know them."""

from __future__ import annotations

from typing import Any

import pytest
from fits import fit_on
from internals import AugMix

from fair_tta import FairTPTClassifier, FairTTAError, ZeroShot, audit, miniature
from fair_tta.errors import SmallGroupWarning
from fair_tta.methods import TIE, TIEStar

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")


@pytest.fixture(scope="module")
def birds() -> tuple[FairTPTClassifier, list[Any]]:
    task = miniature.BIRDS
    clf = FairTPTClassifier(
        "miniature", task.targets, task.sensitive, task.template, adapter=ZeroShot(), batch_size=5,
        views=AugMix(1),
    )  # fmt: skip
    return clf, task.draw(24, split="validation")


def test_audits_tell_it_the_values(
    birds: tuple[FairTPTClassifier, list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    clf, drawn = birds
    (attribute,) = clf.sensitive
    images, labels = [p.image for p in drawn], [p.target for p in drawn]
    values = [p.sensitive[attribute] for p in drawn]
    tie = fit_on(TIE(), clf, images, values)
    with pytest.warns(SmallGroupWarning):
        found = clf.audit(images, labels, values, adapter=tie, progress=True)
    assert "24/24" in capsys.readouterr().err
    answers = [
        clf.with_adapter(tie.knowing(value)).predict(image).label
        for image, value in zip(images, values, strict=True)
    ]
    with pytest.warns(SmallGroupWarning):
        expected = audit(labels, answers, {attribute: values}, targets=clf.targets)
    ours, theirs = (
        {str(group.sensitive): group.confusion for group in one.document.runs[0].groups}
        for one in (found, expected)
    )
    assert ours == theirs
    assert found.runs == ("TIE",)
    with pytest.warns(SmallGroupWarning):
        star = clf.audit(images, labels, values, adapter=fit_on(TIEStar(), clf, images))
    assert star.runs == ("TIEStar",)
    with pytest.raises(
        FairTTAError, match="TIE has to know the true sensitive value of each"
    ):
        clf.with_adapter(tie).predict(images)
    with pytest.warns(SmallGroupWarning):  # of a classifier that holds it
        assert clf.with_adapter(tie).audit(images, labels, values) == found


def test_audits_need_the_classifiers_words(
    birds: tuple[FairTPTClassifier, list[Any]],
) -> None:
    clf, drawn = birds
    (attribute,) = clf.sensitive
    images, labels = [p.image for p in drawn], [p.target for p in drawn]
    values = [p.sensitive[attribute] for p in drawn]
    tie = fit_on(TIE(), clf, images, values)
    with pytest.raises(FairTTAError, match="TIE has not been fitted: call `clf"):
        clf.audit(images, labels, values, adapter=TIE())
    for wrong in ({"sex": values}, ["swamp"] * len(drawn)):
        with pytest.raises(
            FairTTAError, match="TIE has to know the true values: `sensitive` shou"
        ):
            clf.audit(images, labels, wrong, adapter=tie)
    with pytest.raises(
        FairTTAError, match=r"`labels` should be as many as images \(got fewer\)"
    ):
        clf.audit(iter(images), labels[:7], values[:7], adapter=tie)
