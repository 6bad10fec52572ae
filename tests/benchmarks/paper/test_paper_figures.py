"""Figures recomputed from the rows on disk by independent code, and how they are written."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper_scripts import Script
from paper_scripts import script as script
from pets import OTHER, TASK, reader, save_pets

from fair_tta.methods import FairTPT, OrthCali, Zero, ZeroShot

BETTER = {
    "accuracy": 1,
    "worst_group_accuracy": 1,
    "bias": -1,
    "equalized_odds_difference": -1,
}
METHODS = {
    "ZeroShot": ZeroShot(),
    "Zero": Zero(0.5),
    "Orth": OrthCali(),
    "FairTPT": FairTPT(),
}


@pytest.fixture(scope="module")
def table(script: Script) -> Any:
    tables = script("tables")
    settings = tuple(tables.Setting(name, adapter) for name, adapter in METHODS.items())
    return tables.Table("tiny", "", settings, (TASK, OTHER))


@pytest.fixture(scope="module")
def done(script: Script, table: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of the results, and the figures."""
    home = tmp_path_factory.mktemp("paper")
    pets = save_pets(home / "pets", 40)
    readers = reader(pets), None
    out = home / "out"
    figures, unreadable = script("run").run_table(
        table, readers, "miniature", out, images=20, seeds=3, views=4
    )
    assert unreadable == {}
    return out, figures


def stored_rows(out: Path, task: str, setting: str) -> list[dict[str, Any]]:
    (path,) = (out / "tiny" / "rows").glob(
        f"{task.replace(' ', '-')}-{setting}-*.jsonl"
    )
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def by_hand(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The metrics of the paper, literally."""
    truth = np.array([row["truth"] for row in rows])
    group = np.array([next(iter(row["sensitive"].values())) for row in rows])
    answer = np.array([row["prediction"]["label"] for row in rows])
    entropies = [row["prediction"]["entropy"] for row in rows]
    other_rows = [
        next(iter(row["prediction"]["sensitive_entropy"].values())) for row in rows
    ]
    accuracy = np.mean(truth == answer)
    cells = []
    odds = []
    for y in np.unique(truth):
        of_groups = [(truth == y) & (group == s) for s in np.unique(group)]
        cells += [np.mean(answer[cell] == y) for cell in of_groups if cell.any()]
        spreads = []
        for on in (truth == y, truth != y):
            rates = [np.mean(answer[(group == s) & on] == y) for s in np.unique(group)]
            spreads.append(max(rates) - min(rates))
        odds.append(max(spreads))
    return {
        "accuracy": 100 * float(accuracy),
        "worst_group_accuracy": 100 * float(min(cells)),
        "bias": 100 * float(accuracy - min(cells)),
        "equalized_odds_difference": 100 * float(np.mean(odds)),
        "sensitive_indifference": 100 * float(np.mean(other_rows)),
        "target_confidence": 100 - 100 * float(np.mean(entropies)),
    }


def test_figures_are_those_of_the_rows(done: Any) -> None:
    out, figures = done
    assert len(figures) == len(METHODS) * (2 * 6 + 6)
    for figure in figures:
        if figure.task is None:
            continue
        rows = stored_rows(out, str(figure.task).replace(",", "-"), figure.setting.name)
        seeds = [[row for row in rows if row["seed"] == seed] for seed in range(3)]
        assert [len({row["image"] for row in seed_rows}) for seed_rows in seeds] == [
            20,
            20,
            20,
        ]
        values = [by_hand(some)[figure.metric] for some in seeds]
        assert figure.mean == pytest.approx(np.mean(values), abs=1e-6)
        error = np.std(values, ddof=1) / math.sqrt(3)
        assert figure.standard_error == pytest.approx(error, abs=1e-6)
        assert (figure.images, figure.seeds) == (60, 3)
        # An image counts once in what is pooled, with its first seed.
        first: dict[str, dict[str, Any]] = {}
        for row in rows:
            first.setdefault(row["image"], row)
        assert 20 < len(first) < 60
        pooled = by_hand([*first.values()])[figure.metric]
        assert figure.pooled.value == pytest.approx(pooled, abs=1e-6)


def test_changes_are_paired_and_marked(done: Any) -> None:
    _, figures = done
    pooled = {
        (str(f.task), f.setting.name, f.metric): f.pooled.value
        for f in figures
        if f.task
    }
    for figure in figures:
        if figure.task is None or figure.setting.name == "ZeroShot":
            assert figure.change is None
            assert figure.mark == 0
            continue
        before = pooled[str(figure.task), "ZeroShot", figure.metric]
        assert figure.change.value == pytest.approx(
            figure.pooled.value - before, abs=1e-6
        )
        assert figure.change.low <= figure.change.value + 1e-9
        assert figure.change.value <= figure.change.high + 1e-9
        side = int(figure.change.low > 0) - int(figure.change.high < 0)
        assert figure.mark == BETTER.get(figure.metric, 0) * side


def test_averages_weigh_tasks_alike(done: Any) -> None:
    _, figures = done
    for average in (f for f in figures if f.task is None):
        equal_cells = [
            f
            for f in figures
            if (f.setting, f.metric) == (average.setting, average.metric)
        ]
        parts = [f for f in equal_cells if f.task is not None]
        assert average.mean == pytest.approx(np.mean([f.mean for f in parts]))
        assert average.pooled.value == pytest.approx(
            np.mean([f.pooled.value for f in parts])
        )


def test_only_the_papers_own_pairs_have_its_average(script: Script) -> None:
    figures, tables = script("figures"), script("tables")
    main = tables.TABLES["main-L14"]
    printed = figures._printed(main, main.settings[0], None, "accuracy")
    assert printed == script("printed").Printed(86.5, suspect=False)
    two = replace(main, tasks=main.tasks[:2])
    assert figures._printed(two, main.settings[0], None, "accuracy") is None


def test_files(done: Any) -> None:
    out, figures = done
    rows = list(
        csv.DictReader((out / "tiny" / "table.csv").read_text("utf-8").splitlines())
    )
    assert len(rows) == len(figures)
    assert [float(row["mean"]) for row in rows] == [figure.mean for figure in figures]
    assert {row["dataset"] for row in rows} == {"pets", "Average"}
    text = (out / "tiny" / "table.md").read_text("utf-8")
    assert "## pets animal x place\n" in text
    assert "## Average\n" in text
    assert "paper |" not in text


def test_the_paper_beside_ours(script: Script) -> None:
    figures, output, tables = script("figures"), script("output"), script("tables")
    table = tables.TABLES["elra-ablation"]
    section, row = "FairTPT without ELRA", r"\lambda_{fair} = 5000"
    (setting,) = [s for s in table.settings if (s.section, s.row) == (section, row)]
    (task,) = [task for task in table.tasks if task.target == "smiling"]
    metric = "worst_group_accuracy"
    printed = figures._printed(table, setting, task, metric)
    pooled = figures.Interval(70.1, 66.0, 74.2)
    ours = figures.Figure(
        setting, task, metric, 1000, 5, 69.3, 0.5, pooled, mark=1, printed=printed
    )
    assert ours.minus_paper == pytest.approx(44.3)
    lines = output.to_markdown(table, [ours]).splitlines()
    assert "| setting | WGA | WGA, paper |" in lines
    assert f"| {setting.name} | 70.1 [66.0, 74.2] + | 25? |" in lines
    assert (
        f"| CelebA smiling x gender | {setting.name} | WGA | 69.3 ±0.5 | 25? | +44.3 |"
        in lines
    )
    (line,) = csv.DictReader(output.to_csv(table, [ours]).splitlines())
    assert (line["paper"], line["suspect"], line["section"]) == ("25", "true", section)
    assert float(line["minus_paper"]) == ours.minus_paper
    undefined = replace(ours, mean=math.nan, pooled=figures.Interval(math.nan))
    assert output.shown(undefined) == "n/a"
    odd = replace(ours, setting=replace(setting, name="a | b"))
    assert r"| a \| b | " in output.to_markdown(table, [odd])


def test_a_mean_of_one_seed_has_no_error(script: Script) -> None:
    figures = script("figures")
    mean, error = figures.mean_and_error([50.0])
    assert mean == 50.0
    assert math.isnan(error)
    assert figures.mean_and_error([50.0, 56.0]) == (53.0, pytest.approx(3.0))
