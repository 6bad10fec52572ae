"""`FairTPTClassifier.examine`, and the associations of prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import families
import numpy as np
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from internals import (
    NOTICE,
    ExaminationDocument,
    Floats,
    associations_of,
    pseudo_equalized_odds_difference,
    r_squared,
    wilson,
)

from fair_tta import FairTPT, FairTPTClassifier, FairTTAError, OrthCali, Zero, ZeroShot
from fair_tta.auditing import Examination
from fair_tta.extend import Adapter, AugMix
from fair_tta.metrics import Bootstrap
from fair_tta.models import TransformersBackend
from fair_tta.prediction import Prediction

IMAGES = [picture(i) for i in range(10)]
ADAPTERS: dict[str, Adapter] = {
    "zero": Zero(),
    "orth": OrthCali(lam=0),
    "tuned": FairTPT(),
}
TWO = {**SENSITIVE, "light": {"day": "by day", "dusk": "at dusk", "night": "at night"}}


@pytest.fixture(scope="module")
def clf() -> FairTPTClassifier:
    backend = TransformersBackend(*families.seeded(families.clip))
    return FairTPTClassifier(
        backend, TARGETS, TWO, TEMPLATE, views=AugMix(4), batch_size=4, scale=100.0
    )


@pytest.fixture(scope="module")
def examination(clf: FairTPTClassifier) -> Examination:
    return clf.examine(IMAGES, ADAPTERS)


def test_associations_are_those_of_the_prompts(clf: FairTPTClassifier) -> None:
    associations = associations_of(clf._task)
    table = associations["light"]
    assert json.loads(json.dumps(table)) == table
    sensitive = clf._task.sensitive_features["light"].detach().double()
    target = clf._task.target_features.detach().double()
    # Rows and columns are centred, which is centring the features
    logits = 100 * sensitive @ target.T
    logits = logits - logits.mean(0, keepdim=True)
    logits = logits - logits.mean(1, keepdim=True)
    ours = [list(row.values()) for row in table.values()]
    torch.testing.assert_close(torch.tensor(ours, dtype=torch.float64), logits)
    assert list(table) == ["day", "dusk", "night"]
    assert list(table["day"]) == ["cat", "dog", "bird"]


def test_associations_follow_the_weights() -> None:
    model, tokenizer, processor = families.seeded(families.clip)
    backend = TransformersBackend(model, tokenizer, processor)
    clf = FairTPTClassifier(backend, TARGETS, SENSITIVE, TEMPLATE)
    before = associations_of(clf._task)
    with torch.no_grad():
        model.text_projection.weight.copy_(
            model.text_projection.weight.flip(0) * 3 + 0.1
        )
    clf.predict(IMAGES[0])  # the next call notices
    assert associations_of(clf._task) != before


def test_attributes_are_those_of_the_predictions(
    clf: FairTPTClassifier, examination: Examination
) -> None:
    document = examination.document
    predictions = clf.with_adapter(ZeroShot()).predict(IMAGES)
    targets = np.array([list(p.zero_shot.values()) for p in predictions])
    assert (document.n, document.targets) == (10, clf.targets)
    for attribute, perceived in document.attributes.items():
        values = value_beliefs(predictions, attribute)
        shares = [share.value for share in perceived.shares.values()]
        assert shares == pytest.approx(values.mean(0), abs=1e-6)
        assert perceived.confidence.value == pytest.approx(
            values.max(1).mean(), abs=1e-6
        )
        entropies = [p.sensitive_entropy_zero_shot[attribute] for p in predictions]
        assert perceived.entropy.value == pytest.approx(np.mean(entropies), abs=1e-5)
        explained = r_squared(np.log(targets), values)
        assert perceived.r_squared == pytest.approx(explained, abs=1e-3)
        assert perceived.associations == associations_of(clf._task)[attribute]


def test_adapters_are_those_of_the_predictions(
    clf: FairTPTClassifier, examination: Examination
) -> None:
    document = examination.document
    before = clf.with_adapter(ZeroShot()).predict(IMAGES)
    targets = np.array([list(p.zero_shot.values()) for p in before])
    assert document.adapters[0].adapter.name == "Zero"
    for adapter in document.adapters:
        after = clf.with_adapter(ADAPTERS[adapter.name]).predict(IMAGES)
        assert adapter.changed == sum(p.flipped for p in after)
        share = adapter.changed_share
        assert (share.low, share.high) == wilson(adapter.changed, 10)
        for attribute, perceived in document.attributes.items():
            values = value_beliefs(before, attribute)
            odds_before, odds_after = (
                pseudo_equalized_odds_difference(
                    [clf.targets.index(p.label) for p in run], targets, values
                )
                for run in (before, after)
            )
            assert perceived.pseudo_eod.value == pytest.approx(odds_before, abs=1e-5)
            pseudo_eod = adapter.pseudo_eod[attribute]
            assert pseudo_eod.after.value == pytest.approx(odds_after, abs=1e-5)
            change = pseudo_eod.change
            assert change.value == pytest.approx(odds_after - odds_before, abs=1e-5)
            assert change.low <= change.value <= change.high  # type: ignore[operator]


def value_beliefs(predictions: Iterable[Prediction], attribute: str) -> Floats:
    return np.array(
        [list(p.sensitive_zero_shot[attribute].values()) for p in predictions]
    )


def test_the_ranking_is_by_change_and_says_what_it_is(examination: Examination) -> None:
    document = examination.document
    changes = {a.name: a.pseudo_eod for a in document.adapters}
    for attribute, names in document.ranking.items():
        assert sorted(names) == sorted(ADAPTERS)
        values = [changes[name][attribute].change.value for name in names]
        assert values == sorted(values)  # type: ignore[type-var]
    assert "not a measurement on people" in document.notice
    assert "rank correlation 0.78" in document.notice
    assert "says nothing about accuracy" in NOTICE
    assert NOTICE in str(examination)
    assert "Fewer than 30 images, so figures are uncertain." in document.warnings
    assert repr(examination) == "Examination(n=10, adapters=['zero', 'orth', 'tuned'])"


def test_batches_order_of_methods_and_streams_do_not_matter(
    clf: FairTPTClassifier, examination: Examination
) -> None:
    reversed_adapters = dict(reversed(ADAPTERS.items()))
    again = clf.examine(iter(IMAGES), reversed_adapters, progress=True)
    first, second = examination.document, again.document
    adapters = {adapter.name: adapter for adapter in second.adapters}
    for adapter in first.adapters:
        assert adapters[adapter.name].changed == adapter.changed
        for attribute, pseudo_eod in adapter.pseudo_eod.items():
            low = adapters[adapter.name].pseudo_eod[attribute].change.low
            assert low == pytest.approx(pseudo_eod.change.low, abs=1e-4)


def test_intervals_follow_their_settings(
    clf: FairTPTClassifier, examination: Examination
) -> None:
    half = clf.examine(IMAGES, None, interval=Bootstrap(100, 1, 0.5)).document
    assert half.settings.level == 0.5
    entropy = examination.document.attributes["place"].entropy
    assert half.attributes["place"].entropy != entropy


def test_adapters_in_a_list_have_the_names_of_their_classes(
    clf: FairTPTClassifier,
) -> None:
    examination = clf.examine(IMAGES[:2], [OrthCali(), ZeroShot()])
    first, second = examination.document.adapters
    assert (first.name, second.name) == ("OrthCali", "ZeroShot")
    assert second.changed == 0
    assert second.pseudo_eod["place"].change.value == 0


def test_association_correction_is_the_default(clf: FairTPTClassifier) -> None:
    (adapter,) = clf.examine(IMAGES[:3]).document.adapters
    assert adapter.name == "AssociationCorrection"
    with pytest.raises(FairTTAError, match="needs sensitive attribute values"):
        FairTPTClassifier(clf._backend, TARGETS).examine(IMAGES)


def test_looking_only(clf: FairTPTClassifier) -> None:
    examination = clf.examine(IMAGES[:3], None)
    assert examination.document.adapters == ()
    assert examination.document.ranking == {"place": (), "light": ()}
    assert examination.document.notice not in str(examination)
    assert Examination.from_json(examination.to_json()) == examination


def test_saved_and_loaded(examination: Examination, tmp_path: Path) -> None:
    examination.save(tmp_path / "examine.json")
    again = Examination.load(tmp_path / "examine.json")
    assert again == examination
    assert again.to_dict()["schema"] == "fair-tta/examination/1"
    assert str(again) == str(examination)
    assert isinstance(again.document, ExaminationDocument)
