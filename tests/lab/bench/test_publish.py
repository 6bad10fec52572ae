"""Results: figures recomputed from the parquet file by independent code, and the paper's beside."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_tiny
import numpy as np
import pytest
from bench_tiny import GRID
from report_samples import Page

from fair_tta import Zero
from fair_tta._images.views import AugMix
from fair_tta._io import printable
from fair_tta.auditing import Audit, audit, compare
from fair_tta.auditing._document import Difference
from fair_tta.errors import FairTTAError
from fair_tta.lab._runs.columns import RunColumns
from fair_tta.lab._runs.store import Key, StoredRow
from fair_tta.lab.bench._figures import (
    COLUMNS,
    Cell,
    Figure,
    averages,
    cell,
    in_audit,
    mark,
    parts_of,
)
from fair_tta.lab.bench._grids import GRIDS, Grid, Setting
from fair_tta.lab.bench._printed import Printed, figures
from fair_tta.lab.bench._run import prepare, read_columns
from fair_tta.lab.bench._sources import Table
from fair_tta.lab.bench._tables import (
    TableResult,
    harm_csv,
    run_table,
    shown_cell,
    tables_by_task,
    to_csv,
    to_markdown,
)
from fair_tta.lab.data import Dataset, Record, read_folder
from fair_tta.metrics import Estimate
from fair_tta.prediction import Prediction

BETTER = {"accuracy": 1, "worst_group_accuracy": 1, "bias": -1, "equalized_odds_difference": -1}
COLUMNS_OF_ROWS = [
    "dataset", "target", "sensitive", "seed", "setting", "adapter", "image", "truth", "group",
    "answer", "probabilities", "sensitive_probabilities", "entropy", "sensitive_entropy",
    "learning_rate", "relative_step", "warnings",
]  # fmt: skip


def reader(folder: Path) -> Any:
    def read(task: Any) -> Dataset:
        return read_folder(
            folder / "images",
            folder / "labels.csv",
            target_column=task.target,
            sensitive_columns=[*task.sensitive],
            task=task,
        )

    return read


@pytest.fixture(scope="module")
def done(
    tmp_path_factory: pytest.TempPathFactory, model: str
) -> tuple[Path, TableResult, list[str]]:
    home = tmp_path_factory.mktemp("bench")
    pets = bench_tiny.save_pets(home / "pets", 40)
    said: list[str] = []
    found = run_table(
        Table(GRID, reader(pets)), model=model, out=home / "out", images=20, seeds=3, views=6,
        batch_size=8, say=said.append,
    )  # fmt: skip
    return home, found, said


def pets_audit(runs: int = 1) -> Audit:
    columns = RunColumns(["cat", "dog"], [
        (record("a", "cat", "indoors"), answer("cat")),
        (record("b", "dog", "outdoors"), answer("cat")),
    ])  # fmt: skip
    values = {"place": ["indoors", "outdoors"]}
    return compare(
        [columns.audit(f"run {i}", Zero(), values=values, provenance={}) for i in range(runs)]
    )


def rows(home: Path) -> dict[str, list[Any]]:
    table = import_module("pyarrow.parquet").read_table(home / "out" / "rows.parquet")
    assert table.column_names == COLUMNS_OF_ROWS
    columns: dict[str, list[Any]] = table.to_pydict()
    return columns


def by_hand(truth: Any, group: Any, answer: Any, entropy: Any, other: Any) -> dict[str, float]:
    """The metrics of the paper, literally."""
    truth, group, answer = map(np.asarray, (truth, group, answer))
    accuracy = np.mean(truth == answer)
    cells = [
        np.mean(answer[(truth == y) & (group == s)] == y)
        for y in np.unique(truth)
        for s in np.unique(group)
        if ((truth == y) & (group == s)).any()
    ]
    odds = []
    for y in np.unique(truth):
        rates = [
            [np.mean(answer[(group == s) & on] == y) for s in np.unique(group)]
            for on in (truth == y, truth != y)
        ]
        odds.append(max(max(rate) - min(rate) for rate in rates))
    return {
        "accuracy": accuracy,
        "worst_group_accuracy": min(cells),
        "bias": accuracy - min(cells),
        "equalized_odds_difference": float(np.mean(odds)),
        "sensitive_indifference": float(np.mean(other)),
        "target_confidence": 1 - float(np.mean(entropy)),
    }


def test_figures_are_those_of_the_rows(done: tuple[Path, TableResult, list[str]]) -> None:
    home, found, _ = done
    columns = rows(home)
    assert len(columns["image"]) == 2 * 3 * 20 * len(GRID.settings)
    for figure in found.figures:
        if figure.metric == "seconds" or figure.task is None:
            continue
        seeds = []
        for seed in range(3):
            mask = [
                i
                for i in range(len(columns["image"]))
                if columns["setting"][i] == figure.setting.name
                and columns["target"][i] == figure.task.target
                and columns["seed"][i] == seed
            ]
            assert len(mask) == 20
            some = {name: [values[i] for i in mask] for name, values in columns.items()}
            assert len(set(some["image"])) == 20
            metrics = by_hand(
                some["truth"], some["group"], some["answer"], some["entropy"],
                some["sensitive_entropy"],
            )  # fmt: skip
            seeds.append(100 * metrics[figure.metric])
        assert figure.cell.mean == pytest.approx(np.mean(seeds), abs=1e-6)
        assert figure.cell.error == pytest.approx(np.std(seeds, ddof=1) / math.sqrt(3), abs=1e-6)
        assert figure.images == 60


def test_rows_say_what_was_asked(done: tuple[Path, TableResult, list[str]]) -> None:
    home, _, _ = done
    columns = rows(home)
    settings = {s.name: s for s in GRID.settings}
    for i, name in enumerate(columns["setting"]):
        assert columns["adapter"][i] == repr(settings[name].adapter)
        p = columns["probabilities"][i]
        assert sum(p) == pytest.approx(1, abs=1e-5)
        names = ["cat", "dog"] if columns["target"][i] == "animal" else ["indoors", "outdoors"]
        if name != "Zero":  # ties between votes
            assert columns["answer"][i] == names[int(np.argmax(p))]
        picture = int(columns["image"][i].removesuffix(".png"))
        truth = {"animal": ("cat", "dog")[picture % 2],
                 "place": ("indoors", "outdoors")[picture // 2 % 2]}  # fmt: skip
        assert columns["truth"][i] == truth[columns["target"][i]]
        assert columns["group"][i] == truth[columns["sensitive"][i]]
        assert (columns["relative_step"][i] is None) == (name != "FairTPT")


def test_differences_are_paired_and_marked(done: tuple[Path, TableResult, list[str]]) -> None:
    home, found, _ = done
    columns = rows(home)
    first: dict[str, int] = {}  # an image counts once, with its first seed
    for image, seed in zip(columns["image"], columns["seed"], strict=True):
        first[image] = min(seed, first.get(image, seed))
    assert 20 < len(first) < 60
    for figure in found.figures:
        if figure.setting.name == "ZeroShot" or figure.metric == "seconds" or not figure.task:
            assert figure.difference is None
            continue
        assert figure.difference is not None
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= figure.difference <= figure.high
        up = 1 if figure.low > 0 else -1 if figure.high < 0 else 0
        assert figure.cell.mark == BETTER.get(figure.metric, 0) * up
        if figure.metric == "accuracy":
            right = {
                name: np.mean(
                    [
                        columns["truth"][i] == columns["answer"][i]
                        for i in range(len(columns["truth"]))
                        if columns["setting"][i] == name
                        and columns["target"][i] == figure.task.target
                        and columns["seed"][i] == first[columns["image"][i]]
                    ]
                )
                for name in (figure.setting.name, "ZeroShot")
            }
            expected = 100 * (right[figure.setting.name] - right["ZeroShot"])
            assert figure.difference == pytest.approx(expected)


def test_one_worst_group_one_number(done: tuple[Path, TableResult, list[str]]) -> None:
    """The terminal's and the report's tables, the first screen and the pages below agree."""
    home, found, _ = done
    page = Page((home / "out" / "report.html").read_text(encoding="utf-8"))
    for number, (title, made) in enumerate(found.tasks, start=1):
        (table,) = (t for t in tables_by_task(found.figures) if t.title == title)
        below = page.tables[f"audit-{number}-table-metrics"]
        (wga,) = (row for row in below if row[0].startswith("Worst-group accuracy (class / group)"))
        over_seeds = set()
        for run, cell_below, row in zip(made.runs, wga[1:], table.rows, strict=True):
            shown = row[table.header.index("WGA")][0].removesuffix(" +").removesuffix(" -")
            assert row[0][0] == run
            assert cell_below.startswith(shown)
            value = 100 * made.estimate("worst_group_accuracy", run).value
            assert shown.startswith(f"{value:.1f} [")
            assert shown in page.text
            over_seeds |= {
                str(f.cell)
                for f in found.figures
                if (str(f.task), f.setting.name, f.metric) == (title, run, "worst_group_accuracy")
            }
        assert len(over_seeds) >= 1
        assert not any(text in page.text for text in over_seeds)


def test_averages_weigh_tasks_alike(done: tuple[Path, TableResult, list[str]]) -> None:
    _, found, _ = done
    for average in (f for f in found.figures if f.task is None):
        parts = [
            f.cell.mean
            for f in found.figures
            if f.task and f.metric == average.metric and f.setting == average.setting
        ]
        assert average.cell.mean == pytest.approx(np.mean(parts))
    assert any(f.task is None for f in found.figures)
    # the error is that of the average over tasks, seed by seed
    row = dict.fromkeys(COLUMNS, 0.0)
    values = [
        [[row | {"accuracy": a}, row | {"accuracy": b}]] for a, b in ((50.0, 60.0), (70.0, 60.0))
    ]
    grid = replace(GRID, settings=GRID.settings[:1])
    made = averages(grid, values, 7, [pets_audit()] * 2)[0]
    assert (made.cell.mean, made.cell.error, made.images) == (60.0, 0.0, 7)


def test_only_the_average_over_the_papers_own_pairs_is_compared_with_it() -> None:
    row = dict.fromkeys(COLUMNS, 50.0)
    grid = GRIDS["main-L14"]
    values = [[[row]] * 6] * 6
    first = averages(grid, values, 10, [pets_audit(6)])[0]
    assert first.printed == Printed(86.5, suspect=False)
    assert first.minus_paper == pytest.approx(50 - 86.5)
    some = replace(grid, tasks=grid.tasks[:2])
    assert all(f.printed is None for f in averages(some, values[:2], 10, [pets_audit(6)]))
    other = replace(grid, tasks=GRID.tasks)
    assert all(f.printed is None for f in averages(other, values, 10, [pets_audit(6)]))


def test_files(done: tuple[Path, TableResult, list[str]]) -> None:
    home, found, said = done
    table = list(csv.DictReader((home / "out" / "table.csv").read_text("utf-8").splitlines()))
    assert len(table) == len(found.figures) == 4 * (2 * 7 + 6)
    assert table[0]["metric"] == "accuracy"
    assert float(table[0]["mean"]) == found.figures[0].cell.mean
    assert {row["dataset"] for row in table} == {"pets", "Average"}
    text = (home / "out" / "table.md").read_text(encoding="utf-8")
    assert "## pets animal x place" in text
    assert "## Average" in text
    page = (home / "out" / "report.html").read_text(encoding="utf-8")
    assert "pets place x animal" in page
    assert "FairTPT" in page
    assert any("up to" in line and "MB on disk" in line for line in said)
    costs = [f for f in found.figures if f.metric == "seconds"]
    assert all(f.cell.mean > 0 for f in costs)
    assert found.unreadable == {}


def test_the_same_run_again_writes_the_same_rows(
    done: tuple[Path, TableResult, list[str]], tmp_path: Path, model: str
) -> None:
    home, _, _ = done
    before = (home / "out" / "rows.parquet").read_bytes()
    said: list[str] = []
    options: Any = {
        "images": 20,
        "seeds": 3,
        "views": AugMix(6),
        "batch_size": 8,
        "say": said.append,
    }
    run_table(Table(GRID, reader(home / "pets")), model=model, out=home / "out", **options)
    assert (home / "out" / "rows.parquet").read_bytes() == before
    assert "; 0 images to go" in said[-1]
    run_table(
        Table(GRID, reader(home / "pets")),
        model=model,
        out=tmp_path,
        bank=home / "out" / "bank",
        **options,
    )
    assert (tmp_path / "rows.parquet").read_bytes() == before


def test_the_paper_beside_ours() -> None:
    grid = GRIDS["elra-ablation"]
    setting = next(
        s for s in grid.settings
        if (s.section, s.row) == ("FairTPT without ELRA", r"\lambda_{fair} = 5000")
    )  # fmt: skip
    place = (
        grid.name, setting.section, setting.row, "CelebA", "smiling", "gender",
        "worst_group_accuracy",
    )  # fmt: skip
    assert figures()[place] == Printed(25.0, suspect=True)
    task = next(t for t in grid.tasks if t.target == "smiling")
    ours = Figure(
        setting, task, place[-1], 1000, Cell(69.3, 0.5, 5, 1), printed=figures()[place],
        pooled=Estimate(0.701, 1000, 0.66, 0.742),
    )  # fmt: skip
    assert ours.minus_paper == pytest.approx(44.3)
    assert shown_cell(ours) == "70.1 [66.0, 74.2] +"
    (table,) = tables_by_task([ours])
    assert table.header == ["setting", "WGA", "WGA, paper"]
    assert table.rows == [[(setting.name, 0), ("70.1 [66.0, 74.2] +", 0), ("25?", 0)]]
    lines = to_markdown(grid, [ours]).splitlines()
    name = setting.name
    assert rf"| {name} | 70.1 \[66.0, 74.2\] + | 25? |" in lines
    assert f"| CelebA smiling x gender | {name} | WGA | 69.3 ±0.5 | 25? | +44.3 |" in lines
    (row,) = csv.DictReader(io.StringIO(to_csv(grid, [ours])))
    assert (row["paper"], row["suspect"], row["section"]) == ("25", "true", setting.section)
    seconds = ("runtime", "", "FairTPT", "FairFace", "gender", "race", "seconds")
    assert figures()[seconds] == Printed(1.03, suspect=False)
    cost = Figure(setting, task, "seconds", 10, cell([0.5]), printed=figures()[seconds])
    (table,) = tables_by_task([cost])
    assert table.header == ["setting", "cost", "s", "s, paper"]
    shown = [text for text, _ in table.rows[0][1:]]
    assert shown == ["1.0\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}", "0.5", "1.03"]
    undefined = replace(ours, cell=cell([math.nan]), pooled=Estimate(math.nan, 0))
    assert shown_cell(undefined) == "n/a"
    assert "| n/a | 25? |  |" in to_markdown(grid, [undefined])
    odd = replace(ours, setting=replace(setting, name="a | b\nc"))
    assert r"| a \| b c | " in to_markdown(grid, [odd])
    assert len(figures()) == 4 * 1091 + 60


def test_many_settings_are_reported_by_section(tmp_path: Path) -> None:
    from fair_tta.lab.bench._figures import audit_task

    settings = tuple(
        Setting(f"Zero {i}", Zero(0.05 * (i + 1)), section=f"part {i // 4}") for i in range(12)
    )
    grid = Grid("many", "", (GRID.settings[0], *settings), GRID.tasks[:1])
    columns = RunColumns(["cat", "dog"], [
        (record("a", "cat", "indoors"), answer("cat")),
        (record("b", "dog", "outdoors"), answer("cat")),
    ])  # fmt: skip
    whole = audit_task(grid, GRID.tasks[0], [Zero()] * 13, [columns] * 13, {})
    audits = parts_of(grid, GRID.tasks[0], whole)
    assert [title for title, _ in audits] == [f"pets animal x place: part {i}" for i in range(3)]
    assert all(isinstance(a, Audit) and a.runs[0] == "ZeroShot" for _, a in audits)
    assert [len(a.runs) for _, a in audits] == [5, 5, 5]


def test_a_seed_without_any_readable_image_is_an_error(tmp_path: Path, model: str) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 4)
    for path in (pets / "images").iterdir():
        path.write_bytes(b"broken")
    with pytest.raises(FairTTAError, match=r"pets animal x place: no image of seed 0 can be re"):
        run_table(
            Table(GRID, reader(pets)), model=model, out=tmp_path / "out", seeds=1, views=AugMix(6)
        )


def test_audits_count_an_image_once(
    done: tuple[Path, TableResult, list[str]], tmp_path: Path, model: str
) -> None:
    home, _, _ = done
    one, many = (
        prepare(GRID, bench_tiny.read_parts(home / "pets", images=40, seeds=seeds),
                model, out=tmp_path, views=AugMix(6))
        for seeds in (1, 3)
    )  # fmt: skip
    many.run()
    with many.open() as store:
        by_seed, pooled = read_columns(many, store, 0, lambda *_: None)
        _, first = read_columns(one, store, 0, lambda *_: None)
    assert [list(seeds) for seeds in by_seed] == [[0, 1, 2]] * 4
    assert {len(columns.labels) for seeds in by_seed for columns in seeds.values()} == {40}
    for a, b in zip(pooled, first, strict=True):
        assert len(a.labels) == len(b.labels) == 40
        assert a.labels == b.labels
        assert a.seconds == b.seconds


def record(key: str, target: str, place: str) -> Record:
    return Record(Path(key), target, {"place": place}, key)


IMAGE_NUMBERS = itertools.count()


def answer(label: str) -> StoredRow:
    even = {"cat": 0.5, "dog": 0.5}
    prediction = Prediction(
        label=label, probabilities=even, zero_shot=even, sensitive={},
        sensitive_zero_shot={}, entropy=0.5, entropy_zero_shot=0.5, distance=0.0, flip_margin=0.0,
        sensitive_entropy={"place": 0.5}, sensitive_entropy_zero_shot={"place": 0.5},
        certified_unchanged=False,
    )  # fmt: skip
    content = f"{next(IMAGE_NUMBERS):032x}"  # of each row another image
    return StoredRow(Key(content, "", "", "", 0), "", "", prediction, 1.0)


def test_a_missing_package_is_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    def read(task: Any) -> Dataset:
        raise AssertionError("too late")

    with pytest.raises(ImportError, match=r"needs the package 'pyarrow': pip install"):
        run_table(Table(GRID, read), model="none", out=tmp_path)


def test_errors(tmp_path: Path) -> None:
    table = Table(GRID, reader(tmp_path))
    with pytest.raises(FairTTAError, match="`images` should be a whole number from 1 on"):
        run_table(table, model="none", out=tmp_path, images=0)
    with pytest.raises(FairTTAError, match="`seeds` should be a whole number from 1 on"):
        run_table(table, model="none", out=tmp_path, seeds=0)
    with pytest.raises(FairTTAError, match="`batch_size` should be a whole number from 1 on"):
        run_table(table, model="none", out=tmp_path, batch_size=0)


def test_the_difference_of_several_attributes_is_their_mean() -> None:
    one, two = Estimate(0.1, 9, 0.0, 0.2), Estimate(0.3, 9, 0.1, 0.4)
    changes = {"age": Difference.of(one), "gender": Difference.of(two)}
    found: Any = SimpleNamespace(sensitive_indifference=changes)
    mean = in_audit(found, "sensitive_indifference")
    assert mean.value == pytest.approx(0.2)
    assert (mean.low, mean.high) == (None, None)
    assert mark("accuracy", mean) == 0
    del changes["gender"]
    assert in_audit(found, "sensitive_indifference") == Estimate(0.1, 9, 0.0, 0.2)
    del changes["age"]
    assert math.isnan(in_audit(found, "sensitive_indifference").value)


def test_names_of_tables_are_text() -> None:
    hostile = "=<script>x</script> [l](http://y) \x1b[31m \udce9"
    task = replace(GRID.tasks[0], dataset=hostile)
    setting = Setting(hostile, GRID.settings[0].adapter)
    figure = Figure(setting, task, "accuracy", 10, cell([0.5, 0.25]), difference=-0.5)
    grid = Grid(hostile, hostile, (setting,), (task,))
    text = to_markdown(grid, [figure])
    assert not re.findall(r"<|[^\\]\]\(|://|\x1b|\udce9", text)
    (row,) = csv.DictReader(io.StringIO(to_csv(grid, [figure])))
    assert row["setting"] == "'" + printable(hostile) == row["table"]
    assert float(row["difference"]) == -0.5
    text.encode()


def test_names_in_the_table_of_harm_are_text() -> None:
    truth, groups = ["=a", "b"] * 120, ["-x", "@y", "-x"] * 80
    found = audit(truth, truth, {"+s": groups}, name="=run", harmful={"=set": ["=a"]})
    rows = list(csv.DictReader(io.StringIO(harm_csv([found]))))
    assert {row["group"] for row in rows} == {"everybody", "'-x", "'@y"}
    assert {(row["by"], row["set"], row["setting"]) for row in rows} == {("'+s", "'=set", "'=run")}
    assert {float(row["rate"]) for row in rows} == {0.5}
