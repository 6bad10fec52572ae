"""Words that have no good use here: CONTRIBUTING.md and the glossary of the design say why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RETIRED = re.compile(r"\b(told|pictures?|doubts|is no|of one's own)\b", re.IGNORECASE)
# Prompts and quoted templates, names that stay for one version, and commands of the repository.
ALLOWED = re.compile(
    r"(This is a|a) picture\b|\bpicture (\{|of)|--no-pictures|DrawnPicture|tools/(app_)?pictures?"
    r"|make pictures|picture_\w+|\w+_pictures?\b|pictures=|--pictures|`pictures?`|\bthere is no\b"
    r"|\bpictures(?=[:,)\[.]| if | and |$)|\.pictures|PICTURE|[\"']pictures?[\"']|small picture",
    re.IGNORECASE,
)
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
SOURCES = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "src").rglob("*.jinja"))


@pytest.mark.parametrize(
    "path", PAGES + SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_retired_words_are_not_used(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    offending = [line for line in lines if RETIRED.search(ALLOWED.sub("", line))]
    assert offending == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_prose_wraps_at_100_columns(path: Path) -> None:
    text = re.sub(r"^```.*?^```|<!-- effect:.*?<!-- end -->", "", path.read_text("utf-8"),
                  flags=re.DOTALL | re.MULTILINE)  # fmt: skip
    long = [line for line in text.splitlines() if len(line) > 100]
    kept = re.compile(
        r"\s*(\||!\[)|.*`[^`]{55,}`|.*\]\([^)]{40,}\)"
    )  # tables, images, code, links
    assert [line for line in long if not kept.match(line)] == []
