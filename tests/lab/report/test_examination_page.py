"""The page of an examination: its structure, its words, and names that try to break it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from internals import ChangedImage, Floats, examine_predictions
from internals import examination_text as sentences
from PIL import Image
from report_samples import HOSTILE, Page, provenance

from fair_tta import OrthCali
from fair_tta.auditing import Examination
from fair_tta.extend import Adapter
from fair_tta.lab.report import examination_html
from fair_tta.metrics import Bootstrap
from fair_tta.prediction import Prediction

PLACE = {"place": ["on water", "on land"]}


def examined(
    n: int = 120,
    targets: Sequence[str] = ("water bird", "land bird"),
    sensitive: Mapping[str, Sequence[str]] = PLACE,
    adapters: Sequence[str] = ("orthcali", "zero"),
    lean: float = 3.0,
    sure: float = 3.0,
    corrected: Sequence[float] = (1.0, -0.5),
    pictures: int = 2,
) -> Examination:
    """A made-up model whose answers lean on the first attribute; methods take some of it away."""
    random = np.random.default_rng(0)
    names = {a: list(values) for a, values in sensitive.items()}
    logits = {
        a: {
            v: {y: 0.3 * (i - j) for j, y in enumerate(targets)}
            for i, v in enumerate(vs)
        }
        for a, vs in names.items()
    }
    methods: dict[str, Adapter] = {name: OrthCali() for name in adapters}
    first, found = next(iter(names)), []
    for _ in range(n):
        w = {a: softmax(sure * random.normal(size=len(v))) for a, v in names.items()}
        lift = np.resize([1.0, 0.0], len(targets)) * (w[first][0] - 1 / len(w[first]))
        own = random.normal(size=len(targets))
        answers = [
            own + lean * (1 - c) * lift for c in (0.0, *corrected[: len(adapters)])
        ]
        found.append([predicted(x, answers[0], targets, w, names) for x in answers])
    origin, notes = provenance(targets, names), ["Not all images were used."]
    document = examine_predictions(
        logits, methods, found, Bootstrap(100), origin, notes
    )
    image = Image.new("RGB", (40, 20), "red")
    some = [
        ChangedImage(a, f"<{a}> {i}", image, targets[0], targets[-1], 0.61, 0.734)
        for a in adapters
        for i in range(pictures)
    ]
    return Examination(document, tuple(some))


def softmax(x: Floats) -> Floats:
    e = np.exp(x - x.max())
    shares: Floats = e / e.sum()
    return shares


def predicted(
    logits: Floats,
    zero_shot: Floats,
    targets: Sequence[str],
    w: Mapping[str, Floats],
    names: Mapping[str, Sequence[str]],
) -> Prediction:
    p, q = softmax(logits), softmax(zero_shot)
    beliefs = {a: dict(zip(names[a], x.tolist(), strict=True)) for a, x in w.items()}
    return Prediction(
        label=targets[int(p.argmax())],
        probabilities=dict(zip(targets, p.tolist(), strict=True)),
        zero_shot=dict(zip(targets, q.tolist(), strict=True)),
        sensitive=beliefs, sensitive_zero_shot=beliefs, entropy=0.5, entropy_zero_shot=0.5,
        sensitive_entropy={}, sensitive_entropy_zero_shot={}, distance=0.0, flip_margin=0.0,
        certified_unchanged=False, warnings=("bounded",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def examinations() -> dict[str, Examination]:
    many = {"race": [f"value {i}" for i in range(9)], "age": ["young", "old"]}
    return {
        "usual": examined(),
        "look only": examined(adapters=[]),
        "several": examined(sensitive=many, targets=[f"class {i}" for i in range(12)]),
        "unseen": examined(sure=0.1),
        "one image": examined(n=1),
        "hostile": examined(
            sensitive=HOSTILE,
            adapters=["<b>x</b>", "a" * 300, "{{ 7 * 7 }}"],
            corrected=(1.0, 0.5, -1.0),
            targets=["</style><script>x</script>", "#010101 url(#a)"],
        ),
    }


NAMES = ["usual", "look only", "several", "unseen", "one image", "hostile"]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_well_formed_and_needs_nothing_else(
    examinations: dict[str, Examination], name: str
) -> None:
    text = examination_html(examinations[name], images=True)
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert len(set(page.ids)) == len(page.ids)
    assert len(page.all("h1")) == 1
    policy = next(
        m for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"
    )
    assert (
        policy["content"]
        == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    )
    assert {"script", "iframe", "object", "form", "base"}.isdisjoint(
        tag for tag, _ in page.tags
    )
    for _, attributes in page.tags:
        assert not any(key.startswith("on") for key in attributes)
        for key in ("src", "href"):
            assert (attributes.get(key) or "#").startswith(("#", "data:"))
    style = text[text.index("<style>") : text.index("</style>")]
    for loading in ("url(", "@import"):
        assert loading not in style
        assert not any(loading in (a.get("style") or "") for _, a in page.tags)
    for image in page.all("img"):
        assert image["alt"]
    for drawing in page.all("svg"):
        assert drawing["role"] == "img"
        assert drawing["aria-label"]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(then <= before + 1 for before, then in pairwise(levels))
    assert text == examination_html(examinations[name], images=True)


def test_hostile_names_stay_text(examinations: dict[str, Examination]) -> None:
    text = examination_html(examinations["hostile"], images=True)
    page = Page(text)
    assert "<b>x</b>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "49" not in re.findall(r"\b49\b(?= of)", page.text)
    assert not [tag for tag, _ in page.tags if tag in ("b", "script")]
    assert "onerror=alert(1)" in page.text
    assert not [image for image in page.all("img") if image.get("src") == "x"]
    text.encode()
    titled = Page(examination_html(examinations["usual"], title="<i>mine</i>\x00"))
    assert "<i>mine</i>\N{REPLACEMENT CHARACTER}" in titled.text


def test_the_verdict_comes_first(examinations: dict[str, Examination]) -> None:
    page = Page(examination_html(examinations["usual"], images=True))
    text = " ".join(page.text.split())
    order = [
        "water bird or land bird, by place: CLIPModel (tiny) on 120 images without labels",
        "not a measurement on people",
        "What is perceived",
        "The model perceives place: on ",
        "How far answers lean",
        "What to do",
        "Try orthcali: perceived gap",
        "Not all images were used.",
        "Perceived gap",
        "What the words of the prompts associate",
        "What each method would change",
        "rank correlation 0.78",
        "Shares perceived, and how many labels would settle it",
        "How many labels would settle it",
        "Images whose answer would change",
        "What this cannot show",
        "How it was looked at: model, prompts, settings, versions, machine",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert page.all("details")
    assert not any("open" in attributes for attributes in page.all("details")), (
        "all is folded"
    )


def test_associations_are_a_table_whose_shorter_side_goes_across() -> None:
    for targets in (2, 5):
        found = examined(targets=[f"c{i}" for i in range(targets)], adapters=[])
        table = found.document.attributes["place"].associations
        page = examination_html(found)
        rows = Page(page).tables["attribute-1-associations"]
        shown = {
            (row[0], name): cell
            for row in rows[1:]
            for name, cell in zip(rows[0][1:], row[1:], strict=True)
        }
        assert len(rows[0]) == 3  # two values, or two classes
        for value, of in table.items():
            for name, x in of.items():
                cell = shown.get((value, name), shown.get((name, value), ""))
                assert float(cell.replace("\N{MINUS SIGN}", "-")) == pytest.approx(
                    x, abs=0.006
                )
        most = max(1.0, *(abs(x) for of in table.values() for x in of.values()))
        first = next(iter(next(iter(table.values())).values()))
        assert f"--share: {0.06 + 0.6 * abs(first) / most:.3f}" in page


def test_the_table_has_the_figures_in_the_order_of_the_ranking(
    examinations: dict[str, Examination],
) -> None:
    document = examinations["usual"].document
    table = Page(examination_html(examinations["usual"])).tables["attribute-1-methods"][
        1:
    ]
    assert [row[0].split()[0] for row in table] == ["orthcalinarrows", "zeronot"]
    for row, adapter in zip(
        table, sentences.ranked_adapters(document, "place"), strict=True
    ):
        change = adapter.pseudo_eod["place"]
        assert change.change.value is not None
        assert f"{abs(100 * change.change.value):.1f}" in row[1]
        assert row[2].startswith(f"{adapter.changed}")
        assert row[3].startswith(f"{adapter.labels_needed.pictures:,}")
        assert f"{adapter.labels_needed.labels:,} labelled" in row[3]
        assert row[4] == f"{change.images_needed:,}"


def test_looking_only_advises_to_try_or_to_label(
    examinations: dict[str, Examination],
) -> None:
    document = examinations["look only"].document
    card = sentences.examination_cards(document, "place")[2]
    assert card.text.startswith("No method was tried")
    assert "label 385 images of each group" in card.details
    text = examination_html(examinations["look only"])
    assert "What each method would change" not in text
    assert "rank correlation" not in text
    plan = " ".join(sentences.label_plan(document, "place"))
    assert "each of the 4 groups of class and place up to 5.0 points" in plan
    assert "The table" not in plan


def test_methods_that_do_nothing_or_too_much_are_told() -> None:
    still = examined(corrected=(0.0, 0.0))
    (idle, _) = still.document.adapters
    assert (idle.labels_needed.pictures, idle.pseudo_eod["place"].images_needed) == (
        None,
        None,
    )
    assert sentences.examination_cards(still.document, "place")[2].text == (
        "No method tried is seen to narrow the perceived gap."
    )
    page = examination_html(still)
    assert "nothing changes" in page
    much = examined(corrected=(8.0, 0.0)).document
    assert any(
        re.match(
            r"orthcali changes \d+ of 100 answers, more than one in five", sentence
        )
        for sentence in sentences.examination_banners(much)
    )
    assert sentences.examination_banners(still.document) == list(
        still.document.warnings
    )


def test_the_first_method_that_is_seen_to_narrow_is_advised() -> None:
    plain = examined().to_dict()
    ends = {"orthcali": (-0.12, -0.26, 0.02), "zero": (-0.05, -0.08, -0.02)}
    for method in plain["adapters"]:
        of = dict(zip(("value", "low", "high"), ends[method["name"]], strict=True))
        method["pseudo_eod"]["place"]["change"].update(of)
    plain["ranking"]["place"] = ["orthcali", "zero"]
    found = Examination.from_json(json.dumps(plain))
    todo = sentences.examination_cards(found.document, "place")[2]
    assert todo.text.startswith("Try zero: perceived gap \N{MINUS SIGN}5.0 points [")
    assert (
        "Intervals and verdicts do not allow for the number of methods"
        in examination_html(found)
    )


def test_no_images_leaves_nothing_of_them(examinations: dict[str, Examination]) -> None:
    usual = examinations["usual"]
    page = Page(examination_html(usual, images=True))
    assert len(page.all("img")) == 4
    assert "orthcali: 2 of" in page.text
    assert "<orthcali> 1" in page.text
    assert "(61.0 %)" in page.text
    bare = examination_html(usual)
    assert "<img" not in bare
    assert "data:image" not in bare
    assert "&lt;orthcali&gt; 1" not in bare
    assert "Images whose answer would change" not in bare
    assert bare == examination_html(replace(usual, images=()), images=True)


def test_from_the_examination_and_into_a_file(
    examinations: dict[str, Examination], tmp_path: Path
) -> None:
    usual = examinations["usual"]
    assert usual.to_html() == examination_html(usual)
    usual.save_html(tmp_path / "look.html", title="Birds", images=True)
    assert (tmp_path / "look.html").read_text("utf-8") == examination_html(
        usual, title="Birds", images=True
    )
    usual.save(tmp_path / "examine.json")
    again = Examination.load(tmp_path / "examine.json")
    assert again == usual
    assert again.images == ()
    assert again.to_html() == usual.to_html()


def test_small_shares_do_not_become_nothing() -> None:
    page = examination_html(examined(n=400, corrected=(0.01, 0.0)))
    assert "on 400 images without labels</h1>" in page
    many = examined(targets=[f"c{i}" for i in range(5)], adapters=[])
    assert "<h1>5 classes, by place: " in examination_html(many)
    card = sentences.examination_cards(
        examined(n=1, targets=["a", "b"]).document, "place"
    )[1]
    assert card.heading == "How far answers lean"
