"""The grids are the paper's tables, row by row."""

from __future__ import annotations

import csv
from collections import Counter
from importlib import resources

import pytest

from fair_tta import ZeroShot
from fair_tta.errors import FairTTAError
from fair_tta.lab.bench._grids import GRIDS, Grid, Setting, find_grid, of_datasets


def paper(name: str) -> list[dict[str, str]]:
    text = (resources.files("fair_tta.lab.bench") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("name", ["paper_tables.csv", "paper_more.csv"])
def test_every_cell_of_the_paper_has_exactly_one_setting_and_one_pair(name: str) -> None:
    for cell in paper(name):
        grid = GRIDS[cell["table"]]
        assert grid.model == cell["model"]
        place = cell.get("section", ""), cell["row"]
        assert sum((s.section, s.row) == place for s in grid.settings) == 1, cell
        pair = cell["dataset"], cell["target"], cell["sensitive"]
        pairs = [(t.dataset, t.target, *t.sensitive) for t in grid.tasks]
        assert pairs.count(pair) == (0 if cell["dataset"] == "Average" else 1), cell


def test_every_setting_and_pair_has_its_cells_in_the_paper() -> None:
    count = Counter(
        (c["table"], c.get("section", ""), c["row"])
        for name in ("paper_tables.csv", "paper_more.csv")
        for c in paper(name)
    )
    for name, grid in GRIDS.items():
        per_row = {"runtime": 1, "asi-atc": 14}.get(name, len(grid.tasks) + 1)
        for s in grid.settings:
            expected = 0 if (name, s.name) == ("runtime", "ZeroShot") else per_row
            assert count[name, s.section, s.row] == expected, (name, s)
        assert isinstance(grid.settings[0].adapter, ZeroShot)


def test_settings_differ() -> None:
    for grid in GRIDS.values():
        assert len({repr(s.adapter) for s in grid.settings}) == len(grid.settings)
    assert len(GRIDS["elra-ablation"].settings) == 17  # 16 and zero-shot
    assert len(GRIDS["more-attributes"].settings) == 55


def test_errors() -> None:
    with pytest.raises(FairTTAError, match=r"`table` should be one of main-L14, .* \(got 'x'\)"):
        find_grid("x")
    assert find_grid("zero-scan") is GRIDS["zero-scan"]
    twice = (Setting("a", ZeroShot()), Setting("a", ZeroShot()))
    with pytest.raises(FairTTAError, match=r"distinct names \(\['a'\] came twice\)"):
        Grid("g", "", twice)
    with pytest.raises(FairTTAError, match=r"should differ \('a' and 'b' are both ZeroShot"):
        Grid("g", "", (Setting("a", ZeroShot()), Setting("b", ZeroShot())))
    task = GRIDS["main-L14"].tasks[0]
    with pytest.raises(FairTTAError, match=r"tasks .* distinct names \(\['FairFace .*'\] came"):
        Grid("g", "", (Setting("a", ZeroShot()),), (task, task))
    with pytest.raises(FairTTAError, match="at least one setting and one task"):
        Grid("g", "", ())


def test_some_datasets_of_a_table() -> None:
    grid = GRIDS["main-L14"]
    assert [t.dataset for t in of_datasets(grid, ["celeba"]).tasks] == ["CelebA", "CelebA"]
    some = of_datasets(grid, ["Age", "waterbirds"]).tasks
    assert [str(t) for t in some] == ["Waterbirds bird type x background", "UTKFace age x race"]
    assert of_datasets(grid, ["fairface gender x race"]).tasks == grid.tasks[:1]
    with pytest.raises(
        FairTTAError, match=r"^`dataset` should be one of FairFace, CelebA, Waterbi"
    ):
        of_datasets(grid, ["celeba", "cifar"])
