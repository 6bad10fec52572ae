"""The README as the package index shows it."""

from __future__ import annotations

import re
from pathlib import Path

from readme_links import absolute

ROOT = Path(__file__).parents[2]


def test_files_become_addresses_and_pictures_raw_files() -> None:
    text = "![a bird](docs/a.svg) [Start](docs/b.md#c) [out](https://example.org) [here](#d)"
    assert absolute(text, "https://host/o/n", "v1") == (
        "![a bird](https://host/o/n/raw/v1/docs/a.svg) "
        "[Start](https://host/o/n/blob/v1/docs/b.md#c) [out](https://example.org) [here](#d)"
    )


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    absolute_text = absolute(text, "https://host/o/n", "v1")
    linked = re.findall(r"https://host/o/n/(?:raw|blob)/v1/([^)#]+)", absolute_text)
    assert len(linked) > 10
    assert [name for name in linked if not (ROOT / name).is_file()] == []
    links = re.findall(r"\]\(([^)]+)\)", absolute_text)
    assert all(link.startswith("https://") for link in links)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 110
