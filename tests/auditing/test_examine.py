"""`clf.associations` and `clf.examine`: what can be seen without labels."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import families
import numpy as np
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from internals import (
    NOTICE,
    ExaminationDocument,
    associations_of,
    pseudo_equalized_odds_difference,
    r_squared,
    wilson,
)

from fair_tta import FairTPT, FairTPTClassifier, FairTTAError, OrthCali, Zero, ZeroShot
from fair_tta.auditing import Examination
from fair_tta.errors import ImageError
from fair_tta.extend import Adapter, AugMix
from fair_tta.metrics import Bootstrap
from fair_tta.models import TransformersBackend

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
    z, t = clf._task.sensitive_features["light"], clf._task.target_features
    with torch.no_grad():
        logits = (
            100 * z.double() @ t.double().T
        )  # centring twice is centring the features
    logits = logits - logits.mean(0, keepdim=True)
    logits = logits - logits.mean(1, keepdim=True)
    ours = [list(row.values()) for row in table.values()]
    torch.testing.assert_close(torch.tensor(ours, dtype=torch.float64), logits)
    assert list(table) == ["day", "dusk", "night"]
    assert list(table["day"]) == ["cat", "dog", "bird"]


def test_associations_follow_the_weights() -> None:
    model, *others = families.seeded(families.clip)
    mine = FairTPTClassifier(
        TransformersBackend(model, *others), TARGETS, SENSITIVE, TEMPLATE
    )
    before = associations_of(mine._task)
    with torch.no_grad():
        model.text_projection.weight.copy_(
            model.text_projection.weight.flip(0) * 3 + 0.1
        )
    mine.predict(IMAGES[0])  # the next call notices
    assert associations_of(mine._task) != before


def test_nothing_sensitive_is_nothing_to_examine(clf: FairTPTClassifier) -> None:
    plain = FairTPTClassifier(clf._backend, TARGETS)
    with pytest.raises(
        FairTTAError, match=r"^`sensitive` should name what should not matter"
    ):
        plain.examine(IMAGES, None)


def test_figures_are_those_of_the_predictions(
    clf: FairTPTClassifier, examination: Examination
) -> None:
    document = examination.document
    own = clf.with_adapter(ZeroShot()).predict(IMAGES)
    q = [list(p.zero_shot.values()) for p in own]
    before = [clf.targets.index(p.label) for p in own]
    assert (document.n, document.targets) == (10, clf.targets)
    for attribute, of in document.attributes.items():
        w = np.array([list(p.sensitive_zero_shot[attribute].values()) for p in own])
        assert [s.value for s in of.shares.values()] == pytest.approx(
            w.mean(0), abs=1e-6
        )
        assert of.confidence.value == pytest.approx(w.max(1).mean(), abs=1e-6)
        entropy = np.mean([p.sensitive_entropy_zero_shot[attribute] for p in own])
        assert of.entropy.value == pytest.approx(entropy, abs=1e-5)
        assert of.r_squared == pytest.approx(r_squared(np.log(q), w), abs=1e-3)
        assert of.associations == associations_of(clf._task)[attribute]
        wanted = pseudo_equalized_odds_difference(before, q, w)
        assert of.pseudo_eod.value == pytest.approx(wanted, abs=1e-5)
        for adapter in document.adapters:
            found = clf.with_adapter(ADAPTERS[adapter.name]).predict(IMAGES)
            after = [clf.targets.index(p.label) for p in found]
            assert adapter.changed == sum(p.flipped for p in found)
            low, high = wilson(adapter.changed, 10)
            assert (adapter.changed_share.low, adapter.changed_share.high) == (
                low,
                high,
            )
            figure = adapter.pseudo_eod[attribute]
            value = pseudo_equalized_odds_difference(after, q, w)
            assert figure.after.value == pytest.approx(value, abs=1e-5)
            assert figure.change.value == pytest.approx(value - wanted, abs=1e-5)
            assert figure.change.low <= figure.change.value <= figure.change.high  # type: ignore[operator]
    assert document.adapters[0].adapter.name == "Zero"


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
    names = list(ADAPTERS)[::-1]
    again = clf.examine(iter(IMAGES), {n: ADAPTERS[n] for n in names}, progress=True)
    first, second = examination.document, again.document
    for one in first.adapters:
        other = next(a for a in second.adapters if a.name == one.name)
        assert other.changed == one.changed
        for attribute, figure in one.pseudo_eod.items():
            low = other.pseudo_eod[attribute].change.low
            assert low == pytest.approx(figure.change.low, abs=1e-4)
    wide = clf.examine(IMAGES, ADAPTERS, interval=Bootstrap(100, 1, 0.5))
    assert wide.document.settings.level == 0.5
    assert (
        wide.document.attributes["place"].entropy != first.attributes["place"].entropy
    )


def test_adapters_in_a_list_have_the_names_of_their_classes(
    clf: FairTPTClassifier,
) -> None:
    found = clf.examine(IMAGES[:2], [OrthCali(), ZeroShot()])
    assert [a.name for a in found.document.adapters] == ["OrthCali", "ZeroShot"]
    assert found.document.adapters[1].changed == 0
    assert found.document.adapters[1].pseudo_eod["place"].change.value == 0
    with pytest.raises(FairTTAError, match="`adapters` should differ in their classes"):
        clf.examine(IMAGES, [OrthCali(), OrthCali(lam=0)])


def test_one_method_unless_asked_otherwise(clf: FairTPTClassifier) -> None:
    (adapter,) = clf.examine(IMAGES[:3]).document.adapters
    assert adapter.name == "AssociationCorrection"
    with pytest.raises(FairTTAError, match="needs sensitive attribute values"):
        FairTPTClassifier(clf._backend, TARGETS).examine(IMAGES)


def test_looking_only(clf: FairTPTClassifier) -> None:
    found = clf.examine(IMAGES[:3], None)
    assert found.document.adapters == ()
    assert found.document.ranking == {"place": (), "light": ()}
    assert found.document.notice not in str(found)
    assert Examination.from_json(found.to_json()) == found


def test_what_cannot_be_examined(clf: FairTPTClassifier, tmp_path: Path) -> None:
    with pytest.raises(
        FairTTAError, match=r"`images` should be several images \(got one\)"
    ):
        clf.examine(IMAGES[0])
    with pytest.raises(
        FairTTAError, match=r"`images` should be at least one image \(got none\)"
    ):
        clf.examine([])
    with pytest.raises(ImageError, match="`images` should be an image"):
        clf.examine(7)
    with pytest.raises(ImageError, match=r"^image 1: .*gone\.png"):
        clf.examine([IMAGES[0], tmp_path / "gone.png"])


def test_saved_and_loaded(examination: Examination, tmp_path: Path) -> None:
    examination.save(tmp_path / "examine.json")
    again = Examination.load(tmp_path / "examine.json")
    assert again == examination
    assert again.to_dict()["schema"] == "fair-tta/examination/1"
    assert str(again) == str(examination)
    assert isinstance(again.document, ExaminationDocument)


def edited(text: str, place: tuple[Any, ...], value: Any) -> str:
    document = inner = json.loads(text)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("n",), 0, "this is not an examination of schema 'fair-tta/examination/1': "),
        (
            ("schema",),
            "x",
            "this examination has the schema 'x', but this version of fair-tta",
        ),
        (
            ("ranking", "place"),
            ["zero"],
            "the ranking of 'place' is not one of the adapters",
        ),
        (("targets",), ["cat", "dog"], "the associations of 'place' are not complete"),
        (
            ("adapters", 1, "pseudo_eod"),
            {},
            "'orth' is not examined by every attribute",
        ),
        (
            ("adapters", 0, "changed_share", "value"),
            1.5,
            "at `$.adapters[0].changed_share.value`",
        ),
        (("more",), 1, "unknown field `more`"),
    ],
)
def test_damaged_files_are_one_clear_error(
    examination: Examination,
    tmp_path: Path,
    place: tuple[Any, ...],
    value: Any,
    message: str,
) -> None:
    path = tmp_path / "examine.json"
    path.write_text(edited(examination.to_json(), place, value))
    with pytest.raises(FairTTAError) as error:
        Examination.load(path)
    assert message in str(error.value)


def test_truncated_and_flipped(examination: Examination) -> None:
    whole, chance = examination.to_json().encode(), random.Random(0)
    for _ in range(150):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        for text in (bytes(flipped), whole[: chance.randrange(len(whole) - 2)]):
            try:
                str(Examination.from_json(text))
            except FairTTAError:
                continue
            assert text == bytes(flipped)
