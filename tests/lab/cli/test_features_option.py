"""`--features` and `--text-features`: the same answers as from images, and nothing on a mistake."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_fixtures import call, count_rows, write_labels

from fair_tta import FairTPTClassifier
from fair_tta.auditing import Audit
from fair_tta.miniature import BADGES

DRAWN = BADGES.draw(60)
NAMED = [
    *("--targets", ",".join(BADGES.targets)),
    *("--sensitive", f"colour: {','.join(BADGES.sensitive['colour'])}"),
    *("--template", BADGES.template),
]
few = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
COLUMNS = ("--target-column", "animal", "--sensitive-column", "colour")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with labels, their features, and those of the prompts."""
    folder = tmp_path_factory.mktemp("features")
    (folder / "pics").mkdir()
    rows = [
        (f"{i}.png", one.target, one.sensitive["colour"]) for i, one in enumerate(DRAWN)
    ]
    for (name, *_), one in zip(rows, DRAWN, strict=True):
        one.image.save(folder / "pics" / name)
    write_labels(folder / "labels.csv", rows)
    text = (folder / "labels.csv").read_text().replace("place", "colour", 1)
    (folder / "labels.csv").write_text(text)
    (folder / "plain.csv").write_text(
        "\n".join(line.partition(",")[2] for line in text.split())
    )
    clf = FairTPTClassifier(
        "miniature",
        BADGES.targets,
        {"colour": BADGES.sensitive["colour"]},
        BADGES.template,
    )
    vectors = clf.encode([one.image for one in DRAWN], with_views=False)[:, 0].numpy()
    order = np.random.default_rng(0).permutation(len(rows))
    ids = np.array([rows[i][0] for i in order])
    np.savez(folder / "images.npz", features=3 * vectors[order], ids=ids)
    np.save(folder / "images.npy", vectors)
    sets = [clf._task.target_prompts, *clf._task.sensitive_prompts.values()]
    tables = [clf._task.target_features, *clf._task.sensitive_features.values()]
    prompts = [text for of in sets for text in of.texts]
    features = np.concatenate([of.numpy(force=True) for of in tables])
    np.savez(
        folder / "text.npz", prompts=prompts, features=features, scale=clf._task.scale
    )
    np.savez(folder / "no-scale.npz", prompts=prompts, features=features)
    return folder


def stored(place: Path, name: str = "images.npz", text: str = "text.npz") -> list[str]:
    both = {"--features": name, "--text-features": text}
    return [part for key, file in both.items() for part in (key, str(place / file))]


def answers(*arguments: str) -> dict[str, Any]:
    rows = csv.DictReader(
        io.StringIO(call("predict", *arguments, *NAMED, "--csv").stdout)
    )
    return {Path(row["image"]).name: row for row in rows}


def numbers(found: dict[str, Any]) -> dict[str, list[float]]:
    columns = [f"p: {target}" for target in BADGES.targets]
    return {
        name: [float(row[column]) for column in columns] for name, row in found.items()
    }


def test_predict(place: Path) -> None:
    one = "--adapter", "association-correction"
    by_images = answers(str(place / "pics"), *one)
    for source in stored(place), ["--features", str(place / "images.npz")]:
        found = answers(*source)  # whose method is the same by default
        assert list(found) != list(by_images)
        assert list(found) == [*np.load(place / "images.npz")["ids"]]
        assert {k: row["label"] for k, row in found.items()} == {
            k: row["label"] for k, row in by_images.items()
        }
        expected = numbers(by_images)
        for name, p in numbers(found).items():
            np.testing.assert_allclose(p, expected[name], atol=1e-4)
    by_row = answers(*stored(place, "images.npy"), "--limit", "3")
    assert list(by_row) == ["0", "1", "2"]


def test_scale(place: Path) -> None:
    plain = "--adapter", "zero-shot"
    given = answers(*stored(place, text="no-scale.npz"), "--scale", "7", *plain)
    default = answers(*stored(place, text="no-scale.npz"), *plain)
    # softmax of the scale times cosines: log odds are in proportion to it
    odds = [
        {k: np.log(p[0] / p[1]) for k, p in numbers(of).items()}
        for of in (given, default)
    ]
    for name in odds[0]:
        if abs(odds[1][name]) < 10:
            assert odds[1][name] == pytest.approx(100 / 7 * odds[0][name], abs=0.05)


def test_predict_goes_on_and_samples(place: Path) -> None:
    out = place / "kept"
    few = answers(*stored(place), "--limit", "40", "--out", str(out))
    assert count_rows(out) == 40
    assert answers(*stored(place), "--out", str(out)).items() >= few.items()
    assert count_rows(out) == 60
    sample = answers(
        *stored(place), "--sample", "9", "--out", str(out), "--workers", "1"
    )
    assert len(sample) == 9
    assert count_rows(out) == 60


@few
def test_audit(place: Path) -> None:
    labels = "--labels", str(place / "labels.csv")
    # folds of a fit follow the content, which is another for images than for their features
    common = "--adapters", "zero-shot,association-correction", *COLUMNS, *NAMED, *labels
    call(
        "audit",
        "--images",
        str(place / "pics"),
        *common,
        "--out",
        str(place / "by-images"),
    )
    call(
        "audit",
        *stored(place),
        *common,
        "--out",
        str(place / "by-features"),
        columns=80,
    )
    found = [
        Audit.load(place / by / "audit.json").document
        for by in ("by-images", "by-features")
    ]
    for a, b in zip(found[0].runs, found[1].runs, strict=True):
        assert [g.confusion for g in a.groups] == [g.confusion for g in b.groups]
    assert found[1].provenance["data"]["images"] == "images.npz"
    assert any("no image was read" in text for text in found[1].warnings)
    tables = [
        [
            line.split(",")[:2]
            for line in (place / by / "predictions.csv").read_text().split()
        ]
        for by in ("by-images", "by-features")
    ]
    assert tables[0] == tables[1]
    page = (place / "by-features" / "report.html").read_text()
    assert "<img" not in page


def test_rows_in_order(place: Path) -> None:
    labels = "--labels", str(place / "plain.csv")
    result = call(
        *(
            "audit",
            *stored(place, "images.npy"),
            "--adapters",
            "zero-shot",
            *COLUMNS,
            *NAMED,
        ),
        *(*labels, "--out", str(place / "in-order")),
    )
    assert result.exit_code == 0
    document = Audit.load(place / "in-order" / "audit.json").document
    assert document.provenance["data"]["by_position"] is True
    assert any(
        "joined with the labels by the order of the rows" in w
        for w in document.warnings
    )
    page = (place / "in-order" / "report.html").read_text()
    assert "joined with the labels by the order of the rows" in " ".join(page.split())
    by_row = document.runs[0]
    found = answers(*stored(place, "images.npy"), "--adapter", "zero-shot").values()
    right = sum(
        one.target == row["label"] for one, row in zip(DRAWN, found, strict=True)
    )
    assert sum(group.correct for group in by_row.groups) == right


@few
@pytest.mark.parametrize("command", ["audit", "mitigate"])
def test_rows_of_a_label_file_with_names_are_joined_on_purpose_only(
    place: Path, command: str
) -> None:
    out = "--out", str(place / f"by-position-{command}")
    given = command, *stored(place, "images.npy"), *COLUMNS, *NAMED, *out
    given += "--labels", str(place / "labels.csv")
    error = call(*given, code=3).stderr
    assert "'images.npy' has no ids, and 'labels.csv' has names" in error
    assert "`--by-position`" in error
    call(*given, "--by-position")
    assert (
        Audit.load(Path(out[1]) / "audit.json").document.provenance["data"][
            "by_position"
        ]
        is True
    )
    images = command, *COLUMNS, *NAMED, "--labels", str(place / "labels.csv"), *out
    where = ["--images"] if command == "audit" else []
    error = call(*images, *where, str(place / "pics"), "--by-position", code=2).stderr
    assert "it has no effect without --features" in error


@few
def test_fit_and_examine(place: Path) -> None:
    file = place / "fitted.safetensors"
    fit = "fit", "--adapter", "logit-balance", *NAMED
    call(
        *fit,
        "--images",
        str(place / "pics"),
        "--out",
        str(place / "by-images.safetensors"),
    )
    result = call(*fit, *stored(place), "--out", str(file))
    assert "fitted on 60 images of 'images.npz'." in result.stderr
    by_file = answers(*stored(place), "--adapter", f"logit-balance:reference={file}")
    other = place / "by-images.safetensors"
    source = "--features", str(place / "images.npz"), "--adapter"
    by_images = answers(*source, f"logit-balance:reference={other}")
    for name, p in numbers(by_file).items():
        np.testing.assert_allclose(p, numbers(by_images)[name], atol=1e-3)
    reference = "--adapter", "logit-balance", "--reference", str(place / "images.npz")
    result = call("predict", *stored(place), *NAMED, *reference, code=3)
    assert "has 60 of the images to be classified" in result.stderr
    by_reference = answers(*stored(place), *reference, "--reference-is-data")
    assert numbers(by_reference) == numbers(by_file)

    out = place / "examined"
    call("examine", *stored(place), *NAMED, "--out", str(out))
    document = json.loads((out / "examine.json").read_text())
    assert document["n"] == 60
    assert "<img" not in (out / "examine.html").read_text()


def test_mistakes_write_nothing(place: Path) -> None:
    with np.load(place / "images.npz") as held:
        features, ids = held["features"], held["ids"]
    np.savez(place / "short.npz", features=features[:, :5], ids=ids)
    np.savez(place / "other.npz", features=features, ids=[f"x{i}" for i in range(60)])
    np.savez(
        place / "nan.npz",
        features=np.where(ids == "7.png", np.nan, features.T).T,
        ids=ids,
    )
    labels = "--labels", str(place / "labels.csv"), *COLUMNS
    out = "--out", str(place / "nothing")
    for name, text in {
        "short.npz": "`--features` should have 64 numbers in a row, as the text features have (got",
        "nan.npz": "has vectors with NaN, infinity or only zeros: 1 ('7.png')",
        "other.npz": "has ids that are not in 'other.npz': 60 ('0.png', '1.png', '2.png', ...);",
    }.items():
        for command in "audit", "mitigate":
            error = call(
                command, *stored(place, name), *NAMED, *labels, *out, code=3
            ).stderr
            assert text in error
            assert error.count("\n") == 1 or "should have 64" in error
    result = call("predict", *stored(place), "--targets", "cat,banana", *out, code=3)
    assert "`--text-features` should have the prompts" in result.stderr
    assert not (place / "nothing").exists()


def test_usage(place: Path) -> None:
    pics, out = str(place / "pics"), ("--out", str(place / "nothing"))
    both = "name either images or --features FILE"
    zero = "--labels", str(place / "labels.csv"), "--adapters", "zero"
    for arguments, text in (
        (["predict", pics, *stored(place), *NAMED], both),
        (["examine", *NAMED], both),
        (["mitigate", *NAMED, *COLUMNS, *out], both),
        (["fit", "--adapter", "logit-balance", *NAMED, *out], both),
        (["audit", *COLUMNS, *out], both),
        (
            ["audit", *stored(place), *COLUMNS, *out],
            "--labels: it is needed with --features",
        ),
        (
            ["predict", pics, *stored(place)[2:], *NAMED],
            "it has no effect without --features",
        ),
        (
            ["predict", pics, "--scale", "1", *NAMED],
            "it has no effect without --text-features",
        ),
        (
            ["predict", *stored(place), *NAMED, "--model", "miniature"],
            "it has no effect with",
        ),
        (
            ["predict", *stored(place), *NAMED, "--views", "8"],
            "it has no effect with --features, which has one view",
        ),
        (
            ["predict", *stored(place), *NAMED, "--adapter", "tpt"],
            "'tpt' needs images or their views",
        ),
        (["audit", *stored(place), *zero, *COLUMNS, *out], "'zero' needs images"),
    ):
        result = call(*arguments, code=2, columns=300)
        assert text in result.stderr, arguments
    assert not (place / "nothing").exists()


@pytest.mark.filterwarnings("always::fair_tta.errors.FeatureMismatchWarning")
def test_features_of_another_model_are_a_note(place: Path, tmp_path: Path) -> None:
    strange = np.random.default_rng(0).normal(size=(60, 64))
    np.savez(
        tmp_path / "other.npz", features=strange, ids=[f"{i}.png" for i in range(60)]
    )
    text = ("--text-features", str(place / "text.npz"))
    found = call(
        "predict", "--features", str(tmp_path / "other.npz"), *text, *NAMED, "--csv"
    )
    assert "Note: `features` point elsewhere than the text features" in found.stderr
    assert (
        "point elsewhere" not in call("predict", *stored(place), *NAMED, "--csv").stderr
    )


def test_the_column_of_ids_is_said_and_recorded(place: Path, tmp_path: Path) -> None:
    """Beside the index that pandas writes: it was taken for the ids."""
    vectors = np.load(place / "images.npy")
    np.savez(tmp_path / "f.npz", features=vectors, ids=np.arange(60))
    order = np.random.default_rng(1).permutation(60)
    labels = tmp_path / "labels.csv"
    rows = [
        f"{i},{k},{DRAWN[k].target},{DRAWN[k].sensitive['colour']}"
        for i, k in enumerate(order)
    ]
    labels.write_text("\n".join([",uid,animal,colour", *rows]))
    out = tmp_path / "out"
    command = ["audit", "--features", str(tmp_path / "f.npz"), "--labels", str(labels)]
    command += ["--adapters", "zero-shot", *COLUMNS, *NAMED, "--out", str(out)]
    error = call(*command, code=3).stderr
    assert "'', 'uid'; say which one names the rows with `--path-column`" in error
    call(*command, "--path-column", "uid")
    document = Audit.load(out / "audit.json").document
    labels.write_text("\n".join([",id,animal,colour", *rows]))
    result = call(*command[:-1], str(tmp_path / "found"))
    assert "The column 'id' of 'labels.csv' names the features." in result.stderr
    found = Audit.load(tmp_path / "found" / "audit.json").document
    assert found.provenance["data"]["path_column"] == "id"
    expected = [group.correct for group in document.runs[0].groups]
    assert [group.correct for group in found.runs[0].groups] == expected
    answered = answers(
        "--features", str(place / "images.npy"), "--adapter", "zero-shot"
    ).values()
    right = sum(
        one.target == row["label"] for one, row in zip(DRAWN, answered, strict=True)
    )
    assert sum(expected) == right


def test_rows_without_a_vector_are_left_out_with_an_exit_code(
    place: Path, tmp_path: Path
) -> None:
    vectors = [
        None if i in (3, 7) else row
        for i, row in enumerate(np.load(place / "images.npy"))
    ]
    table = pa.table({"id": [f"p{i}" for i in range(60)], "vector": pa.array(vectors)})
    pq.write_table(table, tmp_path / "f.parquet")
    for command in "predict", "examine":
        source = command, "--features", str(tmp_path / "f.parquet"), *NAMED
        error = call(*source, code=4).stderr
        assert "has no vectors for them: 2 ('p3', 'p7')" in error
