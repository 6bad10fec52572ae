"""Escaping for Markdown, embedded images and colours."""

from __future__ import annotations

import re
from importlib.resources import files

from hypothesis import given
from hypothesis import strategies as st
from internals import embedded_image, for_markdown
from markdown_it import MarkdownIt
from PIL import Image
from report_samples import HOSTILE, Page, sample

from fair_tta.lab.report import markdown


def rendered(text: str) -> Page:
    html = MarkdownIt("commonmark").enable("table").render(text)
    return Page(f"<div>{html}</div>")


def test_names_cannot_break_the_card() -> None:
    audit = sample(
        n=60, sensitive=HOSTILE, runs=["<b>|`r`", "[x](http://y)"], targets=["*a*", "_"]
    )
    page = rendered(markdown(audit, title="# <script>"))
    assert {"script", "img", "b", "a", "em", "code"}.isdisjoint(
        tag for tag, _ in page.tags
    )
    assert page.text.splitlines()[0] == "# <script>: no verdict on the gap"
    metrics, groups = page.tables.values()
    assert metrics[0] == ["metric", "<b>|`r`", "[x](http://y)"]
    assert {len(row) for row in groups} == {4}


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_any_name_survives_markdown(name: str) -> None:
    page = rendered(f"| x{for_markdown(name)} |\n|---|\n")
    assert page.tables["table 0"] == [["x" + name]]


def test_foreign_documents_bring_no_tags_and_no_links() -> None:
    """Not even in the fields that we write ourselves."""
    hostile = (
        "<script>x</script> ![i](http://y/z) www.evil.example a@evil.example\n\n# h"
    )
    document = sample(n=60).to_dict()
    document["provenance"] |= {
        "fair_tta": hostile,
        "python": hostile,
        "packages": {"torch": hostile},
    }
    document["provenance"]["model"]["name"] = hostile
    text = markdown(document)
    page = rendered(text)
    assert {"script", "img", "a"}.isdisjoint(tag for tag, _ in page.tags)
    assert page.text.count("www.evil.example a@evil.example # h") >= 4
    # What some readers make links of
    assert not re.search(r"://|www\.|@", text)
    assert not any(line.startswith("# h") for line in text.splitlines())
    assert for_markdown("{: onclick=x }") == "&#123;: onclick=x &#125;"


def test_images_are_scaled_down_and_small_ones_drawn_larger() -> None:
    small = embedded_image(Image.new("RGB", (24, 12), "red"))
    assert small.source.startswith("data:image/png;base64,")
    assert small[1:] == (128, 64, True)
    large = embedded_image(Image.new("L", (600, 300)))
    assert large.source.startswith("data:image/jpeg;base64,")
    assert large[1:] == (256, 128, False)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """Return the contrast as WCAG 2 defines it."""
    dark, light = sorted([luminance(first), luminance(second)])
    return (light + 0.05) / (dark + 0.05)


def test_colours_can_be_told_from_the_paper() -> None:
    path = files("fair_tta.lab.report") / "templates" / "style.css"
    light, dark, printed = [
        dict(re.findall(r"(--[\w-]+): (#\w{6});", part))
        for part in path.read_text("utf-8").split(":root {")[1:4]
    ]
    for colours in (light, dark, light | printed):
        for name in ("--ink", "--muted", "--link", "--good", "--bad"):
            assert contrast(colours[name], colours["--paper"]) >= 4.5, name
        assert contrast(colours["--ink"], colours["--warn"]) >= 4.5
