"""The page of an examination: its structure, its figures, and names that try to break it.

`tests/messages/report_inputs.py` has its sentences.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from examination_samples import examined
from internals import examination_text
from report_samples import HOSTILE, Page

from fair_tta.auditing import Examination
from fair_tta.lab.report import examination_html


@pytest.fixture(scope="module")
def examinations() -> dict[str, Examination]:
    many = {"race": [f"value {i}" for i in range(9)], "age": ["young", "old"]}
    return {
        "usual": examined(),
        "look only": examined(adapters=[]),
        "several": examined(sensitive=many, targets=[f"class {i}" for i in range(12)]),
        "unseen": examined(confidence=0.1),
        "one image": examined(n=1),
        "hostile": examined(
            sensitive=HOSTILE,
            adapters=["<b>x</b>", "a" * 300, "{{ 7 * 7 }}"],
            corrected=(1.0, 0.5, -1.0),
            targets=["</style><script>x</script>", "#010101 url(#a)"],
        ),
    }


@pytest.mark.parametrize(
    "name", ["usual", "look only", "several", "unseen", "one image", "hostile"]
)
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
    assert all(level <= before + 1 for before, level in pairwise(levels))
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
    positions = [text.index(words) for words in order]
    assert positions == sorted(positions)
    assert page.all("details")
    assert not any("open" in attributes for attributes in page.all("details")), (
        "all is folded"
    )


@pytest.mark.parametrize("n_targets", [2, 5])
def test_associations_are_a_table_whose_shorter_side_goes_across(
    n_targets: int,
) -> None:
    targets = [f"c{i}" for i in range(n_targets)]
    examination = examined(targets=targets, adapters=[])
    page = examination_html(examination)
    header, *rows = Page(page).tables["attribute-1-associations"]
    assert len(header) == 3  # two values, or two classes
    cells = {}
    for row in rows:
        for name, cell in zip(header[1:], row[1:], strict=True):
            cells[row[0], name] = float(cell.replace("\N{MINUS SIGN}", "-"))
    associations = examination.document.attributes["place"].associations
    logits = []
    for value, by_target in associations.items():
        for target, logit in by_target.items():
            shown = cells.get((value, target), cells.get((target, value)))
            assert shown == pytest.approx(logit, abs=0.006)
            logits.append(logit)
    strongest = max(1.0, *map(abs, logits))
    assert f"--share: {0.06 + 0.6 * abs(logits[0]) / strongest:.3f}" in page


def test_the_table_has_the_figures_in_the_order_of_the_ranking(
    examinations: dict[str, Examination],
) -> None:
    document = examinations["usual"].document
    table = Page(examination_html(examinations["usual"])).tables["attribute-1-methods"][
        1:
    ]
    assert [row[0].split()[0] for row in table] == ["orthcalinarrows", "zeronot"]
    for row, adapter in zip(
        table, examination_text.ranked_adapters(document, "place"), strict=True
    ):
        change = adapter.pseudo_eod["place"]
        assert change.change.value is not None
        assert f"{abs(100 * change.change.value):.1f}" in row[1]
        assert row[2].startswith(f"{adapter.changed}")
        assert row[3].startswith(f"{adapter.labels_needed.pictures:,}")
        assert f"{adapter.labels_needed.labels:,} labelled" in row[3]
        assert row[4] == f"{change.images_needed:,}"


def test_without_methods_there_is_no_table_of_them(
    examinations: dict[str, Examination],
) -> None:
    text = examination_html(examinations["look only"])
    assert "What each method would change" not in text
    assert "rank correlation" not in text
    assert "nothing changes" in examination_html(examined(corrected=(0.0, 0.0)))


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


def test_the_title_has_few_classes_by_name() -> None:
    page = examination_html(examined(n=400, corrected=(0.01, 0.0)))
    assert "on 400 images without labels</h1>" in page
    many = examined(targets=[f"c{i}" for i in range(5)], adapters=[])
    assert "<h1>5 classes, by place: " in examination_html(many)
