"""The tables are the paper's, row by row, and so are the figures that it prints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import dataset_fixtures as made
import pytest
from paper_scripts import Script
from paper_scripts import script as script

from fair_tta.datasets import read_dataset
from fair_tta.methods import ZeroShot


@pytest.mark.parametrize("name", ["printed_tables.csv", "printed_more.csv"])
def test_every_cell_of_the_paper_has_exactly_one_setting_and_one_pair(
    name: str, script: Script
) -> None:
    for cell in script("printed").read_lines(name):
        table = script("tables").TABLES[cell["table"]]
        assert table.model == cell["model"]
        row = cell.get("section", ""), cell["row"]
        assert sum((s.section, s.row) == row for s in table.settings) == 1, cell
        pair = cell["dataset"], cell["target"], cell["sensitive"]
        pairs = [(t.dataset, t.target, *t.sensitive) for t in table.tasks]
        assert pairs.count(pair) == (0 if cell["dataset"] == "Average" else 1), cell


def test_every_setting_and_pair_has_its_cells_in_the_paper(script: Script) -> None:
    printed = script("printed")
    count = Counter(
        (cell["table"], cell.get("section", ""), cell["row"])
        for name in printed.FILES
        for cell in printed.read_lines(name)
    )
    tables = script("tables").TABLES
    assert len(tables) == 11
    for name, table in tables.items():
        per_row = {"runtime": 1, "asi-atc": 14}.get(name, len(table.tasks) + 1)
        for setting in table.settings:
            not_printed = ("runtime", "ZeroShot"), ("elra-ablation", "SEraser ELRA")
            is_printed = (name, setting.name) not in not_printed
            expected = per_row if is_printed else 0
            assert count[name, setting.section, setting.row] == expected, (
                name,
                setting,
            )
        assert isinstance(table.settings[0].adapter, ZeroShot)


def test_all_printed_figures_are_read(script: Script) -> None:
    printed = script("printed")
    figures = printed.printed_figures()
    assert len(printed.read_lines("printed_tables.csv")) == 1091
    assert len(figures) == 4 * 1091 + 60
    without_elra = "elra-ablation", "FairTPT without ELRA", r"\lambda_{fair} = 5000"
    slip = figures[*without_elra, "CelebA", "smiling", "gender", "worst_group_accuracy"]
    assert slip == printed.Printed(25.0, suspect=True)
    assert str(slip) == "25?"
    seconds = figures["runtime", "", "FairTPT", "FairFace", "gender", "race", "seconds"]
    assert seconds == printed.Printed(1.03, suspect=False)


def test_settings_differ(script: Script) -> None:
    tables = script("tables")
    names = [*tables.TABLES, tables.FIELD, tables.CLIP_BIAS]
    for table in map(tables.find_table, names):
        assert len({repr(s.adapter) for s in table.settings}) == len(table.settings)
        assert len({s.name for s in table.settings}) == len(table.settings)
        assert len({str(task) for task in table.tasks}) == len(table.tasks)
    assert (
        len(tables.TABLES["elra-ablation"].settings) == 18
    )  # 16, zero-shot and SEraser
    assert len(tables.TABLES["more-attributes"].settings) == 55


def test_every_method_of_the_library_has_a_row(script: Script) -> None:
    from internals import ADAPTERS

    settings = script("tables").every_method()
    expected = {method.__name__ for name, method in ADAPTERS.items()} - {
        "TIE",
        "TTR",
        "SEM",
    }
    assert {type(setting.adapter).__name__ for setting in settings} == expected
    for setting in script("tables").methods_without_labels():
        assert not setting.adapter.needs.reference_sensitive
        assert not setting.adapter.needs.reference_labels


def test_some_datasets_of_a_table(script: Script) -> None:
    tables = script("tables")
    main = tables.TABLES["main-L14"]
    celeba = tables.only_datasets(main, ["celeba"])
    assert [task.dataset for task in celeba.tasks] == ["CelebA", "CelebA"]
    two = tables.only_datasets(main, ["Age", "waterbirds"])
    names = ["Waterbirds bird type x background", "UTKFace age x race"]
    assert [str(task) for task in two.tasks] == names
    pair = tables.only_datasets(main, ["fairface gender x race"])
    assert pair.tasks == main.tasks[:1]
    with pytest.raises(
        SystemExit, match=r"`--dataset` should be one of FairFace, CelebA, Wat"
    ):
        tables.only_datasets(main, ["celeba", "cifar"])
    with pytest.raises(
        SystemExit, match=r"`table` should be one of main-L14, .* \(got 'x'\)"
    ):
        tables.find_table("x")


def test_the_clip_papers_classes(script: Script, tmp_path: Path) -> None:
    tasks = script("tables").clip_bias_tasks()
    assert len(tasks) == 6
    made.fairface(tmp_path)
    rows = made.fairface_rows("val")
    for task in tasks:
        people = [name for name in task.targets if name.endswith(("man", "woman"))]
        assert len(people) == 14
        assert len(task.targets) == 14 + 4 + 3 + ("child" in task.target)
        assert task.harmful["crime-related"] == (
            "thief",
            "criminal",
            "suspicious person",
        )
        dataset = read_dataset(task, tmp_path)
        expected = Counter(
            f"{race.replace('_', ' ')} {'man' if gender == 'Male' else 'woman'}"
            for _, _, gender, race, _ in rows
        )
        assert Counter(record.target for record in dataset) == expected
        (attribute,) = task.sensitive
        values = {record.sensitive[attribute] for record in dataset}
        assert values == set(task.sensitive[attribute])
