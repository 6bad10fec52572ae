"""The table of the field in docs/methods.md agrees with the methods."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from internals import ADAPTERS

ROOT = Path(__file__).parents[1]
KINDS = {adapter.__name__: (name, adapter) for name, adapter in ADAPTERS.items()}
COSTS = json.loads((ROOT / "docs/effect.json").read_text("utf-8"))["parts"]["cost"][
    "ViT-B/32"
]
_ROW = re.compile(r"^\| `(\w+)\(\)` \| (.*) \|$", re.MULTILINE)
_PAGE = (ROOT / "docs/methods.md").read_text("utf-8")
ROWS = {
    name: cells.split(" | ")
    for name, cells in _ROW.findall(_PAGE.split("## The field")[1])
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_what_the_method_says(name: str) -> None:
    explicit, unsupervised, episodic, views, text, cost = ROWS[name]
    file, adapter = KINDS[name]
    method = adapter()
    assert explicit.startswith("yes" if method.needs.sensitive else "no")
    assert (unsupervised == "yes") == (not method.needs.reference_sensitive)
    assert episodic.startswith("yes") == (not method.needs.reference)
    if not method.needs.pixels:
        assert views == ("64" if method.needs.views else "1")
    assert (text == "0") == (not method.needs.prompt_gradient)
    times: float = COSTS["times_plain"][file][0]
    assert cost.split()[0] == (f"{times:.1f}" if times < 9.5 else f"{times:.0f}")


def test_the_methods_of_the_papers_table_are_there() -> None:
    papers = {"OrthCali", "BendVLM", "RoboShot", "TIE", "TIEStar", "PerceptionCLIP"}
    papers |= {"SEraser", "DeYO"}
    newer = {"UMFC", "SAGE", "PartialProjection", "EpisodicTIE", "Tent", "MEMO", "SAR"}
    assert set(ROWS) >= papers | newer
