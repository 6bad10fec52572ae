"""Cross-fitting: no image is answered by a fit that has seen it, whatever the order."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from hashlib import blake2b

import pytest
from fits import fit_on
from internals import Adapter, CrossFitted, cross_fit, fingerprint, image_digest
from PIL.Image import Image

from fair_tta import FairTPTClassifier, FairTTAError, LogitBalance, Prediction, ZeroShot
from fair_tta.errors import SmallReferenceWarning
from fair_tta.methods import UMFC
from fair_tta.miniature import BADGES

IMAGES = [drawn.image for drawn in BADGES.draw(60)]


def classifier(batch_size: int = 16) -> FairTPTClassifier:
    names = BADGES.targets, BADGES.sensitive, BADGES.template
    return FairTPTClassifier(
        "miniature", *names, adapter=ZeroShot(), batch_size=batch_size
    )


def fitted(method: Adapter, images: Sequence[Image], clf: FairTPTClassifier) -> Adapter:
    features = [clf.encode(images, with_views=False)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallReferenceWarning)
        return cross_fit(clf, {"m": method}, features, [*map(image_digest, images)])[
            "m"
        ]


def fold(image: Image) -> int:
    """Computed apart from the code."""
    content = repr(image.size).encode() + image.tobytes()
    return int.from_bytes(blake2b(content, digest_size=16).digest(), "big") % 5


def close(predictions: Sequence[Prediction], expected: Sequence[Prediction]) -> None:
    for prediction, wanted_prediction in zip(predictions, expected, strict=True):
        assert prediction.label == wanted_prediction.label
        assert prediction.probabilities == pytest.approx(
            wanted_prediction.probabilities, abs=1e-5
        )


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_an_image_is_answered_by_a_fit_on_the_other_folds() -> None:
    clf = classifier()
    predictions = clf.with_adapter(fitted(LogitBalance(), IMAGES, clf)).predict(IMAGES)
    for number in range(5):
        in_fold = [i for i, image in enumerate(IMAGES) if fold(image) == number]
        training_images = [image for image in IMAGES if fold(image) != number]
        balance = clf.with_adapter(fit_on(LogitBalance(), clf, training_images))
        close(
            [predictions[i] for i in in_fold],
            balance.predict([IMAGES[i] for i in in_fold]),
        )


@pytest.mark.parametrize("method", [LogitBalance(), UMFC()])
def test_neither_order_nor_batch_size_matters(method: Adapter) -> None:
    clf, small = classifier(), classifier(batch_size=7)
    first, second = fitted(method, IMAGES, clf), fitted(method, IMAGES[::-1], small)
    expected = clf.with_adapter(first).predict(IMAGES)
    close(small.with_adapter(second).predict(IMAGES[::-1])[::-1], expected)
    close(
        [clf.with_adapter(first).predict(image) for image in IMAGES[:9]], expected[:9]
    )
    assert fingerprint(first) == fingerprint(second) is not None


def test_its_identity_is_that_of_settings_and_images() -> None:
    clf = classifier()
    cross_fitted = fitted(LogitBalance(), IMAGES, clf)
    different = (
        fitted(LogitBalance(), IMAGES[1:], clf),
        fitted(LogitBalance(1.0), IMAGES, clf),
    )
    assert len({fingerprint(method) for method in (cross_fitted, *different)}) == 3
    sent = pickle.loads(pickle.dumps(cross_fitted))
    assert fingerprint(sent) == fingerprint(cross_fitted)
    close(
        clf.with_adapter(sent).predict(IMAGES[:5]),
        clf.with_adapter(cross_fitted).predict(IMAGES[:5]),
    )


def test_few_images_warn_once_and_one_is_refused() -> None:
    clf = classifier()
    features, digests = (
        clf.encode(IMAGES, with_views=False),
        [*map(image_digest, IMAGES)],
    )
    methods = {"a": LogitBalance(), "b": LogitBalance(1.0), "c": ZeroShot()}
    with pytest.warns(
        SmallReferenceWarning, match="cross-fitting on 60 images"
    ) as caught:
        cross_fitted = cross_fit(clf, methods, [features], digests)
    assert len(caught) == 1
    assert [type(method) for method in cross_fitted.values()] == [
        CrossFitted,
        CrossFitted,
        ZeroShot,
    ]
    with pytest.raises(FairTTAError, match="needs more different images"):
        cross_fit(clf, methods, [features[:1]], digests[:1])
    with pytest.raises(FairTTAError, match="needs the images themselves"):
        clf.with_adapter(cross_fitted["a"])._predict_encoded(features)
