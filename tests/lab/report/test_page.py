"""The HTML page: its structure, its numbers, and names that try to break it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    Estimate,
    clopper_pearson_bounds,
    mean_rate_bounds,
    wilson,
)
from markdown_it import MarkdownIt
from PIL import Image
from report_samples import HOSTILE, Page, sample

from fair_tta.auditing import Audit
from fair_tta.lab.report import (
    GalleryImage,
    html,
    html_many,
    markdown,
    write_report,
)
from fair_tta.metrics.definitions import METRICS

THREE = {
    "age": ["young", "middle", "old"],
    "gender": ["man", "woman"],
    "hat": ["hat", "bare"],
}


def gallery_image(caption: str = "a bird", group: str = "") -> GalleryImage:
    image = Image.new("RGB", (24, 12), "red")
    return GalleryImage(image, caption, "dark", "blond", "blond", 0.61, 0.73, group)


@pytest.fixture(scope="module")
def audits() -> dict[str, Audit]:
    return {
        "one run": sample(runs=["ZeroShot"]),
        "one run, no scores": sample(n=30, runs=["ZeroShot"], scores=False),
        "three runs": sample(),
        "three attributes, twelve groups": sample(sensitive=THREE, targets="abc"),
        "absent values": sample(
            n=60, sensitive={"age": ["young", "old", "unseen"]}, absent=True
        ),
        "hostile": sample(
            n=100,
            sensitive=HOSTILE,
            runs=["<b>ZeroShot</b>", "a" * 300, "x\x07y"],
            targets=["</style><script>x</script>", "#010101 url(#a)"],
        ),
        "one image": sample(
            n=1, runs=["a", "b"], targets=["x"], sensitive={"s": ["u", "v"]}
        ),
        "many runs": sample(n=60, runs=[f"run {i}" for i in range(12)]),
        "many groups": sample(
            n=200,
            runs=["a", "b"],
            targets="abcdef",
            sensitive={"s": [f"s{i}" for i in range(20)]},
        ),
    }


@pytest.fixture(scope="module")
def pages(audits: dict[str, Audit]) -> dict[str, str]:
    pages = {name: html(audit) for name, audit in audits.items()}
    pages["many"] = html_many(
        "Several <tasks>",
        [
            (name, audits[name], [gallery_image()])
            for name in ("three runs", "one run", "hostile")
        ],
        intro="First.\n\nSecond <i>.",
    )
    return pages


def test_every_page_is_well_formed_and_needs_nothing_else(
    pages: dict[str, str],
) -> None:
    for name, text in pages.items():
        assert text.startswith("<!DOCTYPE html>\n"), name
        page = Page(text)
        _check_structure(page)
        _check_nothing_is_loaded(page, text)
        _check_it_can_be_read_aloud(page)


def _check_structure(page: Page) -> None:
    assert len(set(page.ids)) == len(page.ids)
    for tag in ("main", "header", "footer", "h1"):
        assert len(page.all(tag)) == 1
    for attributes in page.all("a"):
        assert (attributes["href"] or "").removeprefix("#") in page.ids
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(level <= before + 1 for before, level in pairwise(levels))
    for table in page.tables.values():
        lengths = {len(row) for row in table if "calibration error" not in "".join(row)}
        assert len(lengths) == 1


def _check_nothing_is_loaded(page: Page, text: str) -> None:
    assert {"script", "iframe"}.isdisjoint(tag for tag, _ in page.tags)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", re.sub("<style>.*?</style>", "", text))
    for tag, attributes in page.tags:
        for key, value in attributes.items():
            assert not key.startswith("on"), (tag, key)
            if key in ("src", "href", "xlink:href", "srcset", "data", "action"):
                assert (value or "").startswith(("#", "data:")), (tag, key, value)
            if key not in ("aria-label", "alt"):
                assert "http" not in (value or "") or tag == "meta"


def _check_it_can_be_read_aloud(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    assert any(meta.get("name") == "viewport" for meta in page.all("meta"))
    assert page.all("svg")
    for svg in page.all("svg"):
        assert svg["role"] in ("img", "group")
        assert len(svg["aria-label"] or "") > 40
    assert all(len(image["alt"] or "") > 10 for image in page.all("img"))
    assert all(th.get("scope") in ("row", "col") for th in page.all("th"))


def shown(figure: dict[str, Any], signed: bool = False) -> str:
    """Return a figure as it must look, computed independently."""

    def percent_of(share: float) -> str:
        text = f"{100 * abs(share):.1f}"
        if text == "0.0" and abs(share) > 1e-6:
            text = f"{100 * abs(share):.1g}"
        sign = "-" if share < -1e-6 else "+" if signed and share > 1e-6 else ""
        return sign + text

    if figure["low"] is None:
        return f"n/a{figure['reason']}"
    value, low, high = (percent_of(figure[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def plain(cell: str) -> str:
    return cell.replace("\N{MINUS SIGN}", "-")


def test_every_number_of_the_metrics_is_that_of_the_document(
    audits: dict[str, Audit], pages: dict[str, str]
) -> None:
    for name in (
        "one run",
        "one run, no scores",
        "three runs",
        "absent values",
        "many runs",
    ):
        document = audits[name].to_dict()
        rows = Page(pages[name]).tables["audit-table-metrics"]
        for row, metric in zip(rows[1:], document["runs"][0]["metrics"], strict=True):
            for i, (cell, run) in enumerate(
                zip(row[1:], document["runs"], strict=True)
            ):
                figure = run["metrics"][metric]
                expected = shown(figure)
                assert plain(cell).startswith(expected), (name, metric)
                if (
                    i
                    and metric != "expected_calibration_error"
                    and figure["value"] is not None
                ):
                    comparison = document["comparisons"][i - 1]
                    several = len(document["comparisons"]) > 1
                    difference = comparison["corrected" if several else "differences"][
                        metric
                    ]
                    assert shown(difference, signed=True) in plain(cell)
                    excludes = difference["low"] > 0 or difference["high"] < 0
                    words = "better|worse|higher|lower"
                    assert bool(re.search(words, cell)) == excludes
                    assert ("not distinguishable" in cell) != excludes


def test_every_number_of_the_groups_is_that_of_the_document(
    audits: dict[str, Audit], pages: dict[str, str]
) -> None:
    for name in ("one run", "three attributes, twelve groups", "absent values"):
        document = audits[name].to_dict()
        page = Page(pages[name])
        groups = page.tables["audit-table-groups"][1:]
        assert len(groups) == len(document["runs"][0]["groups"])
        for g, row in enumerate(groups):
            group = document["runs"][0]["groups"][g]
            assert row[0].startswith(" / ".join(group["sensitive"].values()))
            assert ("few images" in row[0]) == (0 < group["n"] < 30)
            assert row[1] == str(group["n"])
            for run, cell in zip(document["runs"], row[2:], strict=True):
                counts = run["groups"][g]
                right = f"{counts['correct']} right" if counts["n"] else ""
                assert cell == shown(counts["accuracy"]) + right
        cells = page.tables["audit-table-cells"][1:]
        ordered = [
            (target, g, c)
            for c, target in enumerate(document["data"]["targets"])
            for g in range(len(groups))
        ]
        assert len(cells) == len(ordered)
        for row, (target, g, c) in zip(cells, ordered, strict=True):
            assert row[0].startswith(target + " / ")
            for run, text in zip(document["runs"], row[2:], strict=True):
                cell = run["groups"][g]["classes"][c]
                assert text.startswith(shown(cell["true_positive_rate"]))
                worst = run["worst_group"]["(y, s)"]
                cell_name = (target, run["groups"][g]["sensitive"])
                assert ("worst group" in text) == (
                    (worst["target"], worst["sensitive"]) == cell_name
                )


def test_intervals_are_named_as_they_were_made() -> None:
    audit = sample(runs=["ZeroShot"])
    page = Page(html(audit)).text
    named = page[page.index("Of a run: ") :]
    run, level = audit.document.runs[0], audit.document.settings.level
    cells = [cell for group in run.groups for cell in group.classes]

    def bounds_of(figure: Estimate) -> Any:
        assert figure.low is not None
        assert figure.high is not None
        return pytest.approx((figure.low, figure.high))

    assert "Wilson for rates of groups" in named
    for cell in cells:
        assert wilson(cell.correct, cell.n, level) == bounds_of(cell.true_positive_rate)
    assert "Clopper and Pearson for the worst group;" in named
    right, n = (
        np.array([getattr(c, key) for c in cells], float) for key in ("correct", "n")
    )
    lowest = clopper_pearson_bounds(right, n, level)[0].min()
    assert run.metrics.worst_group_accuracy.low == pytest.approx(lowest)
    assert "Price and Bonett for balanced accuracy" in named
    assert run.metrics.balanced_accuracy is not None
    assert mean_rate_bounds(right, n, level) == bounds_of(run.metrics.balanced_accuracy)
    assert "200 draws of noise (seed 0) for the calibration error" in named
    assert "Wald with an image added at either end for ATC and ASI" in named
    assert "Holm" not in named[: named.index("Settings of each run")]


def test_changes_and_confusions_are_those_of_the_document(
    audits: dict[str, Audit], pages: dict[str, str]
) -> None:
    document = audits["three runs"].to_dict()
    tables = list(Page(pages["three runs"]).tables.values())
    overall = [row for table in tables for row in table if row[0] == "All images"]
    assert len(overall) == 2
    for row, comparison in zip(overall, document["comparisons"], strict=True):
        changes = comparison["changes"]
        keys = ("n", "changed", "wrong_to_right", "right_to_wrong", "wrong_to_wrong")
        assert row[1:6] == [str(changes[key]) for key in keys]
        assert plain(row[6]).startswith(
            shown(comparison["corrected"]["accuracy"], signed=True)
        )
        assert float(row[7]) == pytest.approx(changes["mcnemar_p"], rel=0.06)
        needed = changes["images_needed"]
        assert row[8] == ("n/ano net change" if needed is None else f"{needed:,}")
    confusions = [table for table in tables if table[0][0] == "true \\ answer"]
    expected = [
        group["confusion"] for run in document["runs"] for group in run["groups"]
    ]
    assert [
        [[int(x) for x in row[1:]] for row in t[1:]] for t in confusions
    ] == expected


def test_what_is_absent_has_a_reason(pages: dict[str, str]) -> None:
    page = Page(pages["absent values"])
    assert page.tables["audit-table-groups"][3][2].startswith("n/ano images: unseen")
    assert "unseenno images" in page.tables["audit-table-groups"][3][0].replace(
        " no", "no"
    )
    bare = Page(pages["one run, no scores"])
    for phrase in (
        "not recorded",
        "not timed",
        "no scores were passed",
        "One run only",
    ):
        assert phrase in bare.text
    assert "None" not in bare.text
    assert not re.search(r"\bnan\b", bare.text.lower())


def test_provenance_is_plain(pages: dict[str, str]) -> None:
    text = Page(pages["three runs"]).text
    for phrase in (
        "CLIPModel (tiny)",
        "ab" * 32,
        "151,277,313",
        "A photo {target}.",
        "with blond hair",
        "man: of a man",
        "AugMix(n=64)",
        "fair-tta audit --images faces",
        "rate.beta = 0.01",
        sample().document.data.hash,
    ):
        assert phrase in text


def test_what_differs_between_runs_is_plain() -> None:
    document = sample(n=60, runs=["a", "b"]).to_dict()
    origin = {key: document["provenance"][key] for key in ("model", "prompts", "views")}
    document["runs"][1] |= {
        "provenance": {**origin, "seed": 99},
        "warnings": {"the step was bounded": 3},
        "worst_group": {"(y, s)": None, "s": None},
    }
    text = Page(html(document)).text
    assert "differs from the others in seed: 99" in text
    assert "the step was bounded (3 images)" in text


def test_no_promise(pages: dict[str, str]) -> None:
    for text in (Page(page).text for page in pages.values()):
        assert "does not establish compliance" in text
        assert "can serve as evidence for" in text
        assert "Article 10" in text
        assert "Article 15" in text
        assert "MEASURE 2.11" in text
        assert not re.search(
            "guarantee|unbiased|debias|remov\\w+ bias|compliant|is fair", text.lower()
        )


def test_names_cannot_break_the_page(pages: dict[str, str]) -> None:
    page = Page(pages["hostile"])
    text = " ".join(page.text.split())
    for name in (
        "a<script>alert(1)</script>",
        "{{ 7 * 7 }}",
        "$x^{$",
        "b & | `c` *d* # e",
    ):
        assert name in text
    assert "49" not in re.sub(r"[\d.]{3,}", "", text[:2000])
    assert {attributes.get("src") for attributes in page.all("img")} == set()
    pages["hostile"].encode()  # no lone surrogates
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", pages["hostile"])
    assert "東京" in text


def test_names_cannot_turn_the_figures_round() -> None:
    """After a right-to-left override 81 would be shown as 18, to the end of the sentence."""
    override = "\N{RIGHT-TO-LEFT OVERRIDE}"
    page = html(sample(n=40, runs=["a", "b"], targets=[f"x{override}", "y"]))
    assert override not in page


@settings(max_examples=5, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=20), min_size=4, max_size=4, unique=True))
def test_any_name_will_do(names: list[str]) -> None:
    a, b, c, d = names
    Page(
        html(
            sample(
                n=20, runs=["r"], targets=[a, b], sensitive={"s": [c, d]}, scores=False
            )
        )
    )


@pytest.mark.slow
def test_the_same_audit_gives_the_same_bytes(tmp_path: Path) -> None:
    """In another process too, where sets have another order."""
    audit = sample(n=60, runs=["a", "b"])
    audit.save(tmp_path / "audit.json")
    code = (
        "import sys; from fair_tta.auditing import Audit;"
        "from fair_tta.lab.report import write_report;"
        "write_report(Audit.load('audit.json'), 'page.html');"
        "assert 'matplotlib' not in sys.modules"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment
    )
    assert (tmp_path / "page.html").read_bytes() == html(audit).encode()


def test_images_have_a_text_alternative() -> None:
    images = [gallery_image(caption='"<big>'), ("image", "c", "a", "a", "b", 1, 0)]
    images[1] = (Image.fromarray(np.zeros((3, 5), np.uint8)), *images[1][1:])
    page = Page(html(sample(n=60, runs=["a"]), gallery=images))
    assert [image["alt"] for image in page.all("img")] == [
        '"<big>. Before: dark (61.0 %). After: blond (73.0 %). Truth: blond. '
        "From wrong to right.",
        "c. Before: a (100.0 %). After: a (0.0 %). Truth: b. Unchanged, wrong.",
    ]


def test_a_click_on_a_group_shows_its_images() -> None:
    first = gallery_image(group="blond / man")
    other = gallery_image(group="blond / nobody")
    for runs in (["a"], ["a", "b"]):
        page = Page(html(sample(n=60, runs=runs), gallery=[first, other, first]))
        links = [
            a["href"]
            for a in page.all("a")
            if (a["href"] or "").startswith("#audit-images")
        ]
        assert links == ["#audit-images-1"]
        assert {"audit-images-1", "audit-images-2"} <= set(page.ids)
        assert len(page.all("img")) == 3
        assert "A click on a group shows its images." in page.text
    assert "A click" not in html(sample(n=60, runs=["a"]))


def test_a_full_page_has_all_sections_open() -> None:
    audit = sample(n=60, runs=["a", "b"])
    folded, full = (
        Page(html(audit, full=full)).all("details") for full in (False, True)
    )
    assert len(full) == len(folded) > 8
    assert not any("open" in attributes for attributes in folded)
    assert all("open" in attributes for attributes in full)


def test_model_weights_and_day_stand_below_the_title(pages: dict[str, str]) -> None:
    day = sample().document.origin.time[:10]
    head = Page(pages["three runs"]).text.split("What is wrong")[0]
    for known in ("CLIPModel (tiny), weights abababababab", "400 images", day):
        assert known in head
    assert "answers of a model that was not recorded" in pages["one run, no scores"]


def test_several_audits(pages: dict[str, str]) -> None:
    page = Page(pages["many"])
    assert "Several <tasks>" in page.text
    assert "Second <i>." in page.text
    assert {"overview", "audit-1", "audit-2", "audit-3", "limits", "evidence"} <= set(
        page.ids
    )
    assert len(page.all("img")) == 3
    assert page.text.count("Not distinguishable is not equal") == 1


def test_a_document_will_do(audits: dict[str, Audit], pages: dict[str, str]) -> None:
    assert html(audits["one run"].to_dict()) == pages["one run"]


def test_write_report(
    tmp_path: Path, audits: dict[str, Audit], pages: dict[str, str]
) -> None:
    write_report(audits["one run"], tmp_path / "a.HTML")
    assert (tmp_path / "a.HTML").read_text("utf-8") == pages["one run"]
    write_report(audits["one run"], str(tmp_path / "a.md"), title="Mine")
    assert (
        (tmp_path / "a.md").read_text("utf-8").startswith("## Mine: a typical gap of ")
    )


def test_the_card_has_the_figures() -> None:
    audit = sample()
    document = audit.document
    text = markdown(audit)
    html_of_card = MarkdownIt("commonmark").enable("table").render(text)
    metrics, groups = Page(f"<div>{html_of_card}</div>").tables.values()
    assert [row[0] for row in metrics[1:]] == [m.title for m in METRICS.values()]
    figures = [run.metrics.by_name() for run in document.runs]
    for row, key in zip(metrics[1:], METRICS, strict=True):
        for cell, of_run in zip(row[1:], figures, strict=True):
            estimate = of_run[key]
            assert plain(cell).startswith(
                shown({k: getattr(estimate, k) for k in ("value", "low", "high")})
            )
    cells = []
    for group in document.runs[0].groups:
        for of_class in group.classes:
            name = f"{of_class.target} / {group.sensitive['gender']}"
            cells.append([name, str(of_class.n)])
    assert [row[:2] for row in groups[1:]] == cells
    assert document.data.hash in text
    assert "do not show the model to be fair" in text
    assert "None" not in text
    assert len(text) < 6000


def test_the_card_of_many_groups_is_short() -> None:
    audit = sample(targets="abcdef", sensitive={"s": [f"s{i}" for i in range(20)]})
    assert "The 24 worst groups; 96 more are in the audit." in markdown(audit)
