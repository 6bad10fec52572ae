"""Runs are put side by side only if they are of the same images in the same order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fair_tta import (
    FairTPTClassifier,
    FairTTAError,
    Features,
    audit,
    compare,
    miniature,
)
from fair_tta.auditing import Audit
from fair_tta.metrics import Bootstrap

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")

TASK = miniature.BADGES
QUICK = Bootstrap(100)
OTHER_IMAGES = (
    "should be of the same images in the same order, "
    "but the images of 'a' and 'b' differ"
)


def answered(name: str, digests: Sequence[object] | None) -> Audit:
    truth = ["cat", "dog"] * 40
    places = ["in"] * 40 + ["out"] * 40
    return audit(truth, truth, places, name=name, digests=digests, interval=QUICK)


@pytest.mark.parametrize(
    "other",
    [
        [f"other {i}" for i in range(80)],
        [f"image {i}" for i in reversed(range(80))],
        [f"image {(i + 1) // 2}" for i in range(80)],
    ],
)
def test_other_digests_are_other_images(other: list[str]) -> None:
    first = answered("a", [f"image {i}" for i in range(80)])
    with pytest.raises(FairTTAError, match=OTHER_IMAGES):
        compare([first, answered("b", other)])
    without = answered("c", None)
    both = compare([first, without])
    with pytest.raises(FairTTAError, match=OTHER_IMAGES):
        compare([both, answered("b", other)])
    assert compare([both, answered("d", [f"image {i}" for i in range(80)])]).runs == (
        "a",
        "c",
        "d",
    )


def test_a_classifier_knows_other_images_and_another_order() -> None:
    classifier = FairTPTClassifier(
        "miniature", TASK.targets, TASK.sensitive, TASK.template, adapter="zero-shot"
    )
    rows = TASK.draw(60, seed=3)
    images = [row.image for row in rows]
    labels = [row.target for row in rows]
    sensitive = {name: [row.sensitive[name] for row in rows] for name in TASK.sensitive}
    features = np.asarray(classifier.encode(images, with_views=False))[:, 0]

    def measured(name: str, passed: object) -> Audit:
        return classifier.audit(passed, labels, sensitive, name=name, interval=QUICK)

    group = (rows[0].target, rows[0].sensitive)
    alike = [i for i, row in enumerate(rows) if (row.target, row.sensitive) == group]
    order = np.arange(60)
    order[alike] = alike[1:] + alike[:1]
    by_features = measured("a", Features(features))
    by_images = measured("a", images)
    with pytest.raises(FairTTAError, match=OTHER_IMAGES):
        compare([by_features, measured("b", Features(features[order]))])
    with pytest.raises(FairTTAError, match=OTHER_IMAGES):
        compare([by_images, measured("b", [images[i] for i in order])])
    again = compare([by_features, measured("b", Features(features))])
    assert again.document.comparisons[0].changes.right_to_wrong == 0
    # digests of features and of images cannot be compared, nor those in another precision
    half = measured("c", Features(features.astype(np.float16)))
    assert compare([by_features, half, measured("d", images)]).runs == ("a", "c", "d")
