"""The scripts about real CLIPs on small files of the layouts that they read."""

from __future__ import annotations

import csv
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fair_tta import FairTPTClassifier, ZeroShot

ROOT = Path(__file__).parents[2]
RACES = ("Black", "East Asian", "Indian", "Latino_Hispanic", "Middle Eastern", "White")


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    """Any module of the folder, by its name."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "benchmarks"))


def call(monkeypatch: pytest.MonkeyPatch, script: Any, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, arguments)])
    script.main()


def write_answers(folder: Path, module: Any, images: int = 240) -> None:
    """Every set of answers; an answer is wrong in every fifth image, and for men who are Black."""
    generator = np.random.default_rng(0)
    ages = module("fairface_answers").AGES
    rows = [
        {"file": f"val/{i}.jpg", "age": str(generator.choice(ages[:4])),
         "gender": ("Male", "Female")[i % 2], "race": RACES[i // 2 % len(RACES)]}
        for i in range(images)
    ]  # fmt: skip
    for answer_file in module("fairface_answers").ANSWERS:
        names = ("Male", "Female") if answer_file.question == "gender" else RACES
        with (folder / answer_file.file).open("w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0], f"{answer_file.question}_preds"])
            writer.writeheader()
            for i, row in enumerate(rows):
                wrong = i % 5 == 0 or (row["gender"], row["race"]) == ("Male", "Black")
                truth = row[answer_file.question]
                answer = names[names.index(truth) - 1] if wrong else truth
                writer.writerow({**row, f"{answer_file.question}_preds": answer})


def test_answers_on_fairface_are_audited_by_race_age_and_gender(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_answers(tmp_path, module)
    results = tmp_path / "results"
    call(
        monkeypatch,
        module("fairface_answers"),
        "--data",
        tmp_path,
        "--results",
        results,
    )
    printed, text = capsys.readouterr().out, (results / "fairface.md").read_text()
    assert "| Male | Black | 20 | 0.0 [" in text
    assert "| Female | White | 20 | 80.0 [" in text, "every fifth is wrong"
    with (results / "fairface" / "gender-by-race.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["ViT-B/16 OpenAI low"]) < float(rows[0]["ViT-B/16 OpenAI"])
    for row in (
        "| gender | ViT-L/14 LAION-2B | age |",
        "| race | ViT-B/16 OpenAI | gender |",
    ):
        assert row in printed
    assert printed.count("| 240 | groovy-lizard/") == 4
    assert "0.0 [0.0, " in printed.partition("## changes")[0], "the worst group"


@pytest.mark.parametrize("name", ["fairface", "real-clip"])
def test_the_page_repeats_tables_of_the_results(module: Any, name: str) -> None:
    files = module("result_files")
    kept = (files.RESULTS / f"{name}.md").read_text("utf-8")
    blocks = dict(
        re.findall(r"^## ([\w-]+)\n\n(.*?)(?=\n\n## |\Z)", kept.strip(), re.M | re.S)
    )
    text = files.PAGE.read_text("utf-8")
    assert f"<!-- {name}: " in text
    assert files.filled(text, name, blocks) == text


def test_intervals_of_a_table_become_columns_of_numbers(module: Any) -> None:
    files = module("result_files")
    cells = [
        ["`zero-shot`", "70.7 [67.8, 73.4]", "0.0", "90.8 [88.5, 93.5]: Female, Black"],
        ["`umfc`", "62.1, -8.6 (worse) [-12.1, -5.1]", "**+0.2**", "-"],
    ]
    lines = files.table(["method", "accuracy", "gap", "WGA"], cells).splitlines()
    assert files.numbers_of(lines) == [
        ["method", "accuracy", "accuracy change", "accuracy low", "accuracy high", "gap",
         "WGA", "WGA low", "WGA high", "WGA of"],
        ["zero-shot", "70.7", "", "67.8", "73.4", "0.0", "90.8", "88.5", "93.5", "Female, Black"],
        ["umfc", "62.1", "-8.6", "-12.1", "-5.1", "+0.2", "-", "", "", ""],
    ]  # fmt: skip


def test_answers_about_other_images_are_refused(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_answers(tmp_path, module, 24)
    path = tmp_path / module("fairface_answers").ANSWERS[1].file
    path.write_text(path.read_text().replace("val/3.jpg", "val/999.jpg"))
    with pytest.raises(SystemExit, match="other images than in aggregation_ViT"):
        call(monkeypatch, module("fairface_answers"), "--data", tmp_path)


def write_celeba(folder: Path, module: Any, images: int = 60) -> None:
    """Features that point to the right prompt, towards "a Man" for men; no woman has a beard."""
    tasks = module("real_clip").CELEBA_TASKS
    names = list(dict.fromkeys(name for pair in tasks.values() for name in pair))
    oid = [name for name in (*names, "Man", "Woman") if name != "spectacles"]
    generator = np.random.default_rng(0)
    texts = {name: generator.normal(size=32) for name in (*oid, "spectacles")}
    np.savez(
        folder / "text_detic_openai_vitb32.npz",
        oid_names=np.array(oid),
        oid=np.array([texts[name] for name in oid], np.float16),
        lvis_names=np.array(["spectacles"]),
        lvis=np.array([texts["spectacles"]], np.float16),
    )
    columns = [*(name for name in tasks if name != "Beard"), "No_Beard", "Male"]
    labels = generator.integers(0, 2, (images, len(columns)))
    labels[labels[:, -1] == 0, -2] = 1
    features = generator.normal(size=(images, 32)) * 0.2
    for i, row in enumerate(labels):
        eyeglasses, absent = tasks["Eyeglasses"]
        features[i] += (
            texts[eyeglasses if row[0] else absent]
            + texts["Man" if row[-1] else "Woman"]
        )
    np.savez(
        folder / "celeba1000_openai_vitb32.npz",
        features=features.astype(np.float16),
        attributes=np.array(columns),
        labels=labels.astype(np.int8),
    )


@pytest.mark.filterwarnings(
    "ignore::fair_tta.errors.FeatureMismatchWarning"
)  # random numbers
def test_all_six_tasks_are_reported_whatever_they_show(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_celeba(tmp_path, module)
    call(monkeypatch, module("real_clip"), "--data", tmp_path)
    printed = capsys.readouterr().out
    for title in module("real_clip").CELEBA_TASKS:
        assert f"## {title}\n\nn = 60: " in printed
    of_beards = printed.partition("## Beard")[2].partition("##")[0]
    assert "Human beard / Woman 0; " in of_beards
    assert "**one class only**" in of_beards
    for method in (
        "association-correction",
        "logit-balance",
        "roboshot",
        "orthcali:lam=0",
        "tie",
    ):
        assert printed.count(f"| `{method}` | ") == 6
    not_run = printed.partition("## not-run")[2]
    assert "- `perception-clip`: " in not_run
    assert "- `bend-vlm`: " in not_run
    assert "fair-tpt" not in printed, "it needs views"


def test_no_image_is_answered_by_a_fit_that_has_seen_it(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_celeba(tmp_path, module)
    question = next(module("real_clip").celeba_questions(tmp_path))
    predicted_rows: list[np.ndarray[Any, Any]] = []
    fit = FairTPTClassifier.fit

    def watched(self: Any, images: Any, *arguments: Any, **named: Any) -> Any:
        predicted_rows.append(np.asarray(images.array))
        return fit(self, images, *arguments, **named)

    monkeypatch.setattr(FairTPTClassifier, "fit", watched)
    answers = module("real_clip").answers_of(question, "logit-balance")
    assert len(predicted_rows) == 5
    assert all(answer in question.classifier.targets for answer in answers)
    counts = [
        sum((rows == row).all(1).any() for rows in predicted_rows)
        for row in question.features
    ]
    assert counts == [4] * len(question.features), "of five fits one answers"


def test_cramers_v_is_scipys(module: Any, tmp_path: Path) -> None:
    from scipy.stats.contingency import association

    write_celeba(tmp_path, module)
    for question in module("real_clip").celeba_questions(tmp_path):
        cells = np.array([*question.cells().values()]).reshape(2, 2)
        assert question.association() == pytest.approx(association(cells), abs=1e-9)


@pytest.fixture(scope="module")
def sem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders, names and columns of mardgui/SEM's release, with features of the embedded model."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder, generator, n = tmp_path_factory.mktemp("sem"), np.random.default_rng(0), 40
    genders = [("Male", "Female")[i % 2] for i in range(n)]
    tables = {
        "CelebA": {"file_name": [f"{i:06}.jpg" for i in range(n)],
                   "Blond_Hair": [(-1, 1)[i // 2 % 2] for i in range(n)],
                   "Smiling": [(-1, 1)[i // 3 % 2] for i in range(n)], "gender": genders},
        "FairFace": {"age": ["more than 70", "3-9", "20-29", "40-49"] * (n // 4),
                     "gender": genders, "race": [RACES[i % len(RACES)] for i in range(n)]},
        "UTKFace": {"age": [5 + i for i in range(n)], "gender": genders,
                    "race": [("White", "Black", "Asian", "Indian", "Latino Hispanic")[i % 5]
                             for i in range(n)]},
        "Waterbirds": {"bird type": [("land bird", "water bird")[i % 2] for i in range(n)],
                       "background": [f"{('land', 'water')[i // 2 % 2]} background"
                                      for i in range(n)], "split": [0] * n},
    }  # fmt: skip
    dim = FairTPTClassifier(
        "miniature", ["a", "b"], adapter=ZeroShot()
    )._task.target_features.shape[1]
    for name, columns in tables.items():
        (folder / name).mkdir()
        pandas.DataFrame(columns).to_feather(folder / name / "metadata.feather")
        for backbone in ("ViT-B-16", "RN50"):
            stored = generator.normal(size=(n, dim)).astype(np.float16)
            np.save(folder / name / f"CLIP_{backbone}_embeddings.npy", stored)
    return folder


@pytest.mark.filterwarnings(
    "ignore::fair_tta.errors.FeatureMismatchWarning"
)  # random numbers
def test_the_layout_of_sem_is_read(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    sem: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = (
        "--sem",
        sem,
        "--model",
        "miniature",
        "--backbones",
        "ViT-B-16",
        "RN101",
    )
    call(monkeypatch, module("real_clip"), *arguments)
    printed = capsys.readouterr().out
    birds = printed.partition("## Waterbirds bird type x background, ViT-B-16")[
        2
    ].partition("##")[0]
    assert (
        "n = 40: water bird / water 10; water bird / land 10; land bird / water 10; "
        in birds
    )
    ages = printed.partition("## UTKFace age x race, ViT-B-16")[2]
    assert "n = 32: " in ages[:30], (
        "those who are none of the paper's four races are left out"
    )
    assert "blond / male 10; " in printed
    assert "old / " in printed
    assert "perception-clip" in birds, "the model has every prompt"
    assert "CLIP_RN101_embeddings.npy is not there" in printed


def test_features_that_do_not_match_the_rows_are_refused(
    module: Any, monkeypatch: pytest.MonkeyPatch, sem: Path, tmp_path: Path
) -> None:
    import shutil

    folder = tmp_path / "sem"
    shutil.copytree(sem, folder)
    np.save(
        folder / "FairFace" / "CLIP_RN50_embeddings.npy", np.ones((3, 8), np.float16)
    )
    arguments = ("--sem", folder, "--model", "miniature", "--backbones", "RN50")
    with pytest.raises(SystemExit, match="3 rows, but metadata"):
        call(monkeypatch, module("real_clip"), *arguments)
