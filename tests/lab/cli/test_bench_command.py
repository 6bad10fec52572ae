"""``fair-tta bench`` from the outside, and tables of one's own."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import bench_tiny
import dataset_fixtures
import pytest
import typer
from cli_fixtures import count_rows
from extending_page import documented
from fits import fit_on, save
from typer.testing import CliRunner

from fair_tta import FairTPT, LogitBalance, ZeroShot
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.lab._cli.bench import bench_command
from fair_tta.lab.bench._sources import (
    miniature_reader,
    miniature_tasks,
    open_table,
    paper_reader,
    read_toml,
)

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(bench_command)

OWN = """
pairs = []

[[folder]]
name = "pets"
images = "images"
labels = "labels.csv"
target_column = "animal"
template = "a photo of a {target} {sensitive}."
targets = { cat = "cat", dog = "dog" }
sensitive.place = { indoors = "in a house", outdoors = "on land" }

[[setting]]
adapter = "zero-shot"

[[setting]]
name = "strong"
adapter = "fair-tpt:lam=5000"
"""


FOLDER = OWN[OWN.index("[[folder]]") : OWN.index("[[setting]]")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bench_tiny.save_model(tmp_path_factory.mktemp("model") / "clip")


def call(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def cells(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "table.csv").read_text("utf-8").splitlines()))


def test_a_table_of_the_paper_on_the_datasets_that_are_there(model: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    dataset_fixtures.celeba_official(data)
    dataset_fixtures.waterbirds(data / "waterbird_complete95_forest2water2")
    out = tmp_path / "results" / "main"
    options = ("--data", data, "--model", model, "--images", 6, "--seeds", 2, "--views", 4)
    code, stdout, stderr = call("main-L14", *options, "--out", out)
    assert code == 0, stderr
    assert "CelebA hair color x gender" in stdout
    missing = [line for line in stderr.splitlines() if "is left out" in line]
    assert [line.partition(":")[0] for line in missing] == [
        "FairFace is left out (gender x race)",
        "UTKFace is left out (age x race, gender x race)",
    ]
    assert all("Nothing is downloaded for you. Its authors offer it at" in line for line in missing)
    assert len(stderr.splitlines()) == 2 + len(missing) + stderr.count(" images. ")
    assert "WGA, paper" in (out / "table.md").read_text("utf-8")
    latex = (out / "table.tex").read_text("utf-8")
    assert latex.count(r"\begin{tabular}") == latex.count("\n% ") + 1 > 1
    assert "WGA, paper" in latex
    assert all(line.isascii() for line in latex.splitlines() if "&" in line)
    assert "WGA: accuracy of the worst group of class and attribute" in " ".join(stdout.split())
    assert "MB on disk" in stderr
    found = cells(out)
    assert {c["dataset"] for c in found} == {"CelebA", "Waterbirds"}  # no average of three
    zero_shot = next(c for c in found if c["target"] == "hair color" and c["metric"] == "accuracy")
    assert zero_shot["paper"] == "86.4"
    assert float(zero_shot["minus_paper"]) == pytest.approx(float(zero_shot["mean"]) - 86.4)
    assert (tmp_path / "results" / "bank").is_dir()
    page = (out / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row">dataset.split</th><td>test</td>' in page
    code, _, stderr = call("main-L14", *options, "--out", out)
    assert code == 0
    assert "; 0 images to go" in stderr


def test_one_dataset_of_a_table(model: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    dataset_fixtures.celeba_official(data)
    options = ("--data", data, "--model", model, "--images", 4, "--seeds", 1, "--views", 2)
    out = tmp_path / "out"
    code, stdout, stderr = call("zero-scan", *options, "--out", out, "--dataset", "smiling")
    assert code == 0, stderr
    assert "left out" not in stderr
    assert {(c["dataset"], c["target"]) for c in cells(out)} == {("CelebA", "smiling")}
    told = " ".join(stdout.split())
    assert told.startswith("What is seen: Right on ")
    assert "Note: " in told
    code, _, stderr = call("zero-scan", *options, "--out", out, "--dataset", "FairFace")
    assert code == 3
    assert "expected is\nDIR/fairface/" in stderr
    code, _, stderr = call("zero-scan", *options, "--dataset", "cifar")
    assert code == 2
    assert "`--dataset` should be one of FairFace, CelebA, Waterbirds, UTKFace, or" in stderr


def test_a_table_without_any_dataset(model: str, tmp_path: Path) -> None:
    out = tmp_path / "runtime"
    code, stdout, stderr = call(
        "runtime", "--data", "miniature", "--model", model, "--images", 8, "--seeds", 1,
        "--views", 4, "--out", out, "--progress",
    )  # fmt: skip
    assert code == 0, stderr
    assert "miniature birds x background" in stdout
    assert "left out" not in stderr
    assert {c["target"] for c in cells(out)} == {"birds", "badges", "scenes", ""}
    pictures = sorted((out / "images").rglob("*.png"))
    assert len(pictures) == 24
    before = [p.stat().st_mtime_ns for p in pictures]
    read = miniature_reader(out / "images", 8)
    assert len(read(miniature_tasks()[0])) == 8
    assert [p.stat().st_mtime_ns for p in pictures] == before


def test_a_table_of_ones_own(model: str, tmp_path: Path) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 8)
    (pets / "images" / "3.png").write_bytes(b"broken")
    (pets / "mine.toml").write_text(OWN)
    code, stdout, stderr = call(
        "--table", pets / "mine.toml", "--model", model, "--images", 9, "--seeds", 1,
        "--views", 4, "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == 4, stderr
    assert "8 images. 1 x fewer records than the sample should have" in stderr
    assert "1 images could not be read and were left out" in stderr
    assert "3.png" in stderr
    assert "strong" in stdout
    assert {c["images"] for c in cells(tmp_path / "out")} == {"7"}


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_a_fitted_method_in_a_table(model: str, tmp_path: Path) -> None:
    """Its file is beside the table; one that was fitted with other names is refused at once."""
    pets = bench_tiny.save_pets(tmp_path / "pets", 8)
    adapter = "logit-balance:reference=b.safetensors,strength=1"
    (pets / "mine.toml").write_text(OWN.replace("fair-tpt:lam=5000", adapter))
    options = (
        "--table", pets / "mine.toml", "--model", model, "--images", 8, "--seeds", 1,
        "--views", 2, "--out", tmp_path / "out",
    )  # fmt: skip
    for place, code in (("outdoors", 3), ("on land", 0)):
        clf = FairTPTClassifier(
            model, ["cat", "dog"], {"place": {"indoors": "in a house", "outdoors": place}},
            "a photo of a {target} {sensitive}.", adapter=ZeroShot(),
        )  # fmt: skip
        balance = fit_on(LogitBalance(), clf, sorted((pets / "images").glob("*.png")))
        save(balance, pets / "b.safetensors")
        found, stdout, stderr = call(*options)
        assert found == code, stderr
        assert ("was fitted with another `sensitive`" in stderr) == (code == 3)
    assert "strong" in stdout


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_method_of_ones_own_in_worker_processes(
    workers: int, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is beside the table; when it is changed, its rows are made again and no others."""
    pets = bench_tiny.save_pets(tmp_path / "pets", 8)
    file = pets / "own" / "soft_vote.py"
    file.parent.mkdir()
    file.write_text(documented("SoftVote"))
    mine = f'{OWN}\n[[setting]]\nadapter = "own/soft_vote.py:SoftVote"\n'
    (pets / "mine.toml").write_text(mine)
    monkeypatch.chdir(tmp_path)
    options = (
        "--table", "pets/mine.toml", "--model", model, "--images", 8, "--seeds", 1, "--views", 4,
        "--batch-size", 4, "--out", "out",
    )  # fmt: skip
    code, stdout, stderr = call(*options, "--workers", workers)
    assert code == 0, stderr
    assert "soft_vote.py:SoftVote" in stdout
    assert {c["images"] for c in cells(tmp_path / "out")} == {"8"}
    rows = count_rows(tmp_path / "out")
    file.write_text(file.read_text() + "\n# another\n")
    code, _, stderr = call(*options)
    assert "; 8 images to go" in stderr
    assert count_rows(tmp_path / "out") == rows + 8


def test_what_a_file_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = OWN.replace("pairs = []", 'pairs = ["CelebA smiling x gender"]')
    file.write_text(text, encoding="utf-8-sig")  # as some editors write it
    grid, folders = read_toml(file)
    assert grid.name == "mine"
    assert [s.name for s in grid.settings] == ["ZeroShot", "strong"]
    assert [s.adapter for s in grid.settings] == [ZeroShot(), FairTPT(lam=5000)]
    assert [str(t) for t in grid.tasks] == ["CelebA smiling x gender", "pets animal x place"]
    assert list(folders) == ["pets animal x place"]
    with pytest.raises(FairTTAError, match="`data` should be given: CelebA smiling x gender"):
        open_table(file, out=tmp_path, images=4).read(grid.tasks[0])


def test_a_setting_in_single_brackets(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('pairs = ["CelebA smiling x gender"]\n[setting]\nadapter = "zero"\n')
    with pytest.raises(FairTTAError, match=r"Expected `array`, got `object` - at `\$.setting`"):
        read_toml(file)


def test_lists_of_names(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN.replace('{ cat = "cat", dog = "dog" }', '["cat", "dog"]'))
    assert read_toml(file)[0].tasks[0].targets == {"cat": "cat", "dog": "dog"}


@pytest.mark.parametrize("pairs", [[], ["CelebA smiling x gender"]])
def test_drawn_pictures_replace_pairs_and_not_folders(pairs: list[str], tmp_path: Path) -> None:
    pets = bench_tiny.save_pets(tmp_path / "pets", 4)
    (pets / "mine.toml").write_text(OWN.replace("pairs = []", f"pairs = {pairs}"))
    source = open_table(pets / "mine.toml", "miniature", out=tmp_path / "out", images=4)
    grid, read = source.grid, source.read
    drawn = [str(task) for task in miniature_tasks()] if pairs else []
    assert [str(task) for task in grid.tasks] == [*drawn, "pets animal x place"]
    assert {record.path.parent for record in read(grid.tasks[-1])} == {pets / "images"}
    assert len(read(grid.tasks[0])) == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pairs = []", "pears = []", "contains unknown field `pears`"),
        ("pairs = []", 'pairs = ["x"]', r"`pairs` should be of the paper's .* \(got 'x'\)"),
        ("template =", "sentence =", "contains unknown field `sentence`"),
        ('adapter = "zero-shot"', 'name = "a"', "missing required field `adapter`"),
        ("[[folder]]", "[[folder", "cannot read the table"),
        ("fair-tpt:lam=5000", "fair", "there is no adapter 'fair'"),
        ("fair-tpt:lam=5000", "logit-balance", "'logit-balance' has to be fitted: write 'logit-b"),
        ("pairs = []", 'pairs = "x"', r"Expected `array`, got `str` - at `\$.pairs`"),
        ('"strong"', '""', r"settings should have names \(got \['ZeroShot', ''\]\)"),
        (
            'images = "images"',
            "images = 3",
            r"Expected `str`, got `int` - at `\$.folder\[0\].images",
        ),
        ("sensitive.place =", "sensitive =", r"got `str` - at `\$.folder\[0\].sensitive"),
        ("pairs = []", FOLDER, r"tasks should have distinct names \(\['pets animal x place'\]"),
        ('"zero-shot"', '"fair-tpt:lam=5000"', r"settings should differ \('fair-tpt:lam=5000' and"),
    ],
)
def test_errors_of_files(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN.replace(old, new))
    with pytest.raises(FairTTAError, match=message):
        read_toml(file)


def test_errors(tmp_path: Path) -> None:
    code, _, stderr = call("main-L14", "--out", tmp_path)
    assert code == 3
    assert "`--data` should be the folder of the datasets, or 'miniature'." in stderr
    code, _, stderr = call("main-L14", "--data", tmp_path / "none", "--out", tmp_path)
    assert code == 3
    assert "`--data` should be the folder of the datasets" in stderr
    code, _, stderr = call("main", "--data", "miniature", "--out", tmp_path)
    assert code == 2
    assert "main-L14" in stderr
    code, _, stderr = call("--data", "miniature")
    assert code == 2
    assert "give the name of a table" in stderr
    code, _, stderr = call("main-L14", "--data", tmp_path, "--out", tmp_path / "out")
    assert code == 3
    assert "Nothing is downloaded for you" in stderr
    with pytest.raises(FairTTAError, match="or 'miniature'"):
        paper_reader(tmp_path / "none")


@pytest.mark.parametrize("name", ['"pets"', '"strong"', '"animal"'])
def test_names_are_no_escape_sequences(name: str, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(OWN.replace(name, '"\\u001b[31m"'))
    with pytest.raises(
        FairTTAError, match=r"names in a table .* printable text \(got '.*\\x1b\[31m"
    ):
        read_toml(file)


def test_tables_that_are_nested_too_deep_or_devices(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text("a = " + "[" * 100_000)
    with pytest.raises(FairTTAError, match=r"cannot read the table '.*deep.toml': .*recursion"):
        read_toml(file)
    if sys.platform != "win32":
        with pytest.raises(FairTTAError, match=r"'/dev/zero': .*not a regular file"):
            read_toml("/dev/zero")
