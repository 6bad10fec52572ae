"""`--features` and `--text-features`: the same answers as from images, and nothing on a mistake."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_fixtures import call, count_rows, flat, load_audit, store_prompts

from fair_tta import FairTPTClassifier
from fair_tta.miniature import BADGES

DRAWN = BADGES.draw(60)
NAMES = [f"{index}.png" for index in range(60)]
COLOURS = [drawn.sensitive["colour"] for drawn in DRAWN]
NAMED = [
    *("--targets", ",".join(BADGES.targets)),
    *("--sensitive", f"colour: {','.join(BADGES.sensitive['colour'])}"),
    *("--template", BADGES.template),
]
few_images = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
COLUMNS = ("--target-column", "animal", "--sensitive-column", "colour")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with labels, their features, and those of the prompts."""
    folder = tmp_path_factory.mktemp("features")
    (folder / "pics").mkdir()
    labels = ["file,animal,colour"]
    for name, colour, drawn in zip(NAMES, COLOURS, DRAWN, strict=True):
        drawn.image.save(folder / "pics" / name)
        labels.append(f"{name},{drawn.target},{colour}")
    (folder / "labels.csv").write_text("\n".join(labels))
    without_names = [line.partition(",")[2] for line in labels]
    (folder / "plain.csv").write_text("\n".join(without_names))

    clf = FairTPTClassifier(
        "miniature", BADGES.targets, BADGES.sensitive, BADGES.template
    )
    images = [drawn.image for drawn in DRAWN]
    vectors = clf.encode(images, with_views=False)[:, 0].numpy()
    order = np.random.default_rng(0).permutation(len(NAMES))
    ids = np.array(NAMES)[order]
    np.savez(folder / "images.npz", features=3 * vectors[order], ids=ids)
    np.save(folder / "images.npy", vectors)

    store_prompts(folder / "text.npz", clf, scale=clf._task.scale)
    store_prompts(folder / "no-scale.npz", clf)
    return folder


def stored(folder: Path, name: str = "images.npz", text: str = "text.npz") -> list[str]:
    features = ["--features", str(folder / name)]
    return [*features, "--text-features", str(folder / text)]


def answers(*arguments: str) -> dict[str, Any]:
    printed = call("predict", *arguments, *NAMED, "--csv").stdout
    return {
        Path(row["image"]).name: row for row in csv.DictReader(io.StringIO(printed))
    }


def n_right(rows: Iterable[dict[str, Any]]) -> int:
    pairs = zip(DRAWN, rows, strict=True)
    return sum(drawn.target == row["label"] for drawn, row in pairs)


def numbers(actual: dict[str, Any]) -> dict[str, list[float]]:
    columns = [f"p: {target}" for target in BADGES.targets]
    return {
        name: [float(row[column]) for column in columns] for name, row in actual.items()
    }


def test_predict(folder: Path) -> None:
    drawn = "--adapter", "association-correction"
    by_images = answers(str(folder / "pics"), *drawn)
    for source in stored(folder), ["--features", str(folder / "images.npz")]:
        actual = answers(*source)  # whose method is the same by default
        assert list(actual) != list(by_images)
        assert list(actual) == [*np.load(folder / "images.npz")["ids"]]
        assert {k: row["label"] for k, row in actual.items()} == {
            k: row["label"] for k, row in by_images.items()
        }
        expected = numbers(by_images)
        for name, p in numbers(actual).items():
            np.testing.assert_allclose(p, expected[name], atol=1e-4)
    by_row = answers(*stored(folder, "images.npy"), "--limit", "3")
    assert list(by_row) == ["0", "1", "2"]


def test_scale(folder: Path) -> None:
    plain = "--adapter", "zero-shot"
    command = answers(*stored(folder, text="no-scale.npz"), "--scale", "7", *plain)
    default = answers(*stored(folder, text="no-scale.npz"), *plain)
    # softmax of the scale times cosines: log odds are in proportion to it
    odds = [
        {k: np.log(p[0] / p[1]) for k, p in numbers(table).items()}
        for table in (command, default)
    ]
    for name in odds[0]:
        if abs(odds[1][name]) < 10:
            assert odds[1][name] == pytest.approx(100 / 7 * odds[0][name], abs=0.05)


def test_predict_goes_on_and_samples(folder: Path) -> None:
    out = folder / "kept"
    few_images = answers(*stored(folder), "--limit", "40", "--out", str(out))
    assert count_rows(out) == 40
    assert answers(*stored(folder), "--out", str(out)).items() >= few_images.items()
    assert count_rows(out) == 60
    sample = answers(
        *stored(folder), "--sample", "9", "--out", str(out), "--workers", "1"
    )
    assert len(sample) == 9
    assert count_rows(out) == 60


@few_images
def test_audit(folder: Path) -> None:
    # Folds of a fit follow the content, which differs between images and features
    methods = "--adapters", "zero-shot,association-correction"
    common = *methods, *COLUMNS, *NAMED, "--labels", str(folder / "labels.csv")
    sources = {
        "by-images": ["--images", str(folder / "pics")],
        "by-features": stored(folder),
    }
    audits = []
    tables = []
    for out, source in sources.items():
        call("audit", *source, *common, "--out", str(folder / out), columns=80)
        audits.append(load_audit(folder, out).document)
        lines = (folder / out / "predictions.csv").read_text().split()
        tables.append([line.split(",")[:2] for line in lines])
    for a, b in zip(audits[0].runs, audits[1].runs, strict=True):
        assert [g.confusion for g in a.groups] == [g.confusion for g in b.groups]
    assert tables[0] == tables[1]
    assert audits[1].provenance["data"]["images"] == "images.npz"
    assert any("no image was read" in text for text in audits[1].warnings)
    assert "<img" not in (folder / "by-features" / "report.html").read_text()


def test_rows_in_order(folder: Path) -> None:
    source = stored(folder, "images.npy")
    command = "audit", *source, "--adapters", "zero-shot", *COLUMNS, *NAMED
    labels = "--labels", str(folder / "plain.csv")
    call(*command, *labels, "--out", str(folder / "in-order"))
    document = load_audit(folder, "in-order").document
    assert document.provenance["data"]["by_position"] is True
    sentence = "joined with the labels by the order of the rows"
    assert any(sentence in warning for warning in document.warnings)
    assert sentence in flat((folder / "in-order" / "report.html").read_text())
    n_correct = sum(group.correct for group in document.runs[0].groups)
    assert n_correct == n_right(answers(*source, "--adapter", "zero-shot").values())


@few_images
@pytest.mark.parametrize("command", ["audit", "mitigate"])
def test_rows_of_a_label_file_with_names_are_joined_on_purpose_only(
    folder: Path, command: str
) -> None:
    out = f"by-position-{command}"
    source = command, *stored(folder, "images.npy"), *COLUMNS, *NAMED
    files = "--out", str(folder / out), "--labels", str(folder / "labels.csv")
    error = call(*source, *files, code=3).stderr
    assert "'images.npy' has no ids, and 'labels.csv' has names" in error
    assert "`--by-position`" in error
    call(*source, *files, "--by-position")
    data = load_audit(folder, out).document.provenance["data"]
    assert data["by_position"] is True


@few_images
def test_fit_and_examine(folder: Path) -> None:
    file = folder / "fitted.safetensors"
    fit = "fit", "--adapter", "logit-balance", *NAMED
    call(
        *fit,
        "--images",
        str(folder / "pics"),
        "--out",
        str(folder / "by-images.safetensors"),
    )
    result = call(*fit, *stored(folder), "--out", str(file))
    assert "fitted on 60 images of 'images.npz'." in result.stderr
    by_file = answers(*stored(folder), "--adapter", f"logit-balance:reference={file}")
    by_images_file = folder / "by-images.safetensors"
    source = "--features", str(folder / "images.npz"), "--adapter"
    by_images = answers(*source, f"logit-balance:reference={by_images_file}")
    for name, p in numbers(by_file).items():
        np.testing.assert_allclose(p, numbers(by_images)[name], atol=1e-3)
    reference = "--adapter", "logit-balance", "--reference", str(folder / "images.npz")
    result = call("predict", *stored(folder), *NAMED, *reference, code=3)
    assert "has 60 of the images to be classified" in result.stderr
    by_reference = answers(*stored(folder), *reference, "--reference-is-data")
    assert numbers(by_reference) == numbers(by_file)

    out = folder / "examined"
    call("examine", *stored(folder), *NAMED, "--out", str(out))
    document = json.loads((out / "examine.json").read_text())
    assert document["n"] == 60
    assert "<img" not in (out / "examine.html").read_text()


def test_mistakes_write_nothing(folder: Path) -> None:
    with np.load(folder / "images.npz") as arrays:
        features, ids = arrays["features"], arrays["ids"]
    np.savez(folder / "short.npz", features=features[:, :5], ids=ids)
    np.savez(folder / "other.npz", features=features, ids=[f"x{i}" for i in range(60)])
    np.savez(
        folder / "nan.npz",
        features=np.where(ids == "7.png", np.nan, features.T).T,
        ids=ids,
    )
    labels = "--labels", str(folder / "labels.csv"), *COLUMNS
    out = "--out", str(folder / "nothing")
    for name, text in {
        "short.npz": "`--features` should have 64 numbers in a row, as the text features have (got",
        "nan.npz": "has vectors with NaN, infinity or only zeros: 1 ('7.png')",
        "other.npz": "has ids that are not in 'other.npz': 60 ('0.png', '1.png', '2.png', ...);",
    }.items():
        for command in "audit", "mitigate":
            error = call(
                command, *stored(folder, name), *NAMED, *labels, *out, code=3
            ).stderr
            assert text in error
            assert error.count("\n") == 1 or "should have 64" in error
    result = call("predict", *stored(folder), "--targets", "cat,banana", *out, code=3)
    assert "`--text-features` should have the prompts" in result.stderr
    assert not (folder / "nothing").exists()


@pytest.mark.filterwarnings("always::fair_tta.errors.FeatureMismatchWarning")
def test_features_of_another_model_are_a_note(folder: Path, tmp_path: Path) -> None:
    strange = np.random.default_rng(0).normal(size=(60, 64))
    np.savez(
        tmp_path / "other.npz", features=strange, ids=[f"{i}.png" for i in range(60)]
    )
    text = ("--text-features", str(folder / "text.npz"))
    actual = call(
        "predict", "--features", str(tmp_path / "other.npz"), *text, *NAMED, "--csv"
    )
    assert "Note: `features` point elsewhere than the text features" in actual.stderr
    assert (
        "point elsewhere"
        not in call("predict", *stored(folder), *NAMED, "--csv").stderr
    )


def test_the_column_of_ids_is_logged_and_recorded(folder: Path, tmp_path: Path) -> None:
    """Beside the index that pandas writes, which looks like ids."""
    vectors = np.load(folder / "images.npy")
    np.savez(tmp_path / "f.npz", features=vectors, ids=np.arange(60))
    order = np.random.default_rng(1).permutation(60)
    rows = [f"{i},{k},{DRAWN[k].target},{COLOURS[k]}" for i, k in enumerate(order)]
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join([",uid,animal,colour", *rows]))
    command = ["audit", "--features", str(tmp_path / "f.npz"), "--labels", str(labels)]
    command += ["--adapters", "zero-shot", *COLUMNS, *NAMED, "--out"]
    error = call(*command, str(tmp_path / "out"), code=3).stderr
    assert "'', 'uid'; say which one names the rows with `--path-column`" in error
    call(*command, str(tmp_path / "out"), "--path-column", "uid")
    by_option = load_audit(tmp_path).document
    labels.write_text("\n".join([",id,animal,colour", *rows]))
    result = call(*command, str(tmp_path / "found"))
    assert "The column 'id' of 'labels.csv' names the features." in result.stderr
    by_name = load_audit(tmp_path, "found").document
    assert by_name.provenance["data"]["path_column"] == "id"
    expected = [group.correct for group in by_option.runs[0].groups]
    assert [group.correct for group in by_name.runs[0].groups] == expected
    source = ("--features", str(folder / "images.npy"))
    by_position = answers(*source, "--adapter", "zero-shot")
    assert n_right(by_position.values()) == sum(expected)


def test_rows_without_a_vector_are_left_out_with_an_exit_code(
    folder: Path, tmp_path: Path
) -> None:
    vectors = [
        None if i in (3, 7) else row
        for i, row in enumerate(np.load(folder / "images.npy"))
    ]
    table = pa.table({"id": [f"p{i}" for i in range(60)], "vector": pa.array(vectors)})
    pq.write_table(table, tmp_path / "f.parquet")
    for command in "predict", "examine":
        source = command, "--features", str(tmp_path / "f.parquet"), *NAMED
        error = call(*source, code=4).stderr
        assert "has no vectors for them: 2 ('p3', 'p7')" in error
