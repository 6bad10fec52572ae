"""`fair-tta audit`: the figures of the API, kills and all that folders hold."""

from __future__ import annotations

import csv
import html
import json
import os
import re
import shutil
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from checks import picture
from cli_fixtures import (
    USABLE,
    audit_arguments,
    call,
    flat,
    load_audit,
    rows_of,
    write_labels,
)
from cli_fixtures import folder as folder
from cli_fixtures import labelled as labelled
from cli_fixtures import tiny_model as tiny_model
from extending_page import documented
from internals import FOLDER, ROWS_FILE, Store

from fair_tta import FairTPT, FairTPTClassifier, ZeroShot
from fair_tta.auditing import Audit, compare
from fair_tta.extend import AugMix
from fair_tta.miniature import BADGES

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")

ADAPTERS = ("--adapters", "zero-shot,fair-tpt:lam=10,rho=0.5")


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_everything_at_once_against_the_api(folder: Path, tiny_model: str) -> None:
    out = call(*audit_arguments(folder, tiny_model), *ADAPTERS, code=4)
    clf = FairTPTClassifier(
        tiny_model,
        {"cat": "of a cat", "dog": "of a dog, black"},
        {"place": {"water": "on water", "land": "on land"}},
        "a photo {target} {sensitive}.",
        views=AugMix(4),
        batch_size=4,
    )
    images = [picture(i) for i in USABLE]
    labels = ["cat" if i < 8 else "dog" for i in USABLE]
    values = ["water" if i in (1, 3, 5, 7, 8) else "land" for i in USABLE]
    fair_tpt = clf.with_adapter(FairTPT(lam=10.0, rho=0.5))
    method = "fair-tpt:lam=10,rho=0.5"
    zero_shot = clf.with_adapter(ZeroShot())
    audits = [
        zero_shot.audit(images, labels, values, name="zero-shot"),
        fair_tpt.audit(images, labels, values, name=method),
    ]
    expected = compare(audits).to_dict()
    actual = load_audit(folder).to_dict()
    assert actual["data"] == expected["data"]
    assert actual["comparisons"] == approx(expected["comparisons"])
    for mine, theirs in zip(actual["runs"], expected["runs"], strict=True):
        assert mine["adapter"] == theirs["adapter"]
        assert mine["cost"]["seconds"] > 0
        fields = "groups metrics sensitive_indifference zero_shot_scores"
        for field in fields.split():
            assert mine[field] == approx(theirs[field])
    assert "dog / water" in out.stdout
    assert "10 images" in out.stdout
    files = "audit.json report.html card.md predictions.csv problems.csv"
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == {ROWS_FILE, *files.split()}
    predictions = table_of(folder / "out" / "predictions.csv")
    assert [row["target"] for row in predictions] == labels
    assert [row["sensitive: place"] for row in predictions] == values
    assert predictions[0]["image"] == "sub/[red] ünï, 0.png"
    answers = [prediction.label for prediction in fair_tpt.predict(images)]
    assert [row[f"{method}: answer"] for row in predictions] == answers


def approx(value: Any, within: float = 2e-4) -> Any:
    """Numbers nearly, everything else exactly, however deep.

    The batches of command and API differ, and between batches probabilities agree to 1e-4; the
    calibration error may enlarge that 31 times. A picture more or less would be 0.1.
    """
    if isinstance(value, dict):
        return {
            k: approx(v, 4e-3 if "calibration" in k else within)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [approx(item, within) for item in value]
    return pytest.approx(value, abs=within) if isinstance(value, float) else value


def test_problems_are_listed(folder: Path, tiny_model: str) -> None:
    out = call(*audit_arguments(folder, tiny_model, adapters="zero-shot"), code=4)
    problems = table_of(folder / "out" / "problems.csv")
    listed = sorted((p["row"], p["what"].split(":")[0]) for p in problems)
    assert listed == [
        ("10", "4.png"), ("11", "2.png"), ("12", "labels.csv line 13 (animal)"), ("3", "2.png"),
        ("7", "broken.png"), ("8", "empty.png"), ("9", "missing.png"),
    ]  # fmt: skip
    kinds = load_audit(folder).to_dict()["provenance"]["problems"]
    assert {name: actual["count"] for name, actual in kinds.items()} == {
        "image came again with other labels": 2,
        "image came again with the same labels (kept once)": 1,
        "image file is empty (0 bytes)": 1,
        "image file is missing": 1,
        "value is missing": 1,
        "image cannot be read": 1,
    }
    assert (
        "7 rows were left out, 1 of them because the image is counted already:"
        in out.stdout
    )
    assert "1 x image file is missing: missing.png" in out.stdout
    assert (
        "Prompts, targets: 'a photo of a cat.', 'a photo of a dog, black.'"
        in out.stderr
    )


def test_what_is_about_the_label_file_is_no_row(
    labelled: Path, tiny_model: str
) -> None:
    (labelled / "pics" / "7.png").rename(labelled / "pics" / "ä.png")
    labels = labelled / "labels.csv"
    labels.write_bytes(
        labels.read_text("utf-8").replace("\n7.png", "\nä.png").encode("cp1252")
    )
    out = call(
        *audit_arguments(labelled, tiny_model, adapters="zero-shot"), "--progress"
    )
    assert (
        "No row was left out, but:\n  1 x file is not UTF-8 and was read as"
        in out.stdout
    )
    assert "24 of 24 rows" in out.stderr
    (problem,) = table_of(labelled / "out" / "problems.csv")
    assert (problem["row"], problem["what"]) == ("", "labels.csv")
    rows = [row["row"] for row in table_of(labelled / "out" / "predictions.csv")]
    assert rows == [str(i) for i in range(1, 25)]


def test_a_limit_counts_rows_and_not_what_is_about_the_file(
    labelled: Path, tiny_model: str
) -> None:
    labels = labelled / "labels.csv"
    labels.write_bytes(
        labels.read_bytes().replace(b"water", b"w\xe4ter")
    )  # Windows-1252
    names = ["--rename", "place: wäter=water", "--adapters", "zero-shot"]
    for options, count in (
        (["--limit", "1"], 1),
        (["--limit", "6", "--sample", "4"], 4),
    ):
        call(*audit_arguments(labelled, tiny_model), *names, *options)
        assert len(table_of(labelled / "out" / "predictions.csv")) == count
        assert [row["row"] for row in table_of(labelled / "out" / "problems.csv")] == [
            ""
        ]


def test_problems_are_listed_if_no_row_can_be_used(
    folder: Path, tiny_model: str
) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "problems.csv").write_text("of an earlier run")
    write_labels(
        folder / "labels.csv",
        [("gone.png", "cat", "land"), ("broken.png", "dog", "water")],
    )
    call(*audit_arguments(folder, tiny_model, adapters="zero-shot"), code=3)
    listed = table_of(folder / "out" / "problems.csv")
    first, *remaining = [row["what"].split(":")[0] for row in listed]
    assert first == "images without a row"
    assert remaining == ["gone.png", "broken.png"]


def test_a_method_of_a_file_of_ones_own(
    folder: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers are not used when the file has changed."""
    file = folder / "own" / "soft_vote.py"
    file.parent.mkdir()
    file.write_text(documented("SoftVote"))
    monkeypatch.chdir(folder)
    arguments = [*audit_arguments(folder, tiny_model)]
    arguments += ["--adapters", "zero-shot,own/soft_vote.py:SoftVote"]
    call(*arguments, code=4)
    run = load_audit(folder).to_dict()["runs"][1]
    assert run["name"] == "soft_vote.py:SoftVote"
    digest = f"sha256:{sha256(file.read_bytes()).hexdigest()}"
    assert run["adapter"] == {
        "name": "SoftVote", "repr": "SoftVote()", "settings": {"soft_vote.py": digest},
    }  # fmt: skip
    assert digest in (folder / "out" / "report.html").read_text("utf-8")
    file.write_text(file.read_text() + "\n# another\n")
    before = len(rows_of(folder / "out"))
    call(*arguments, code=4)
    assert len(rows_of(folder / "out")) == before + len(USABLE), (
        "those of the method alone"
    )
    arguments[-1] += ",own/none.py:A"
    assert "there is no file" in call(*arguments, code=2).stderr


def test_the_same_command_changes_nothing_and_asks_nothing(
    folder: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = call(*audit_arguments(folder, tiny_model), *ADAPTERS, code=4)
    rows = rows_of(folder / "out")
    audit = load_audit(folder)
    monkeypatch.setattr(FairTPTClassifier, "_predict_encoded", None)
    again = call(*audit_arguments(folder, tiny_model), *ADAPTERS, code=4)
    assert again.stdout == first.stdout
    assert rows_of(folder / "out") == rows
    assert load_audit(folder) == audit


@pytest.mark.skipif(sys.platform == "win32", reason="no such pipes")
def test_labels_may_come_from_a_pipe(labelled: Path, tiny_model: str) -> None:
    """As a shell passes them: ``--labels <(grep ...)``."""
    call(*audit_arguments(labelled, tiny_model))
    reading, writing = os.pipe()
    with open(reading, "rb"):
        with open(writing, "wb") as pipe:
            pipe.write((labelled / "labels.csv").read_bytes())
        arguments = audit_arguments(labelled, tiny_model, "piped")
        arguments[arguments.index(str(labelled / "labels.csv"))] = f"/dev/fd/{reading}"
        call(*arguments)
    actual = load_audit(labelled, "piped").document
    assert actual.data == load_audit(labelled).document.data


def test_what_kills_left_is_swept(labelled: Path, tiny_model: str) -> None:
    (labelled / "out").mkdir()
    leftover = labelled / "out" / ".0123.part"
    leftover.touch()
    os.utime(leftover, (0, 0))
    call(*audit_arguments(labelled, tiny_model), "--limit", "2")
    assert not leftover.exists()


def test_without_some_rows_the_run_ends_with_the_same_rows(
    folder: Path, tiny_model: str
) -> None:
    call(*audit_arguments(folder, tiny_model), *ADAPTERS, code=4)
    rows = rows_of(folder / "out")
    predictions = (folder / "out" / "predictions.csv").read_bytes()
    audit = load_audit(folder)
    for first in (0, 5, len(rows) - 1):
        with Store(folder / "out" / ROWS_FILE) as store:
            store._db.execute("DELETE FROM rows WHERE rowid > ?", (first,))
        call(*audit_arguments(folder, tiny_model), *ADAPTERS, code=4)
        assert rows_of(folder / "out") == rows  # to the last bit
        assert (folder / "out" / "predictions.csv").read_bytes() == predictions
        assert load_audit(folder) == audit


def test_a_repaired_picture_is_taken_up(folder: Path, tiny_model: str) -> None:
    arguments = audit_arguments(folder, tiny_model, adapters="zero-shot")
    call(*arguments, code=4)
    picture(50).save(folder / "pics" / "broken.png")
    picture(51).save(folder / "pics" / "missing.png")
    call(*arguments, code=4)
    repaired = load_audit(folder)
    assert repaired.document.data.n == 12
    call(*audit_arguments(folder, tiny_model, "fresh", adapters="zero-shot"), code=4)
    fresh = load_audit(folder, "fresh")
    assert fresh.document.data == repaired.document.data  # in the order of the file


def test_a_picture_that_was_written_over_is_done_again(
    folder: Path, tiny_model: str
) -> None:
    arguments = [*audit_arguments(folder, tiny_model), *ADAPTERS]
    call(*arguments, code=4)
    before = rows_of(folder / "out")
    picture(50).save(folder / "pics" / "4.png")
    call(*arguments, code=4)
    after = rows_of(folder / "out")
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2, "of two methods"
    call(*audit_arguments(folder, tiny_model, "fresh"), *ADAPTERS, code=4)
    actual, fresh = (load_audit(folder, out) for out in ("out", "fresh"))
    assert actual == fresh
    call(*arguments, code=4)
    assert rows_of(folder / "out") == after


def test_a_picture_that_is_gone_or_broken_since_is_left_out(
    folder: Path, tiny_model: str
) -> None:
    arguments = [*audit_arguments(folder, tiny_model), *ADAPTERS]
    call(*arguments, code=4)
    content = (folder / "pics" / "4.png").read_bytes()
    (folder / "pics" / "4.png").unlink()
    (folder / "pics" / "5.png").write_bytes(b"broken")
    out = call(*arguments, code=4)
    assert "8 images" in out.stdout
    call(*audit_arguments(folder, tiny_model, "fresh"), *ADAPTERS, code=4)
    actual, fresh = (load_audit(folder, out) for out in ("out", "fresh"))
    assert actual == fresh
    (folder / "pics" / "4.png").write_bytes(content)
    assert "9 images" in call(*arguments, code=4).stdout


def test_an_adapter_that_is_added_runs_alone(
    folder: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods: list[str] = []
    predict = FairTPTClassifier._predict_encoded

    def noted(self: Any, *arguments: Any, **options: Any) -> Any:
        methods.append(type(self.adapter).__name__)
        return predict(self, *arguments, **options)

    monkeypatch.setattr(FairTPTClassifier, "_predict_encoded", noted)
    arguments = audit_arguments(folder, tiny_model)
    call(*arguments, "--adapters", "zero-shot", code=4)
    assert set(methods) == {"ZeroShot"}
    methods.clear()
    call(*arguments, "--adapters", "zero-shot,zero,tpt", code=4)
    assert set(methods) == {"Zero", "TPT"}
    assert load_audit(folder).runs == (
        "zero-shot",
        "zero",
        "tpt",
    )
    methods.clear()
    call(*arguments, "--adapters", "tpt,zero-shot", code=4)  # another reference
    assert not methods
    call(*arguments, code=4)
    assert set(methods) == {"AssociationCorrection", "CrossFitted"}
    methods.clear()
    out = call(
        *arguments, "--batch-size", "3", code=4
    )  # fits again, and answers nothing again
    assert not methods
    assert "logit-balance: cross-fitted on these 10 images" in flat(out.stdout)
    assert "logit-balance: cross-fitted" in (folder / "out" / "report.html").read_text()


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_a_method_that_needs_classes_is_cross_fitted_with_those_of_the_audit(
    tmp_path: Path,
) -> None:
    (tmp_path / "pics").mkdir()
    rows = []
    for i, drawn in enumerate(BADGES.draw(90)):
        drawn.image.save(tmp_path / "pics" / f"{i}.png")
        rows.append((f"{i}.png", drawn.target, drawn.sensitive["colour"]))
    write_labels(tmp_path / "labels.csv", rows)
    inputs = (
        "--images",
        str(tmp_path / "pics"),
        "--labels",
        str(tmp_path / "labels.csv"),
    )
    columns = "--target-column", "animal", "--sensitive-column", "place"
    methods = "--adapters", "zero-shot,balanced-head", "--template", BADGES.template
    arguments = "audit", *inputs, *columns, *methods, "--out", str(tmp_path / "out")
    out = call(*arguments)
    assert "on these 90 images and their class labels" in flat(out.stdout)
    refused = call(*arguments, "--reference", str(tmp_path / "pics"), code=2)
    assert "'balanced-head' needs class labels" in refused.stderr


def test_a_first_try_that_failed_blocks_nothing(folder: Path, tiny_model: str) -> None:
    (folder / "empty").mkdir()
    arguments = audit_arguments(folder, tiny_model, adapters="zero-shot")
    error = call(*arguments, "--images", str(folder / "empty"), code=3).stderr
    assert "no row could be used" in error
    other_template = "a picture of a place with {target} {sensitive}."
    call(*arguments, "--template", other_template, code=4)
    call(*arguments, *"--seed 1 --views 5".split(), code=4)
    call(*arguments, code=4)
    call(*arguments, "--out", str(folder / "fresh"), code=4)
    assert load_audit(folder) == load_audit(folder, "fresh")
    labels = folder / "labels.csv"
    rows = rows_of(folder / "out")
    labels.write_bytes(labels.read_bytes() + b"9.png,dog,land\n")
    call(*arguments, code=4)
    assert rows_of(folder / "out") == rows
    call(*arguments, *"--restart --seed 1".split(), code=4)
    assert load_audit(folder).to_dict()["provenance"]["seed"] == 1
    assert len(rows_of(folder / "out")) == len(USABLE)


def test_the_order_of_names_is_part_of_the_question(
    labelled: Path, tiny_model: str
) -> None:
    arguments = audit_arguments(labelled, tiny_model, adapters="zero-shot")
    swapped = [*arguments]
    first, second = (i + 1 for i, word in enumerate(arguments) if word == "--targets")
    swapped[first] = arguments[second]
    swapped[second] = arguments[first]
    tables = []
    for command in (arguments, swapped):
        call(*command, "--limit", "9")
        tables.append(table_of(labelled / "out" / "predictions.csv"))
    for before, after in zip(*tables, strict=True):
        assert before["zero-shot: answer"] == after["zero-shot: answer"]
        for column in ("zero-shot: confidence", "zero-shot: probability of target"):
            expected = pytest.approx(float(before[column]), abs=1e-4)
            assert float(after[column]) == expected


def test_a_run_that_fails_leaves_the_files_of_the_one_before(
    folder: Path, tiny_model: str
) -> None:
    arguments = audit_arguments(folder, tiny_model, adapters="zero-shot")
    call(*arguments, code=4)
    before = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    (folder / "empty").mkdir()
    call(*arguments, "--images", str(folder / "empty"), code=3)
    assert {
        path.name: path.read_bytes() for path in (folder / "out").iterdir()
    } == before


@pytest.mark.filterwarnings("default:.*as written:UserWarning")
def test_damage_is_told_and_mended(folder: Path, tiny_model: str) -> None:
    arguments = [*audit_arguments(folder, tiny_model), *ADAPTERS]
    first = call(*arguments, code=4)
    path = folder / "out" / ROWS_FILE
    data = path.read_bytes()
    start = data.index(b'"label":"') + 9
    path.write_bytes(data[:start] + b"X" + data[start + 1 :])
    again = call(*arguments, code=4)
    assert _without_times(again.stdout) == _without_times(first.stdout)
    assert "1 row is not as written" in again.stderr
    assert "Warning" not in again.stderr
    assert "as written" not in call(*arguments, code=4).stderr
    path.write_bytes(path.read_bytes()[:5000])
    assert "is damaged" in call(*arguments, code=3).stderr
    call(*arguments, "--restart", code=4)


def test_limits_and_samples(labelled: Path, tiny_model: str) -> None:
    arguments = audit_arguments(labelled, tiny_model, adapters="zero-shot")
    assert "10 images" in call(*arguments, "--limit", "10").stdout
    out = call(*arguments, "--sample", "12", "--progress")
    assert "12 images" in out.stdout
    assert "12 of 12 rows" in out.stderr
    audit = load_audit(labelled)
    assert "Not all rows were used: a sample of 12." in audit.warnings
    assert audit.to_dict()["provenance"]["data"]["sample"] == 12
    rows = table_of(labelled / "out" / "predictions.csv")
    groups = Counter((row["target"], row["sensitive: place"]) for row in rows)
    assert groups == {
        ("cat", "water"): 4,
        ("cat", "land"): 4,
        ("dog", "water"): 2,
        ("dog", "land"): 2,
    }
    output = call(*arguments, "--sample", "3", "--progress")
    assert "4 images" in output.stdout, "one of each group"
    assert "4 of 4 rows" in output.stderr


@pytest.mark.slow
def test_processes_give_the_rows_of_one(labelled: Path, tiny_model: str) -> None:
    short = ["--limit", "12"]
    call(*audit_arguments(labelled, tiny_model), *ADAPTERS, *short)
    call(
        *audit_arguments(labelled, tiny_model, "two"),
        *ADAPTERS,
        *short,
        "--workers",
        "2",
    )
    one_process, two_processes = (
        load_audit(labelled, out).to_dict() for out in ("out", "two")
    )
    assert one_process["data"] == two_processes["data"]
    for mine, theirs in zip(one_process["runs"], two_processes["runs"], strict=True):
        assert mine["metrics"] == approx(theirs["metrics"])


def test_files_name_no_place_of_the_machine(folder: Path, tiny_model: str) -> None:
    model = folder / "here" / "tiny"
    shutil.copytree(tiny_model, model)
    call(*audit_arguments(folder, str(model)), "--adapters", "zero-shot", code=4)
    for path in (folder / "out").iterdir():
        assert str(folder).encode() not in path.read_bytes(), path.name
    document = load_audit(folder).to_dict()
    assert document["provenance"]["model"]["name"] == "CLIPModel (tiny)"
    assert document["provenance"]["data"]["images"] == "pics"
    rows = rows_of(folder / "out")
    moved = folder / "there" / "other name"
    shutil.copytree(model, moved)
    shutil.rmtree(model)
    call(*audit_arguments(folder, str(moved)), "--adapters", "zero-shot", code=4)
    assert rows_of(folder / "out") == rows
    (folder / "second").mkdir()
    (folder / "pics").rename(folder / "second" / "pics")
    arguments = [*audit_arguments(folder, str(moved)), "--adapters", "zero-shot"]
    call(*arguments, "--images", str(folder / "second" / "pics"), code=4)
    assert rows_of(folder / "out") == rows, "they are the same pictures"
    (config,) = moved.glob("p*rocessor_config.json")  # its name depends on transformers
    config.write_text(config.read_text().replace("0.48145466", "0.3"))
    (folder / "second" / "pics").rename(folder / "pics")
    call(*arguments, code=4)
    assert len(rows_of(folder / "out")) == 2 * len(USABLE), (
        "the model sees them otherwise"
    )


def test_the_embedded_model_says_what_it_is(labelled: Path) -> None:
    labels = labelled / "labels.csv"
    labels.write_text("".join(labels.read_text().splitlines(keepends=True)[:7]))
    arguments = [*audit_arguments(labelled, "miniature"), "--adapters", "zero-shot"]
    note = "no --model: the embedded miniature model, which knows drawn images only"
    assert note not in call(*arguments).stderr
    assert note not in load_audit(labelled).warnings
    start = arguments.index("--model")
    del arguments[start : start + 2]
    out = call(*arguments)
    assert out.stderr.count(note) == 1
    assert note in load_audit(labelled).warnings
    for path in (labelled / "out").iterdir():
        assert str(FOLDER.parent).encode() not in path.read_bytes(), path.name


def test_names_are_the_values_of_the_columns(labelled: Path, tiny_model: str) -> None:
    arguments = audit_arguments(labelled, tiny_model)
    del arguments[arguments.index("--targets") :]
    call(*arguments, "--adapters", "zero-shot")
    prompts = load_audit(labelled).to_dict()["provenance"]["prompts"]
    assert prompts["targets"] == {"cat": "cat", "dog": "dog"}
    assert prompts["sensitive"] == {"place": {"land": "land", "water": "water"}}
    assert prompts["template"]["joint"] == "a photo of a {sensitive} {target}."


def test_renaming_merging_and_leaving_out(tmp_path: Path, tiny_model: str) -> None:
    (tmp_path / "pics").mkdir()
    values = [("0", "sea"), ("1", "lake"), ("0", "land"), ("1", "moon"), ("0", "sea")]
    rows = []
    for i, pair in enumerate(values):
        picture(i).save(tmp_path / "pics" / f"{i}.png")
        rows.append((f"{i}.png", *pair))
    write_labels(tmp_path / "labels.csv", rows)
    arguments = audit_arguments(tmp_path, tiny_model, adapters="zero-shot")
    error = call(*arguments, code=3).stderr
    assert (
        "'labels.csv' holds values that were not named: animal '0' (3 rows), animal '1' (2 rows), "
        "place 'sea' (2 rows), place 'lake' (1 row), place 'moon' (1 row)."
    ) in error
    for rename in (
        "animal: 0=cat",
        "animal: 1=dog",
        "place:sea=water",
        "place:lake=water",
    ):
        arguments += ["--rename", rename]
    assert "place 'moon' (1 row). Name them" in call(*arguments, code=3).stderr
    call(*arguments, "--skip-unknown", code=4)
    table = table_of(tmp_path / "out" / "predictions.csv")
    groups = [(row["target"], row["sensitive: place"]) for row in table]
    expected = ("cat", "water"), ("dog", "water"), ("cat", "land"), ("cat", "water")
    assert groups == list(expected)


def test_several_attributes(labelled: Path, tiny_model: str) -> None:
    lines = (labelled / "labels.csv").read_text().splitlines()
    for i, _ in enumerate(lines):
        lines[i] += ",time" if i == 0 else ",day" if i % 5 else ",night"
    (labelled / "labels.csv").write_text("\n".join(lines))
    arguments = audit_arguments(labelled, tiny_model, adapters="orthcali")
    arguments += ["--sensitive-column", "time"]
    error = call(*arguments, code=2).stderr  # which column do the names belong to?
    assert "attributes should be sensitive columns" in flat(error)
    start = arguments.index("--sensitive")
    for i, names in ((1, "place: water=on water"), (3, "place: land=on land")):
        arguments[start + i] = names
    call(*arguments)
    document = load_audit(labelled).to_dict()
    attributes = {"place": ["water", "land"], "time": ["day", "night"]}
    assert document["data"]["sensitive"] == attributes
    assert len(document["runs"][0]["groups"]) == 4
    prompts = document["provenance"]["prompts"]["sensitive"]
    assert prompts["time"] == {"day": "day", "night": "night"}


def test_images_are_embedded_only_if_asked(labelled: Path, tiny_model: str) -> None:
    arguments = audit_arguments(
        labelled, tiny_model, adapters="zero-shot,orthcali:lam=0"
    )
    page = labelled / "out" / "report.html"
    text = call(*arguments, "--embed-images").stdout
    count = page.read_text("utf-8").count('src="data:image/')
    assert count > 0
    assert f"report.html ({count} images inside)" in flat(text)
    for option in ((), ("--no-embed-images",)):
        assert "(no images inside)" in flat(call(*arguments, *option).stdout)
        text = page.read_text("utf-8")
        assert "data:image/" not in text
        assert ".png" not in text


def test_no_names_of_pictures_that_were_left_out(folder: Path, tiny_model: str) -> None:
    """Neither in the report nor in what a report is made of."""
    arguments = audit_arguments(folder, tiny_model, adapters="zero-shot")
    files = [folder / "out" / name for name in ("report.html", "audit.json", "card.md")]
    call(*arguments, "--embed-images", code=4)
    assert "missing.png" in files[0].read_text("utf-8")
    call(*arguments, code=4)
    for file in files:
        assert ".png" not in file.read_text("utf-8")
    assert len(table_of(folder / "out" / "problems.csv")) == 7
    actual = Audit.load(files[1]).document.provenance["problems"][
        "image file is missing"
    ]
    assert actual == {"count": 1, "examples": []}


def folder_arguments(home: Path, model: str) -> list[str]:
    arguments = "audit --sensitive-column place --adapters zero-shot".split()
    arguments += ["--images", str(home / "pics"), "--out", str(home / "out")]
    return [*arguments, "--model", model]


def test_folders_can_be_the_labels(tmp_path: Path, tiny_model: str) -> None:
    for i in range(8):
        home = tmp_path / "pics" / ("cat", "dog")[i % 2] / ("0", "land")[i // 4]
        home.mkdir(parents=True, exist_ok=True)
        picture(i).save(home / f"{i}.png")
    log = flat(call(*folder_arguments(tmp_path, tiny_model)).stderr)
    assert "8 images are labelled by their folders (class / place)" in log
    assert "'0' is a number and is inserted into the prompt unchanged." in log
    assert "--sensitive 'place: 0=...'" in log
    data = load_audit(tmp_path).document.data
    assert (data.n, data.targets) == (8, ("cat", "dog"))
    assert data.sensitive == {"place": ("0", "land")}


@pytest.mark.skipif(sys.platform != "linux", reason="names are Unicode there")
def test_what_folders_do_not_label_is_listed(tmp_path: Path, tiny_model: str) -> None:
    home = tmp_path / "pics"
    for i in range(4):
        group = home / ("cat", "dog")[i % 2] / "früh"
        group.mkdir(parents=True, exist_ok=True)
        picture(i).save(group / f"{i}.png")
    picture(4).save(home / "stray.png")
    with (home / "cat" / "früh" / os.fsdecode(b"caf\xe9.png")).open("wb") as file:
        picture(5).save(file, "png")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "labels.csv").write_text("mine")
    arguments = [*folder_arguments(tmp_path, tiny_model), "--sensitive", "früh,spät"]
    assert "2 rows were left out" in call(*arguments, code=4).stdout
    problems = {}
    for row in table_of(tmp_path / "out" / "problems.csv"):
        problems[row["row"], row["what"]] = row["problem"]
    assert problems == {
        ("6", "cat/früh/caf\\udce9.png"): "file name is not Unicode (rename the file)",
        ("5", "stray.png"): "image lies above the folders that are the labels",
    }
    assert len(table_of(tmp_path / "out" / "predictions.csv")) == 4
    assert (tmp_path / "out" / "labels.csv").read_text() == "mine"
    (tmp_path / "out" / "folder-labels.csv").write_text("mine too")
    assert "has other columns than it would get" in call(*arguments, code=3).stderr


def test_sets_of_harmful_classes(labelled: Path, tiny_model: str) -> None:
    arguments = audit_arguments(
        labelled, tiny_model, adapters="zero-shot,orthcali:lam=0"
    )
    for classes in ("crime: thief", "crime: burglar=a burglar", "cat"):
        arguments += ["--harmful", classes]
    out = call(*arguments)
    assert "Answers in the set crime (thief, burglar)" in flat(out.stdout)
    document = load_audit(labelled).document
    assert document.data.targets == ("cat", "dog", "thief", "burglar")
    assert document.data.harmful == {"crime": ("thief", "burglar"), "harmful": ("cat",)}
    assert document.provenance["prompts"]["targets"]["burglar"] == "a burglar"
    rates = [harm for harm in document.runs[0].harm if harm.classes == "harmful"]
    groups = [{}, {"place": "water"}, {"place": "land"}]
    assert [harm.sensitive for harm in rates] == groups
    table = table_of(labelled / "out" / "predictions.csv")
    answers = [row["zero-shot: answer"] for row in table]
    assert rates[0].rate.value == answers.count("cat") / len(answers)


def test_a_column_of_persons(labelled: Path, tiny_model: str) -> None:
    labels = labelled / "labels.csv"
    lines = labels.read_text("utf-8").splitlines()
    persons = ["person", "", "n/a", *(f"person {i % 11}" for i in range(22))]
    rows = [f"{line},{person}" for line, person in zip(lines, persons, strict=True)]
    labels.write_text("\n".join(rows))
    arguments = audit_arguments(labelled, tiny_model, adapters="zero-shot,tpt")
    out = call(*arguments, "--cluster-column", "person")
    data = load_audit(labelled).document.data
    assert (data.n, data.clusters) == (24, 13)
    sentence = "24 images of 13 clusters (column person): intervals allow for that."
    assert sentence in out.stdout
    for name in ("report.html", "card.md"):
        assert sentence in (labelled / "out" / name).read_text("utf-8")
    call(*arguments)
    before = load_audit(labelled)
    assert before.document.data.clusters is None
    labels.write_text(re.sub(r"person [2-9]|person 10", "person 1", labels.read_text()))
    clustered = "--restart", "--cluster-column", "person"
    error = call(*arguments, *clustered, code=3).stderr
    assert "should be 10 or more persons or sources (got 4)" in flat(error)
    assert load_audit(labelled) == before, "nothing was run"


def test_thresholds(folder: Path, tiny_model: str) -> None:
    """Rows were left out (4), and one threshold fails (5)."""
    arguments = audit_arguments(folder, tiny_model, adapters="zero-shot,tpt")
    rules = []
    for rule in ("accuracy > 0", "typical_gap > 10", "accuracy > 100"):
        rules += ["--fail-if", rule]
    out = call(*arguments, *rules, "--fail-on", "tpt", code=5)
    thresholds = load_audit(folder).document.thresholds
    outcomes = [(threshold.run, threshold.outcome) for threshold in thresholds]
    assert outcomes == [("tpt", "failed"), ("tpt", "not judged"), ("tpt", "passed")]
    (line,) = [line for line in out.stderr.splitlines() if "failed" in line]
    assert line.startswith("Fail if accuracy > 0: failed; tpt has ")
    page = (folder / "out" / "report.html").read_text("utf-8")
    assert html.escape(line) in page
    assert "not judged; tpt has n/a (no interval" in page
    card = (folder / "out" / "card.md").read_text("utf-8")
    assert line.replace(">", "&gt;") in card
    assert "Fail if" in call(*arguments, "--fail-if", "accuracy < 0", code=4).stderr


def test_a_label_file_is_not_replaced_by_a_result(
    folder: Path, tiny_model: str
) -> None:
    labels = folder / "predictions.csv"  # of an earlier audit, say
    labels.write_bytes((folder / "labels.csv").read_bytes())
    before = labels.read_bytes()
    arguments = audit_arguments(folder, tiny_model, adapters="zero-shot")
    files = "--labels", str(labels), "--out", str(folder)
    error = call(*arguments, *files, code=3).stderr
    assert "`--labels` should not be a file that the audit writes" in error
    assert labels.read_bytes() == before


def test_a_column_of_too_many_values(folder: Path, tiny_model: str) -> None:
    arguments = audit_arguments(folder, tiny_model, adapters="zero-shot")
    del arguments[arguments.index("--targets") :]
    rows = [(f"{i}.png", str(i), "land") for i in range(1001)]
    write_labels(folder / "labels.csv", rows)
    assert "holds more than 1000 different values" in call(*arguments, code=3).stderr


def test_report_of_an_audit(labelled: Path, tiny_model: str) -> None:
    call(*audit_arguments(labelled, tiny_model), *ADAPTERS)
    path = labelled / "out" / "audit.json"
    call("report", str(path))
    assert (labelled / "out" / "audit.html").read_text() == (
        labelled / "out" / "report.html"
    ).read_text()
    call("report", str(path), "--full", "--out", str(labelled / "full.html"))
    assert "<details>" not in (labelled / "full.html").read_text()
    out = call("report", str(path), "--out", str(labelled / "card.md"))
    assert (labelled / "card.md").read_text() == (
        labelled / "out" / "card.md"
    ).read_text()
    assert "Written to" in out.stdout
    assert "Error: " in call("report", str(labelled / "nix.json"), code=3).stderr
    out = call("report", str(path), "--out", str(labelled / "card.pdf"), code=3)
    assert "`--out` should end in .html or .md" in out.stderr
    assert (
        "this is not JSON"
        in call("report", str(labelled / "labels.csv"), code=3).stderr
    )
    shutil.copy(path, labelled / "audit.html")
    out = call("report", str(labelled / "audit.html"), code=3)
    assert "`--out` should not be the file of the audit" in out.stderr
    path.write_text(json.dumps({"schema": "fair-tta/audit/99"}))
    assert "fair-tta/audit/99" in call("report", str(path), code=3).stderr


def _without_times(text: str) -> str:
    """What was answered anew takes another time, and cost is told in zero-shot calls."""
    text = re.sub(r"[\d.]+ with ", "some with ", flat(text))
    return re.sub(r"cost [\d.]+ x", "some cost", text)
