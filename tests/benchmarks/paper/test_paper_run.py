"""The runner: all tables on small folders, and kills that lose nothing."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dataset_fixtures
import pytest
from checks import picture
from paper_scripts import Script
from paper_scripts import script as script
from pets import TASK, reader, save_pets

from fair_tta import FairTPTClassifier, FairTTAError
from fair_tta.methods import FairTPT, LogitBalance, OrthCali, ZeroShot

RUNNER = Path(__file__).parents[3] / "benchmarks" / "paper" / "run.py"
SMALL = ("--model", "miniature", "--images", "3", "--seeds", "2", "--views", "2")

pytestmark = pytest.mark.usefixtures("loaded_once")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All four datasets."""
    home = tmp_path_factory.mktemp("data")
    dataset_fixtures.celeba_official(home)
    dataset_fixtures.waterbirds(home / "waterbird_complete95_forest2water2")
    dataset_fixtures.fairface(home / "fairface")
    dataset_fixtures.utkface(home / "UTKFace")
    return home


@pytest.fixture
def table(script: Script) -> Any:
    tables = script("tables")
    settings = (
        tables.Setting("ZeroShot", ZeroShot()),
        tables.Setting("FairTPT", FairTPT()),
    )
    return tables.Table("tiny", "", settings, (TASK,))


def cells(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "table.csv").read_text("utf-8").splitlines()))


NAMES = (
    "main-L14", "zero-scan", "orthcali-scan", "with-projection", "main-B32", "asi-atc", "runtime",
    *(pytest.param(name, marks=pytest.mark.slow) for name in (
        "tpt-scan", "elra-ablation", "loss-choice", "more-attributes",
    )),
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_the_paper(
    name: str,
    script: Script,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--data", str(data), *SMALL, "--out", str(tmp_path))
    script("run").main([name, *options, "--young-below", "40"])
    table = script("tables").TABLES[name]
    actual = cells(tmp_path / name)
    metrics = 7 if name == "runtime" else 6
    columns = len(table.tasks) + (len(table.tasks) > 1)
    assert len(actual) == len(table.settings) * columns * metrics
    printed = script("printed").printed_figures()
    expected = sum(key[0] == name for key in printed)
    assert sum(cell["paper"] != "" for cell in actual) == expected
    text = capsys.readouterr().out
    assert text.startswith(f"# {name}\n")
    assert ", paper |" in text
    assert "ours minus paper" in text


def test_what_is_not_there_is_left_out(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = dataset_fixtures.celeba_official(tmp_path / "data")
    options = ("--data", str(data), *SMALL, "--out", str(tmp_path / "out"))
    script("run").main(["main-L14", *options])
    stderr = capsys.readouterr().err
    missing = [line for line in stderr.splitlines() if "is left out" in line]
    assert [line.partition(" ")[0] for line in missing] == [
        "FairFace",
        "Waterbirds",
        "UTKFace",
    ]
    actual = cells(tmp_path / "out" / "main-L14")
    assert {cell["dataset"] for cell in actual} == {"CelebA"}  # no average of two
    script("run").main(["main-L14", *options, "--dataset", "smiling"])
    assert {cell["target"] for cell in cells(tmp_path / "out" / "main-L14")} == {
        "smiling"
    }
    with pytest.raises(FairTTAError, match="Nothing is downloaded for you"):
        script("run").main(["main-L14", *options, "--dataset", "fairface"])


def test_errors(script: Script, tmp_path: Path) -> None:
    main = script("run").main
    with pytest.raises(
        SystemExit, match=r"`--data` should be the folder of the datasets, or 'm"
    ):
        main(["main-L14", "--data", str(tmp_path / "none")])
    with pytest.raises(SystemExit, match=r"`table` should be one of main-L14"):
        main(["main", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        main(["main-L14", "--data", str(tmp_path), "--images", "0"])


@pytest.mark.slow
def test_as_a_script_on_drawn_images(tmp_path: Path) -> None:
    """From anywhere, and with a set of classes that stands in for harmful ones."""
    command = [sys.executable, str(RUNNER), "clip-bias", "--data", "miniature", *SMALL]
    options = ["--reference-images", "20", "--out", "out"]
    result = subprocess.run(
        [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("# clip-bias\n")
    with (tmp_path / "out" / "clip-bias" / "harm.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["set"] for row in rows} == {"made-up"}
    assert {row["by"] for row in rows} == {"background", "colour", "time x season"}
    assert {bool(row["change"]) for row in rows if row["setting"] == "ZeroShot"} == {
        False
    }
    assert {bool(row["change"]) for row in rows if row["setting"] != "ZeroShot"} == {
        True
    }
    wrong = subprocess.run(
        [*command[:2], "main-L14", "--data", "."], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: ")
    assert "Traceback" not in wrong.stderr


class Counted:
    """Counts the images that are encoded with their views."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images = 0
        encode = FairTPTClassifier.encode

        def counting(clf: Any, images: Any, **options: Any) -> Any:
            if options.get("with_views", True):
                self.images += len(images)
            return encode(clf, images, **options)

        monkeypatch.setattr(FairTPTClassifier, "encode", counting)


def test_answers_are_those_of_predict(
    script: Script, table: Any, tmp_path: Path
) -> None:
    pets = save_pets(tmp_path / "pets", 12)
    answers, images = script("answers"), script("images")
    parts, _ = images.read_tasks(
        table, reader(pets), None, images=6, seeds=[0, 1], reference_images=1
    )
    options = answers.Options("miniature", views=4, batch_size=4)
    (task,) = answers.answer_tasks(table, parts, options, tmp_path / "out")
    for setting, rows in zip(table.settings, task.by_setting, strict=True):
        assert len(rows) == 12
        for seed in (0, 1):
            seed_rows = [row for row in rows if row.seed == seed]
            clf = options.classifier(TASK).with_adapter(setting.adapter)
            clf = clf.with_views(clf._vision.views, seed)
            for row, expected in zip(
                seed_rows, clf.predict([r.record.path for r in seed_rows]), strict=True
            ):
                # Features are kept in half precision.
                wanted = pytest.approx(expected.probabilities, abs=0.02)
                assert row.prediction.probabilities == wanted


def test_a_second_run_and_a_new_setting_encode_nothing(
    script: Script, table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pets = save_pets(tmp_path / "pets", 12)
    run = script("run").run_table
    options: Any = {"images": 6, "seeds": 2, "views": 4}
    counted = Counted(monkeypatch)
    readers = reader(pets), None
    first, _ = run(table, readers, "miniature", tmp_path / "out", **options)
    assert counted.images == 12
    before = (tmp_path / "out" / "tiny" / "table.csv").read_bytes()
    again, _ = run(table, readers, "miniature", tmp_path / "out", **options)
    assert again == first
    assert (tmp_path / "out" / "tiny" / "table.csv").read_bytes() == before
    tables = script("tables")
    larger_table = replace(
        table, settings=(*table.settings, tables.Setting("Orth", OrthCali()))
    )
    third, _ = run(larger_table, readers, "miniature", tmp_path / "out", **options)
    assert counted.images == 12
    # Intervals of changes allow for one more setting; means do not.
    assert [figure.mean for figure in third[: len(first)]] == [
        figure.mean for figure in first
    ]
    renamed_table = replace(larger_table, name="other")
    run(renamed_table, readers, "miniature", tmp_path / "out", **options)
    assert counted.images == 12, "tables share features"
    run(table, readers, "miniature", tmp_path / "out", **{**options, "views": 2})
    assert counted.images == 24, "other views are other features"


def test_images_that_were_replaced_are_answered_anew(
    script: Script, table: Any, tmp_path: Path
) -> None:
    pets = save_pets(tmp_path / "pets", 8)
    run = script("run").run_table
    options: Any = {"images": 8, "seeds": 1, "views": 2}
    before, _ = run(
        table, (reader(pets), None), "miniature", tmp_path / "out", **options
    )
    for number, path in enumerate(sorted((pets / "images").iterdir())):
        picture(100 + number).save(path)
    after, _ = run(
        table, (reader(pets), None), "miniature", tmp_path / "out", **options
    )
    fresh, _ = run(
        table, (reader(pets), None), "miniature", tmp_path / "fresh", **options
    )
    assert after == fresh
    assert after != before


def test_unreadable_images_are_named_and_left_out(
    script: Script, table: Any, tmp_path: Path
) -> None:
    pets = save_pets(tmp_path / "pets", 8)
    broken = pets / "images" / "3.png"
    broken.write_bytes(b"not a picture")
    run = script("run").run_table
    options: Any = {"images": 8, "seeds": 1, "views": 2}
    readers = reader(pets), None
    figures, unreadable = run(table, readers, "miniature", tmp_path / "out", **options)
    assert list(unreadable) == [str(broken)]
    assert {figure.images for figure in figures} == {7}
    for path in (pets / "images").iterdir():
        path.write_bytes(b"not a picture")
    with pytest.raises(SystemExit, match="pets animal x place: no image can be read"):
        run(table, readers, "miniature", tmp_path / "none", **options)


def test_a_torn_line_is_answered_again(
    script: Script, table: Any, tmp_path: Path
) -> None:
    pets = save_pets(tmp_path / "pets", 8)
    run = script("run").run_table
    options: Any = {"images": 8, "seeds": 1, "views": 2}
    complete, _ = run(
        table, (reader(pets), None), "miniature", tmp_path / "out", **options
    )
    for path in (tmp_path / "out" / "tiny" / "rows").iterdir():
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    (features,) = (tmp_path / "out").glob("features-*")
    first, *_ = sorted(features.glob("*.npy"))
    first.write_bytes(first.read_bytes()[:100])
    again, _ = run(
        table, (reader(pets), None), "miniature", tmp_path / "out", **options
    )
    assert again == complete
    for path in (tmp_path / "out" / "tiny" / "rows").iterdir():
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert len({line["digest"] for line in lines}) == len(lines) == 8


def test_methods_are_fitted_on_images_that_are_not_asked(
    script: Script, table: Any, tmp_path: Path
) -> None:
    pets = save_pets(tmp_path / "pets", 36)
    other_folder = save_pets(tmp_path / "others", 9)
    answers, images, tables = script("answers"), script("images"), script("tables")
    balance = tables.Setting("balance", LogitBalance())
    one_setting = replace(table, settings=(table.settings[0], balance))
    for train, expected in ((None, 12), (reader(other_folder), 9)):
        parts, _ = images.read_tasks(
            one_setting,
            reader(pets),
            train,
            images=10,
            seeds=[0, 1],
            reference_images=12,
        )
        sampled = {r.path for records in parts[0].samples.values() for r in records}
        assert len(parts[0].reference) == expected
        assert not sampled & {record.path for record in parts[0].reference}
        options = answers.Options("miniature", views=2)
        clf = options.classifier(TASK)
        _, fitted = answers.fit_settings(one_setting.settings, parts[0], clf)
        assert fitted.reference.images == expected
    parts, _ = images.read_tasks(
        one_setting, reader(pets), None, images=36, seeds=[0], reference_images=12
    )
    with pytest.raises(
        SystemExit, match="no images are left for methods that are fitted"
    ):
        answers.fit_settings(one_setting.settings, parts[0], clf)


def test_a_timed_table_shares_no_work(
    script: Script, table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pets = save_pets(tmp_path / "pets", 8)
    options: Any = {"images": 4, "seeds": 1, "views": 4}
    readers = reader(pets), None
    timed = replace(table, timed=True)
    figures, _ = script("run").run_table(
        timed, readers, "miniature", tmp_path, **options
    )
    seconds = [figure for figure in figures if figure.metric == "seconds"]
    assert [figure.setting.name for figure in seconds] == ["ZeroShot", "FairTPT"]
    assert all(figure.mean > 0 for figure in seconds)
    assert not list(next(tmp_path.glob("features-*")).glob("*.npy"))
    counted = Counted(monkeypatch)
    before = (tmp_path / "tiny" / "table.csv").read_bytes()
    script("run").run_table(timed, readers, "miniature", tmp_path, **options)
    assert (tmp_path / "tiny" / "table.csv").read_bytes() == before
    assert counted.images == 0
