"""Every picture of the docs is shown, told in words, small, and made by the command."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

import picture_canvas
import picture_house
import pictures

DOCS = Path(__file__).parents[2] / "docs"


def test_the_pictures_of_the_docs_are_in_order() -> None:
    assert pictures.problems(DOCS) == []


def test_every_picture_is_one_that_the_command_makes() -> None:
    existing = {
        p.stem for p in DOCS.iterdir() if p.suffix in (".svg", ".png", ".webp", ".jpg")
    }
    existing = {name for name in existing if not name.startswith(("app-", "effect-"))}
    assert existing == set(pictures.EVERY) - {"app", "effect"}


def test_no_picture_asks_another_host() -> None:
    for path in DOCS.glob("*.svg"):
        shown_files = set(
            re.findall(
                r"(?:href|src)=\"(https?:[^\"]+)|url\((https?:[^)]+)", path.read_text()
            )
        )
        assert not shown_files, path.name


def test_captions_name_a_command() -> None:
    """The paragraph after a picture, or before it if two follow each other."""
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text("utf-8")
        if "The three images are made by `python tools/app_pictures.py`" in text:
            continue
        parts = text.split("\n\n")
        for k, part in enumerate(parts):
            if part.startswith("!["):
                neighbours = parts[max(0, k - 1)] + parts[k + 1]
                assert "`python " in neighbours, (page.name, part[:60])


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("![](gone.svg)\n\n```\n![in code](not.svg)\n```\n")
    (docs / "large.png").write_bytes(bytes(pictures.LARGEST + 1))
    assert pictures.problems(docs) == [
        "a.md: there is no gone.svg",
        "a.md: gone.svg should have alt text (got '')",
        "large.png: no page shows it",
        "large.png: 150,001 bytes, more than 150,000",
    ]


def test_what_is_wrong_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.md").write_text("![a picture told in words](gone.svg)")
    monkeypatch.setattr(pictures, "DOCS", tmp_path)
    with pytest.raises(SystemExit) as caught:
        pictures.main(["--check"])
    assert caught.value.code is True
    assert capsys.readouterr().out == "a.md: there is no gone.svg\n"


def test_pixels_are_drawn_where_they_are(tmp_path: Path) -> None:
    image = Image.new("RGB", (3, 2), "red")
    image.putpixel((2, 1), (0, 0, 255))
    canvas = picture_canvas.Canvas(30, 20, "six < pixels")
    canvas.pixels(0, 0, 30, image)
    canvas.save(tmp_path / "a.svg")
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root[0].text == "six < pixels"
    ways = {
        path.get("fill"): path.get("d")
        for path in root.iter("{http://www.w3.org/2000/svg}path")
    }
    assert ways == {"#ff0000": "M0 0h3v1h-3zM0 1h2v1h-2z", "#0000ff": "M2 1h1v1h-1z"}


def test_every_package_is_drawn() -> None:
    drawing = (DOCS / "architecture.svg").read_text("utf-8")
    drawn = {
        name
        for row in (*picture_house.LAB, *picture_house.CORE)
        for name in row.split(" | ")
    }
    for name in drawn:
        assert name in drawing, "python tools/pictures.py --only architecture"
    root = DOCS.parent / "src" / "fair_tta"
    packages = [*root.glob("*/__init__.py"), *root.glob("lab/*/__init__.py")]
    folders = {path.parent.name for path in packages}
    assert folders - {"lab", "miniature"} <= drawn


def test_tables_of_pages_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import picture_charts

    monkeypatch.setattr(picture_charts, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "p.md").write_text(
        "| a | b |\n|---|---|\n| **1** | 2 |\n\nmore\n"
    )
    assert picture_charts.page_table("docs/p.md", "a") == [["a", "b"], ["1", "2"]]
    with pytest.raises(SystemExit, match="has no table that begins with 'c' any more"):
        picture_charts.page_table("docs/p.md", "c")
