"""`fair-tta compare`: files of predictions against the same predictions in Python."""

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


def write(name: str, header: str, *columns: Iterable[object]) -> None:
    with Path(name).open("w", encoding="utf-8", newline="") as file:
        rows = zip(*columns, strict=True)
        csv.writer(file).writerows([header.split(","), *rows])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Labels, and two files of predictions in other orders and with other columns."""
    monkeypatch.chdir(tmp_path)
    write("labels.csv", "file,class,place", NAMES, TRUTH, PLACE)
    write("before.csv", "image,label", NAMES, BEFORE)
    paths = [f"photos/{name}" for name in NAMES[::-1]]
    write("after.csv", "score,label,path", [0.5] * N, AFTER[::-1], paths)
    return tmp_path


LABELS = "--labels labels.csv --out out"


def compare_both(options: str = LABELS, code: int = 0) -> Any:
    command = f"compare before.csv after.csv --sensitive-column place {options}"
    return call(*shlex.split(command), code=code)


def expected(start: int = 0) -> Audit:
    audits = []
    for name, answers in (("before", BEFORE), ("after", AFTER)):
        groups = {"place": PLACE[start:]}
        audits.append(audit(TRUTH[start:], answers[start:], groups, name=name))
    return compare(audits)


def figures(saved: Audit) -> tuple[object, ...]:
    """Everything except where it comes from."""
    document = saved.document
    return document.data, document.runs, document.comparisons, document.warnings


def assert_expected(folder: Path, start: int = 0) -> None:
    assert figures(load_audit(folder)) == figures(expected(start))


def test_it_is_the_audit_of_these_answers(folder: Path) -> None:
    out = compare_both()
    assert_expected(folder)
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == {"audit.json", "report.html", "card.md"}
    assert "240 images" in out.stdout
    files = "audit.json, report.html (no images inside), card.md"
    assert f"Written to out: {files}\n" in out.stdout
    assert "left out" not in out.stdout


def test_without_out_nothing_is_written(folder: Path) -> None:
    before = sorted(folder.iterdir())
    assert "Written" not in compare_both("--labels labels.csv").stdout
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("labelled", ["before", "after"])
def test_paths_may_begin_with_the_folder(folder: Path, labelled: str) -> None:
    """`fair-tta predict photos` writes photos/0.png, labels may have 0.png, and vice versa."""
    paths = [f"{labelled}/{name}" for name in NAMES]
    write("labels.csv", "file,class,place", paths, TRUTH, PLACE)
    compare_both()
    assert_expected(folder)


def test_labels_are_columns_of_the_first_file(folder: Path) -> None:
    write("before.csv", "id,label,truth,place", NAMES, BEFORE, TRUTH, PLACE)
    compare_both("--target-column truth --out out")
    assert_expected(folder)


@pytest.mark.parametrize("dog", ["-dog", "=dog", "hot\N{ZERO WIDTH NON-JOINER}dog"])
def test_names_that_predict_escapes(folder: Path, dog: str) -> None:
    """`--csv` writes '-dog for -dog: compared with labels all answers would be wrong."""
    written = str(csv_cell(dog))
    assert written != dog
    truth = np.where(TRUTH == "dog", dog, TRUTH)
    write("labels.csv", "file,class,place", NAMES, truth, PLACE)
    for name, answers in ("before", BEFORE), ("after", AFTER):
        predicted = np.where(answers == "dog", written, answers)
        write(f"{name}.csv", "image,label", NAMES, predicted)
    compare_both()
    saved = load_audit(folder)
    for run in ("before", "after"):
        assert saved.estimate("accuracy", run) == expected().estimate("accuracy", run)


@pytest.mark.parametrize("has_folder", [True, False])
def test_paths_that_predict_escapes(folder: Path, has_folder: bool) -> None:
    """`@alice/1.jpg` is a formula, but not below another folder; and macOS puts a narrow
    no-break space into the names of screenshots."""
    names = [f"@{name[:-4]}\N{NARROW NO-BREAK SPACE}AM.png" for name in NAMES]
    write("labels.csv", "file,class,place", names, TRUTH, PLACE)
    for name, answers in ("before", BEFORE), ("after", AFTER):
        paths = [csv_cell(f"images/{path}" if has_folder else path) for path in names]
        write(f"{name}.csv", "image,label", paths, answers)
    compare_both()
    assert_expected(folder)


def test_what_predict_writes(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """With an image that it could not read."""
    results: list[tuple[str, Prediction | str]] = [(NAMES[0], "cannot be read")]
    for name, label in zip(NAMES[1:], BEFORE[1:], strict=True):
        probabilities = {"cat": float(label == "cat"), "dog": float(label == "dog")}
        fields: dict[str, Any] = dict.fromkeys(Prediction.__annotations__)
        fields |= {"label": str(label), "probabilities": probabilities, "warnings": ()}
        fields |= {"zero_shot": probabilities, "certified_unchanged": True}
        results.append((name, Prediction(**fields)))
    predict.print_csv_rows(results, ["cat", "dog"], [], True)
    (folder / "before.csv").write_bytes(capsysbinary.readouterr().out)
    out = compare_both(code=4)
    assert_expected(folder, start=1)
    problem = "1 x row is not in all files: 0.png (not in before)"
    assert f"1 row was left out:\n  {problem}" in out.stdout


def test_rows_of_some_files_are_counted(folder: Path) -> None:
    names = [*NAMES[2:], "x.png"]
    truth = [*TRUTH[2:], "cat"]
    write("labels.csv", "file,class,place", names, truth, [*PLACE[2:], "land"])
    text = flat(compare_both(code=4).stdout)
    assert_expected(folder, start=2)
    assert "3 rows were left out:" in text
    assert (
        "3 x row is not in all files: x.png (not in before, after); 0.png (not in labels.csv); "
        "1.png (not in labels.csv)"
    ) in text


def test_two_columns_of_the_file_that_an_audit_writes(folder: Path) -> None:
    header = "image,target,sensitive: place,zero-shot: answer,other: answer"
    write("predictions.csv", header, NAMES, TRUTH, PLACE, BEFORE, AFTER)
    command = (
        "compare predictions.csv predictions.csv --target-column target --out out "
        "--sensitive-column 'sensitive: place' "
        "--answer-column 'zero-shot: answer' --answer-column 'other: answer'"
    )
    call(*shlex.split(command))
    saved = load_audit(folder)
    columns = ("zero-shot: answer", "other: answer")
    assert saved.runs == tuple(f"predictions.csv: {column}" for column in columns)
    metrics = [run.metrics for run in saved.document.runs]
    assert metrics == [run.metrics for run in expected().document.runs]


def test_renamed_values_clusters_and_a_single_file(folder: Path) -> None:
    codes = (TRUTH == "dog").astype(int)
    person = np.arange(N) // 4
    write("labels.csv", "file,class,place,person", NAMES, codes, PLACE, person)
    command = (
        "compare before.csv --sensitive-column place --cluster-column person "
        f"--rename 'class: 0=cat' --rename 'class: 1=dog' {LABELS}"
    )
    call(*shlex.split(command))
    saved = load_audit(folder).document
    groups = {"place": PLACE}
    direct = audit(TRUTH, BEFORE, groups, clusters=person, name="before").document
    assert (saved.data, saved.runs, saved.comparisons) == (direct.data, direct.runs, ())


def test_thresholds(folder: Path) -> None:
    """They apply to the last file unless another is named."""
    options = f"{LABELS} --fail-if 'wga < 70'"
    assert "wga" not in compare_both(options).stderr
    assert load_audit(folder).document.thresholds[0].outcome == "passed"
    failed = compare_both(f"{options} --fail-on before", code=5)
    assert "Fail if worst_group_accuracy < 70: failed; before has" in failed.stderr


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
    write("after.csv", "image,label", NAMES, [written[answer] for answer in AFTER])
    error = compare_both(f"{LABELS} --fail-if 'typical_gap > 10'", code=3).stderr
    for name in ("label", *written, *written.values()):
        assert repr(name) in error
    assert "after.csv" in error
    assert not (folder / "out").exists()
    pasted = error.splitlines()[-1]
    options = shlex.split(pasted)
    assert sorted(options[1::2]) == sorted(f"label: {rename}" for rename in renames)
    if words == "numbers":
        assert "no answer of" in compare_both(f"{LABELS} {pasted}", code=3).stderr
    else:
        compare_both(f"{LABELS} {pasted}")
        assert_expected(folder)


def test_another_column_is_an_error(folder: Path) -> None:
    write("before.csv", "image,label,answer", NAMES, ["u", "v", "w"] * (N // 3), BEFORE)
    error = compare_both(code=3).stderr
    assert "'before.csv'" in error
    assert "--answer-column" in error


def test_some_answers_that_are_not_a_class(folder: Path) -> None:
    """They are counted, named and wrong, and the exit code says so."""
    answers = np.array(["I cannot tell", "CAT", *AFTER[2:]])
    write("after.csv", "image,label", NAMES, answers)
    result = compare_both(code=4)
    text = flat(result.stdout)
    assert "after: 2 of 240 answers are no class" in text
    assert "'I cannot tell' (1), 'CAT' (1)" in text
    assert "--rename 'label: CAT=cat'" in result.stderr
    saved = load_audit(folder)
    assert saved.estimate("accuracy", "after").value == np.mean(answers == TRUTH)
    before, after = saved.document.runs
    assert before.no_class is None
    assert after.no_class is not None
    assert after.no_class.n == 2
    page = (folder / "out" / "report.html").read_text()
    assert "2 of 240 answers are no class" in page
    compare_both(f"{LABELS} --fail-if 'wga < 99'", code=5)
    classes = "--targets 'cat,dog,I cannot tell'"
    compare_both(f"{LABELS} {classes} --rename 'label: CAT=cat'")


def test_renames_of_labels_and_of_answers(folder: Path) -> None:
    """Each applies where its column and its value occur, also if columns have one name."""
    codes = np.where(TRUTH == "cat", "0", "1")
    write("labels.csv", "file,label,place", NAMES, codes, PLACE)
    write("after.csv", "image,label", NAMES, np.char.upper(AFTER))
    options = f"{LABELS} --target-column label"
    for rename in ("0=cat", "1=dog", "CAT=cat", "DOG=dog"):
        options += f" --rename 'label: {rename}'"
    compare_both(options)
    assert_expected(folder)
    error = compare_both(f"{options} --rename 'label: 2=cat'", code=3).stderr
    assert "['2']" in error
    error = compare_both(f"{options} --rename 'nothing: 2=cat'", code=3).stderr
    assert "'nothing'" in error


def test_two_columns_of_names_are_not_guessed(folder: Path) -> None:
    """Under unusual names; the first of them was taken."""
    columns = (NAMES[1:] + NAMES[:1], NAMES, TRUTH, PLACE)
    write("labels.csv", "before it,shown,class,place", *columns)
    options = f"{LABELS} --target-column class"
    error = compare_both(options, code=3).stderr
    message = "'before it', 'shown'; say which one names the rows with `--path-column`"
    assert message in error
    write("labels.csv", "before it,image,class,place", *columns)
    log = compare_both(options).stderr
    assert "The column 'image' of 'labels.csv' names the images." in log


def test_answers_that_are_the_same_numbers_as_labels(folder: Path) -> None:
    """Some of them: they were wrong answers, without a word."""
    numbers = {"cat": "0", "dog": "1"}
    truth = [numbers[label] for label in TRUTH]
    write("labels.csv", "file,class,place", NAMES, truth, PLACE)
    answers = [numbers[label] + ".0" * (i % 2) for i, label in enumerate(BEFORE)]
    write("before.csv", "image,label", NAMES, answers)
    command = "compare before.csv --sensitive-column place --labels labels.csv"
    error = call(*command.split(), code=4).stderr
    assert "Some answers of 'before.csv' read like labels: " in error
    assert "--rename 'label: 0.0=0'" in error
    assert "--rename 'label: 1.0=1'" in error
