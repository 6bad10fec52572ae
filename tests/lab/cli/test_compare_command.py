"""`fair-tta compare`: files of predictions against the same answers in Python."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_fixtures import call, flat, load_audit
from internals import csv_cell
from internals import predict_module as predict

from fair_tta.auditing import Audit, audit, compare
from fair_tta.prediction import Prediction

N = 240
RANDOM = np.random.default_rng(0)
TRUTH = RANDOM.choice(["cat", "dog"], N)
PLACE = RANDOM.choice(["land", "water"], N)
HARD = (TRUTH == "cat") & (PLACE == "water")
BEFORE = np.where(RANDOM.random(N) < np.where(HARD, 0.5, 0.95), TRUTH, "dog")
AFTER = np.where(RANDOM.random(N) < 0.9, TRUTH, "dog")
NAMES = [f"{i}.png" for i in range(N)]


def write(path: Path, header: str, rows: Iterable[Iterable[object]]) -> str:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return str(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Labels, and two files of predictions in other orders and with other columns."""
    monkeypatch.chdir(tmp_path)
    all_rows = [*zip(NAMES, TRUTH, PLACE, BEFORE, AFTER, strict=True)]
    write(tmp_path / "labels.csv", "file,class,place", (row[:3] for row in all_rows))
    write(tmp_path / "before.csv", "image,label", ((r[0], r[3]) for r in all_rows))
    backwards = ((0.5, r[4], f"photos/{r[0]}") for r in all_rows[::-1])
    write(tmp_path / "after.csv", "score,label,path", backwards)
    return tmp_path


BOTH = ("compare", "before.csv", "after.csv", "--sensitive-column", "place")


def expected(rows_used: slice = slice(None)) -> Audit:
    runs = {"before": BEFORE, "after": AFTER}
    return compare(
        [
            audit(
                TRUTH[rows_used],
                answers[rows_used],
                {"place": PLACE[rows_used]},
                name=name,
            )
            for name, answers in runs.items()
        ]
    )


def figures(saved: Audit) -> tuple[object, ...]:
    """All but where it comes from."""
    document = saved.document
    return document.data, document.runs, document.comparisons, document.warnings


def test_it_is_the_audit_of_these_answers(folder: Path) -> None:
    out = call(*BOTH, "--labels", "labels.csv", "--out", "out")
    assert figures(load_audit(folder)) == figures(expected())
    assert {path.name for path in (folder / "out").iterdir()} == {
        "audit.json", "report.html", "card.md",
    }  # fmt: skip
    assert "240 images" in out.stdout
    assert (
        "Written to out: audit.json, report.html (no images inside), card.md\n"
        in out.stdout
    )
    assert "left out" not in out.stdout


def test_without_out_nothing_is_written(folder: Path) -> None:
    before = sorted(folder.iterdir())
    assert "Written" not in call(*BOTH, "--labels", "labels.csv").stdout
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("labelled", ["before", "after"])
def test_paths_may_begin_with_the_folder(folder: Path, labelled: str) -> None:
    """`fair-tta predict photos` writes photos/0.png, labels may have 0.png, and vice versa."""
    rows = (
        [f"{labelled}/{n}", *columns]
        for n, *columns in zip(NAMES, TRUTH, PLACE, strict=True)
    )
    write(folder / "labels.csv", "file,class,place", rows)
    call(*BOTH, "--labels", "labels.csv", "--out", "out")
    assert figures(load_audit(folder)) == figures(expected())


def test_labels_are_columns_of_the_first_file(folder: Path) -> None:
    rows = zip(NAMES, BEFORE, TRUTH, PLACE, strict=True)
    write(folder / "before.csv", "id,label,truth,place", rows)
    call(*BOTH, "--target-column", "truth", "--out", "out")
    assert figures(load_audit(folder)) == figures(expected())


@pytest.mark.parametrize("dog", ["-dog", "=dog", "hot\N{ZERO WIDTH NON-JOINER}dog"])
def test_names_that_predict_escapes(folder: Path, dog: str) -> None:
    """`--csv` writes '-dog for -dog: compared with labels all answers would be wrong."""
    written = str(csv_cell(dog))
    assert written != dog
    rows = zip(NAMES, np.where(TRUTH == "dog", dog, TRUTH), PLACE, strict=True)
    write(folder / "labels.csv", "file,class,place", rows)
    for name, answers in ("before", BEFORE), ("after", AFTER):
        predicted = zip(
            NAMES, np.where(answers == "dog", written, answers), strict=True
        )
        write(folder / f"{name}.csv", "image,label", predicted)
    call(*BOTH, "--labels", "labels.csv", "--out", "out")
    saved = load_audit(folder)
    for run in ("before", "after"):
        assert saved.estimate("accuracy", run) == expected().estimate("accuracy", run)


def test_signs_before_folders_are_part_of_paths(folder: Path) -> None:
    """`@alice/1.jpg` below another folder is no formula."""
    names = [f"@{name}" for name in NAMES]
    write(
        folder / "labels.csv", "file,class,place", zip(names, TRUTH, PLACE, strict=True)
    )
    for name, answers in ("before", BEFORE), ("after", AFTER):
        paths = [f"images/{path}" for path in names]
        write(folder / f"{name}.csv", "image,label", zip(paths, answers, strict=True))
    call(*BOTH, "--labels", "labels.csv", "--out", "out")
    saved = load_audit(folder)
    assert saved.estimate("accuracy", "after") == expected().estimate(
        "accuracy", "after"
    )


def test_paths_that_predict_escapes(folder: Path) -> None:
    """macOS puts a narrow no-break space into the names of screenshots."""
    names = [name.replace(".png", "\N{NARROW NO-BREAK SPACE}AM.png") for name in NAMES]
    rows = zip(names, TRUTH, PLACE, strict=True)
    write(folder / "labels.csv", "file,class,place", rows)
    for name, answers in ("before", BEFORE), ("after", AFTER):
        predicted = zip(map(csv_cell, names), answers, strict=True)
        write(folder / f"{name}.csv", "image,label", predicted)
    call(*BOTH, "--labels", "labels.csv", "--out", "out")
    assert figures(load_audit(folder)) == figures(expected())


def test_what_predict_writes(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """With an image that it could not read."""

    def answer(label: str) -> Prediction:
        p = {"cat": float(label == "cat"), "dog": float(label == "dog")}
        known: Any = {
            "label": label,
            "probabilities": p,
            "zero_shot": p,
            "sensitive_entropy": {},
        }
        fields = dict.fromkeys(Prediction.__annotations__) | known
        return Prediction(**{**fields, "certified_unchanged": True, "warnings": ()})

    rows = [
        (n, answer(str(label))) for n, label in zip(NAMES[1:], BEFORE[1:], strict=True)
    ]
    predict.print_csv_rows(
        [(NAMES[0], "cannot be read"), *rows], ["cat", "dog"], [], True
    )
    (folder / "before.csv").write_bytes(capsysbinary.readouterr().out)
    out = call(*BOTH, "--labels", "labels.csv", "--out", "out", code=4)
    assert figures(load_audit(folder)) == figures(expected(slice(1, None)))
    assert (
        "1 row was left out:\n  1 x row is not in all files: 0.png (not in before)"
        in out.stdout
    )


def test_rows_of_some_files_are_counted(folder: Path) -> None:
    rows = [*zip(NAMES, TRUTH, PLACE, strict=True)]
    write(
        folder / "labels.csv", "file,class,place", [*rows[2:], ("x.png", "cat", "land")]
    )
    out = call(*BOTH, "--labels", "labels.csv", "--out", "out", code=4)
    assert figures(load_audit(folder)) == figures(expected(slice(2, None)))
    assert "3 rows were left out:" in out.stdout
    text = flat(out.stdout)
    assert (
        "3 x row is not in all files: x.png (not in before, after); 0.png (not in labels.csv); "
        "1.png (not in labels.csv)"
    ) in text


def test_two_columns_of_the_file_that_an_audit_writes(folder: Path) -> None:
    rows = zip(NAMES, TRUTH, PLACE, BEFORE, AFTER, strict=True)
    header = "image,target,sensitive: place,zero-shot: answer,other: answer"
    file = write(folder / "predictions.csv", header, rows)
    options = ("--target-column", "target", "--sensitive-column", "sensitive: place")
    answers = (
        "--answer-column",
        "zero-shot: answer",
        "--answer-column",
        "other: answer",
    )
    call("compare", file, file, *options, *answers, "--out", "out")
    saved, (before, after) = (
        load_audit(folder),
        expected().document.runs,
    )
    assert saved.runs == (f"{file}: zero-shot: answer", f"{file}: other: answer")
    assert [run.metrics for run in saved.document.runs] == [
        before.metrics,
        after.metrics,
    ]


def test_renamed_values_clusters_and_a_file_alone(folder: Path) -> None:
    codes = (TRUTH == "dog").astype(int)
    person = np.arange(N) // 4
    rows = zip(NAMES, codes, PLACE, person, strict=True)
    write(folder / "labels.csv", "file,class,place,person", rows)
    options = (
        "--rename",
        "class: 0=cat",
        "--rename",
        "class: 1=dog",
        "--cluster-column",
        "person",
    )
    command = (
        "compare",
        "before.csv",
        "--sensitive-column",
        "place",
        "--labels",
        "labels.csv",
    )
    call(*command, *options, "--out", "out")
    saved = load_audit(folder).document
    direct = audit(
        TRUTH, BEFORE, {"place": PLACE}, clusters=person, name="before"
    ).document
    assert (saved.data, saved.runs, saved.comparisons) == (direct.data, direct.runs, ())


def test_thresholds(folder: Path) -> None:
    """About the last file unless another is named."""
    arguments = (
        *BOTH,
        "--labels",
        "labels.csv",
        "--fail-if",
        "wga < 70",
        "--out",
        "out",
    )
    assert "wga" not in call(*arguments).stderr
    assert load_audit(folder).document.thresholds[0].outcome == "passed"
    failed = call(*arguments, "--fail-on", "before", code=5)
    assert "Fail if worst_group_accuracy < 70: failed; before has" in failed.stderr
    wrong = call(*arguments, "--fail-on", "zero-shot", code=2).stderr
    assert "one of the methods, before, after (got 'zero-shot')" in flat(wrong)


OTHER_WORDS = {
    "capitals": ({"cat": "Cat", "dog": "Dog"}, "Cat=cat", "Dog=dog"),
    "phrases": ({"cat": "a cat", "dog": "a dog"}, "a cat=cat", "a dog=dog"),
    "numbers": ({"cat": "1", "dog": "0"}, "1=LABEL", "0=LABEL"),
}


@pytest.mark.parametrize("words", OTHER_WORDS)
def test_answers_in_other_words_are_an_error_with_renames_to_paste(
    folder: Path, words: str
) -> None:
    """They were "right on 0 of 100", had no gap and passed every threshold on one."""
    written, *renames = OTHER_WORDS[words]
    rows = ((name, written[answer]) for name, answer in zip(NAMES, AFTER, strict=True))
    write(folder / "after.csv", "image,label", rows)
    arguments = (*BOTH, "--labels", "labels.csv", "--out", "out")
    error = call(*arguments, "--fail-if", "typical_gap > 10", code=3).stderr
    for name in (
        "after.csv",
        "'label'",
        *map(repr, written),
        *map(repr, written.values()),
    ):
        assert name in error
    assert not (folder / "out").exists()
    options = shlex.split(error.splitlines()[-1])
    assert sorted(options[1::2]) == sorted(f"label: {rename}" for rename in renames)
    if words == "numbers":
        assert "no answer of" in call(*arguments, *options, code=3).stderr
        return
    call(*arguments, *options)
    assert figures(load_audit(folder)) == figures(expected())


def test_another_column_is_an_error(folder: Path) -> None:
    rows = zip(NAMES, ["u", "v", "w"] * (N // 3), BEFORE, strict=True)
    write(folder / "before.csv", "image,label,answer", rows)
    error = call(*BOTH, "--labels", "labels.csv", code=3).stderr
    assert "'before.csv'" in error
    assert "--answer-column" in error


def test_some_answers_that_are_no_class(folder: Path) -> None:
    """They are counted, named and wrong, and the exit code says so."""
    answers = ["I cannot tell", "CAT", *AFTER[2:]]
    write(folder / "after.csv", "image,label", zip(NAMES, answers, strict=True))
    arguments = (*BOTH, "--labels", "labels.csv", "--out", "out")
    result = call(*arguments, code=4)
    text = flat(result.stdout)
    assert "after: 2 of 240 answers are no class" in text
    assert "'I cannot tell' (1), 'CAT' (1)" in text
    assert "--rename 'label: CAT=cat'" in result.stderr
    saved = load_audit(folder)
    assert saved.estimate("accuracy", "after").value == np.mean(
        np.array(answers) == TRUTH
    )
    before, after = saved.document.runs
    assert before.no_class is None
    assert after.no_class is not None
    assert after.no_class.n == 2
    assert (
        "2 of 240 answers are no class" in (folder / "out" / "report.html").read_text()
    )
    call(*arguments, "--fail-if", "wga < 99", code=5)
    call(*arguments, "--targets", "cat,dog,I cannot tell", "--rename", "label: CAT=cat")


def test_renames_of_labels_and_of_answers(folder: Path) -> None:
    """Each applies where its column and its value occur, also if columns have one name."""
    rows = zip(NAMES, np.where(TRUTH == "cat", "0", "1"), PLACE, strict=True)
    write(folder / "labels.csv", "file,label,place", rows)
    capitals = (
        (name, str(answer).upper()) for name, answer in zip(NAMES, AFTER, strict=True)
    )
    write(folder / "after.csv", "image,label", capitals)
    renames = ("label: 0=cat", "label: 1=dog", "label: CAT=cat", "label: DOG=dog")
    options = [part for rename in renames for part in ("--rename", rename)]
    columns = ("--labels", "labels.csv", "--target-column", "label")
    call(*BOTH, *columns, *options, "--out", "out")
    assert figures(load_audit(folder)) == figures(expected())
    error = call(*BOTH, *columns, *options, "--rename", "label: 2=cat", code=3).stderr
    assert "['2']" in error
    error = call(*BOTH, *columns, *options, "--rename", "nothing: 2=cat", code=3).stderr
    assert "'nothing'" in error


def test_two_columns_of_names_are_not_guessed(folder: Path) -> None:
    """Under names that nobody knows; the first of them was taken."""
    rows = [*zip(NAMES[1:] + NAMES[:1], NAMES, TRUTH, PLACE, strict=True)]
    write(folder / "labels.csv", "before it,shown,class,place", rows)
    command = (*BOTH, "--labels", "labels.csv", "--target-column", "class")
    error = call(*command, code=3).stderr
    assert (
        "'before it', 'shown'; say which one names the rows with `--path-column`"
        in error
    )
    write(folder / "labels.csv", "before it,image,class,place", rows)
    result = call(*command)
    assert "The column 'image' of 'labels.csv' names the images." in result.stderr


def test_answers_that_are_the_same_numbers_as_labels(folder: Path) -> None:
    """Some of them: they were wrong answers, without a word."""
    numbers = {"cat": "0", "dog": "1"}
    rows = [*zip(NAMES, TRUTH, PLACE, strict=True)]
    write(
        folder / "labels.csv",
        "file,class,place",
        ((n, numbers[t], p) for n, t, p in rows),
    )
    answers = [numbers[label] + ".0" * (i % 2) for i, label in enumerate(BEFORE)]
    write(folder / "before.csv", "image,label", zip(NAMES, answers, strict=True))
    command = (
        "compare",
        "before.csv",
        "--labels",
        "labels.csv",
        "--target-column",
        "class",
    )
    error = call(*command, "--sensitive-column", "place", code=4).stderr
    assert "Some answers of 'before.csv' read like labels: " in error
    for rename in "'label: 0.0=0'", "'label: 1.0=1'":
        assert f"--rename {rename}" in error
