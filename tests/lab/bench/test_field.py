"""Tables of every method, and of answers that nobody should get."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import bench_tiny
import pytest

from fair_tta import AssociationCorrection, LogitBalance, OrthCali
from fair_tta.errors import DatasetError, FairTTAError, SmallReferenceWarning
from fair_tta.extend import Adapter
from fair_tta.lab.bench._grids import GRIDS, Grid, find_grid
from fair_tta.lab.bench._run import TableReference, TableRun
from fair_tta.lab.bench._sources import open_table
from fair_tta.lab.bench._tables import publish
from fair_tta.lab.data import BenchmarkTask, Dataset, read_folder
from fair_tta.methods._registry import ADAPTERS

METHODS: dict[str, Adapter] = {"balance": LogitBalance(), "association": AssociationCorrection()}


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bench_tiny.save_pets(tmp_path_factory.mktemp("pets"), 36)


def reader(pets: Path, task: BenchmarkTask) -> Dataset:
    return read_folder(
        pets / "images",
        pets / "labels.csv",
        target_column=task.target,
        sensitive_columns=[*task.sensitive],
        task=task,
    )


def table(model: str, pets: Path, out: Path, grid: Grid, **options: object) -> TableRun:
    images = TableReference(lambda task: reader(pets, task), **options)  # type: ignore[arg-type]
    with pytest.warns(SmallReferenceWarning):
        return bench_tiny.tiny_run(model, pets, out, grid, reference=images)


def test_a_method_is_fitted_for_each_task_on_other_pictures(
    model: str, pets: Path, tmp_path: Path
) -> None:
    grid = replace(find_grid("field", METHODS), tasks=bench_tiny.GRID.tasks)
    assert [setting.name for setting in grid.settings] == ["ZeroShot", "association", "balance"]
    said: list[str] = []
    run = table(model, pets, tmp_path, grid, images=12, say=said.append)
    fitted = [run.adapters(task)[2] for task in range(2)]
    first, second = fitted
    assert isinstance(first, LogitBalance)
    assert isinstance(second, LogitBalance)
    assert first.reference is not None
    assert first.reference != second.reference
    used = {record.path for part in run.parts for some in part.samples.values() for record in some}
    left = 36 - len(used)
    assert first.reference.images == min(12, left)
    assert (
        said[0] == f"pets animal x place: reference, {min(12, left)} images of what was not sampled"
    )
    run.run()
    with run.open() as store:
        found = publish(run, store)
    assert {figure.setting.name for figure in found.figures} == {"ZeroShot", *METHODS}
    (_, audit), _ = found.audits
    assert "images of what was not sampled" in audit.document.provenance["reference"]


def test_another_split_comes_first_and_may_be_missing(
    model: str, pets: Path, tmp_path: Path
) -> None:
    other = bench_tiny.save_pets(tmp_path / "other", 9)
    grid = replace(find_grid("field", {"balance": LogitBalance()}), tasks=bench_tiny.GRID.tasks[:1])

    def missing(task: BenchmarkTask) -> Dataset:
        raise DatasetError("no such split")

    for train, expected in ((lambda task: reader(other, task), 9), (missing, 5)):
        run = table(model, pets, tmp_path / str(expected), grid, train=train, images=expected)
        balance = run.adapters(0)[1]
        assert isinstance(balance, LogitBalance)
        assert balance.reference is not None
        assert balance.reference.images == expected


def test_no_picture_is_left(model: str, tmp_path: Path) -> None:
    few = bench_tiny.save_pets(tmp_path / "few", 8)
    grid = replace(find_grid("field", {"balance": LogitBalance()}), tasks=bench_tiny.GRID.tasks[:1])
    images = TableReference(lambda task: reader(few, task))
    with pytest.raises(FairTTAError, match="no images left for a reference, which LogitBalance"):
        bench_tiny.tiny_run(model, few, tmp_path / "out", grid, reference=images)


def test_every_method_of_the_library_has_a_row() -> None:
    grid = find_grid("field")
    assert {type(s.adapter).__name__ for s in grid.settings} == {
        kind.__name__ for name, kind in ADAPTERS.items() if name not in ("tie", "ttr", "sem")
    }
    assert grid.settings[0].name == "ZeroShot"
    sections = {setting.name: setting.section for setting in grid.settings}
    assert (sections["TPT"], sections["Tent"]) == ("Views", "The images themselves")
    assert not any(s.adapter.needs.labels for s in find_grid("clip-bias").settings)


def test_harm_by_group_is_published(model: str, pets: Path, tmp_path: Path) -> None:
    sets: Mapping[str, Mapping[str, str]] = {"toys": {"car": "toy car"}}
    (task,) = bench_tiny.GRID.tasks[:1]
    task = replace(task, targets={**task.targets, "car": "toy car"}, harmful={"toys": ("car",)})
    grid = replace(find_grid("clip-bias", {"orthcali": OrthCali(0)}, sets), tasks=(task,))
    run = bench_tiny.tiny_run(model, pets, tmp_path, grid)
    run.run()
    with run.open() as store:
        ((_, audit),) = publish(run, store).audits
    with (tmp_path / "harm.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["setting"]) for row in rows] == [
        (group, setting)
        for setting in ("ZeroShot", "orthcali")
        for group in ("everybody", "indoors", "outdoors")
    ]
    rates = [h.rate.value for r in audit.document.runs for h in r.harm]
    assert [float(row["rate"]) for row in rows] == rates
    assert [bool(row["change"]) for row in rows] == [False] * 3 + [True] * 3
    assert "Answers in the set toys" in (tmp_path / "report.html").read_text("utf-8")


def test_drawn_images_have_made_up_sets(tmp_path: Path) -> None:
    def tasks(harmful: Mapping[str, Mapping[str, str]] | None) -> Sequence[BenchmarkTask]:
        table = open_table(
            "clip-bias", "miniature", out=tmp_path, images=1, adapters=METHODS, harmful=harmful
        )
        return table.grid.tasks

    for task in tasks(None):
        assert task.harmful == {"made-up": (list(task.targets)[-1],)}
    for task in tasks({"toys": {"car": "toy car"}}):
        assert task.harmful == {"toys": ("car",)}
        assert task.targets["car"] == "toy car"


def test_options_of_other_tables_are_refused() -> None:
    assert find_grid("main-L14") is GRIDS["main-L14"]
    with pytest.raises(FairTTAError, match="`harmful` is for the table 'clip-bias'"):
        find_grid("field", None, {"toys": {"car": "car"}})
    with pytest.raises(FairTTAError, match="`adapters` is for the tables 'field' and 'clip-bias'"):
        find_grid("main-L14", METHODS, None)
