"""Words, colours, charts and the Markdown block of reports."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import Estimate, flat_settings, for_markdown, legends, short
from markdown_it import MarkdownIt
from report_samples import HOSTILE, Page, sample

from fair_tta.lab.report import markdown
from fair_tta.metrics.definitions import METRICS


def difference(low: float | None, high: float | None) -> Estimate:
    middle = None if low is None or high is None else (low + high) / 2
    return Estimate(middle, 10, low, high)


@pytest.mark.parametrize(
    ("metric", "ends", "says"),
    [
        ("accuracy", (0.01, 0.2), "better"),
        ("accuracy", (-0.2, -0.01), "worse"),
        ("bias", (-0.2, -0.01), "better"),
        ("bias", (0.01, 0.2), "worse"),
        ("bias", (-0.01, 0.2), "unclear"),
        ("bias", (0.0, 0.2), "unclear"),
        ("average_target_confidence", (0.01, 0.2), "higher"),
        ("average_target_confidence", (-0.2, -0.1), "lower"),
        ("bias", (None, None), "unknown"),
    ],
)
def test_verdicts(
    metric: str, ends: tuple[float | None, float | None], says: str
) -> None:
    assert legends.mark_of(metric, difference(*ends)) == says
    assert says in legends.MARKS


def test_no_difference_no_verdict() -> None:
    assert legends.mark_of("accuracy", None) == "unknown"


def test_every_metric_of_an_audit_has_words() -> None:
    assert list(METRICS) == list(sample(n=30).document.runs[0].metrics.by_name())


def contrast(a: str, b: str) -> float:
    """As WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    dark, light = sorted([luminance(a), luminance(b)])
    return (light + 0.05) / (dark + 0.05)


def test_colours_can_be_told_from_the_paper() -> None:
    style = (files("fair_tta.lab.report") / "templates" / "style.css").read_text(
        "utf-8"
    )
    sets = [
        dict(re.findall(r"(--[\w-]+): (#\w{6});", s))
        for s in style.split(":root {")[1:]
    ]
    light, dark, print_ = sets[:3]
    for colours in (light, dark, light | print_):
        for name in ("--ink", "--muted", "--link", "--good", "--bad"):
            assert contrast(colours[name], colours["--paper"]) >= 4.5, name
        assert contrast(colours["--ink"], colours["--warn"]) >= 4.5


def test_long_names_keep_both_ends() -> None:
    assert short("short", 5) == "short"
    assert short("a" * 40 + "b" * 40, 11) == "aaaaa\N{HORIZONTAL ELLIPSIS}bbbbb"


def test_settings_are_flattened() -> None:
    rate = {"name": "ELRA", "settings": {"beta": 0.01, "steps": [1, {"a": None}]}}
    assert list(flat_settings({"lam": 100.0, "rate": rate})) == [
        ("lam", "100.0"),
        ("rate", "ELRA"),
        ("rate.beta", "0.01"),
        ("rate.steps", "1; none"),
    ]


def rendered(text: str) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(text))


def test_the_markdown_block_has_the_figures() -> None:
    audit = sample()
    document, text = audit.document, markdown(audit)
    metrics, groups = Page(f"<div>{rendered(text)}</div>").tables.values()
    assert [row[0] for row in metrics[1:]] == [m.title for m in METRICS.values()]
    for row, key in zip(metrics[1:], METRICS, strict=True):
        for cell, run in zip(row[1:], document.runs, strict=True):
            figure = run.metrics.by_name()[key]
            assert figure.low is not None
            assert figure.high is not None
            low, high = 100 * figure.low, 100 * figure.high
            assert cell.startswith(f"{100 * float(figure):.1f} [{low:.1f}, {high:.1f}]")
    cells = [
        (f"{one.target} / {group.sensitive['gender']}", str(one.n))
        for group in document.runs[0].groups
        for one in group.classes
    ]
    assert [(row[0], row[1]) for row in groups[1:]] == cells
    assert document.data.hash in text
    assert "do not show the model to be fair" in text
    assert "None" not in text
    assert len(text) < 6000


def test_the_markdown_block_of_many_groups_is_short() -> None:
    text = markdown(
        sample(targets="abcdef", sensitive={"s": [f"s{i}" for i in range(20)]})
    )
    assert "The 24 worst groups; 96 more are in the audit." in text


def test_names_cannot_break_the_markdown_block() -> None:
    audit = sample(
        n=60, sensitive=HOSTILE, runs=["<b>|`r`", "[x](http://y)"], targets=["*a*", "_"]
    )
    page = Page(f"<div>{rendered(markdown(audit, title='# <script>'))}</div>")
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "img", "b", "a", "em", "code"}
    assert page.text.splitlines()[0] == "# <script>: no verdict on the gap"
    metrics, groups = page.tables.values()
    assert metrics[0] == ["metric", "<b>|`r`", "[x](http://y)"]
    assert {len(row) for row in groups} == {4}


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_any_name_survives_markdown(name: str) -> None:
    table = rendered(f"| x{for_markdown(name)} |\n|---|\n")
    assert Page(f"<div>{table}</div>").tables["table 0"] == [["x" + name]]


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
    page = Page(f"<div>{rendered(text)}</div>")
    assert not {tag for tag, _ in page.tags} & {"script", "img", "a"}
    assert page.text.count("www.evil.example a@evil.example # h") >= 4
    assert not re.search(r"://|www\.|@", text)  # what some readers make links of
    assert not any(line.startswith("# h") for line in text.splitlines())
    assert for_markdown("{: onclick=x }") == "&#123;: onclick=x &#125;"
