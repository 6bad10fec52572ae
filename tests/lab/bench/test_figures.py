"""Parts of a large table: what their pages say of the correction is true of all settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from report_samples import Page
from verdict_samples import CLEAR, made

from fair_tta import compare
from fair_tta.lab.bench._figures import parts_of
from fair_tta.lab.report import html, markdown

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")


def test_a_part_says_how_many_were_compared() -> None:
    names = ["ZeroShot", *(f"m{i}" for i in range(10))]
    sections = ["", "alone", *["others"] * 9]
    settings = [SimpleNamespace(name=n, section=s) for n, s in zip(names, sections, strict=True)]
    grid: Any = SimpleNamespace(settings=settings)
    task: Any = "task"
    whole = compare([made(CLEAR, name) for name in names])
    parts = parts_of(grid, task, whole)
    assert [name for name, _ in parts] == ["task: alone", "task: others"]
    for _, part in parts:
        page = Page(html(part)).text
        assert "these intervals allow for all comparisons made" in page
        assert "Changes of metrics allow for 10 comparisons" in page
        assert "which allows for all comparisons made" in markdown(part)
