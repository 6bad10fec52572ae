"""References on the command line: a folder, or a file; and what must not be shared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from checks import picture
from cli_fixtures import NAMES, audit_arguments, call, flat, load_audit, rows_of
from cli_fixtures import labelled as labelled
from cli_fixtures import tiny_model as tiny_model
from fits import fit_on
from internals import parse_adapter, parse_adapters, short_name

from fair_tta import FairTPTClassifier, LogitBalance, ZeroShot
from fair_tta.auditing import Examination
from fair_tta.methods import load_adapter

pytestmark = pytest.mark.filterwarnings("always::fair_tta.errors.SmallReferenceWarning")


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """Twelve pictures, one of which is broken."""
    folder = tmp_path / "reference pictures"
    (folder / "sub").mkdir(parents=True)
    for i in range(11):
        picture(100 + i).save(folder / ("sub" if i % 2 else "") / f"{i}.png")
    (folder / "broken.jpg").write_bytes(b"nonsense")
    return folder


def fit(reference: Path, model: str, *options: str, code: int = 4) -> Any:
    command = "fit --adapter logit-balance:strength=1".split()
    command += ["--images", str(reference), "--out", str(reference.parent / "b")]
    return call(*command, *NAMES, "--model", model, *options, code=code)


def classifier(model: str) -> FairTPTClassifier:
    return FairTPTClassifier(
        model,
        {"cat": "of a cat", "dog": "of a dog, black"},
        {"sensitive": {"water": "on water", "land": "on land"}},
        "a photo {target} {sensitive}.",
        adapter=ZeroShot(),
    )


def test_the_file_is_what_python_fits(reference: Path, tiny_model: str) -> None:
    out = fit(reference, tiny_model)
    text = flat(out.stderr)
    assert "Note: LogitBalance was fitted on 11 images; with fewer than 300" in text
    assert "broken.jpg': not one of JPEG, PNG" in text
    assert "fitted on 11 images of 'reference pictures'; " in text
    assert "1 could not be used." in text
    clf = classifier(tiny_model)
    pictures = sorted(reference.rglob("*.png"))
    with pytest.warns(match="fitted on 11 images"):
        expected = fit_on(LogitBalance(strength=1), clf, pictures)
    path = reference.parent / "b"
    fitted = load_adapter(path)
    assert isinstance(fitted, LogitBalance)
    assert fitted.strength == 1
    ours, theirs = (
        clf.with_adapter(m).predict(picture(0)).probabilities
        for m in (fitted, expected)
    )
    assert ours == pytest.approx(theirs, abs=1e-5)
    assert parse_adapter(f"logit-balance:reference={path}") == fitted
    assert parse_adapter("logit-balance:reference=b", path.parent) == fitted
    changed = parse_adapter(f"logit-balance:keep_prior=0.5,reference={path}")
    assert changed == LogitBalance(1.0, 0.5, fitted.reference)
    assert list(
        parse_adapters([f"zero-shot,logit-balance:reference={path},strength=2"])
    ) == [
        "zero-shot",
        "logit-balance:reference=b,strength=2",
    ]


def test_a_path_of_a_reference_may_have_plus_signs(
    reference: Path, tiny_model: str
) -> None:
    fit(reference, tiny_model)
    fitted = load_adapter(reference.parent / "b")
    for name in ("a+b", "c++", "a+tpt", "x +y+ z"):
        path = reference.parent / name / "b"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((reference.parent / "b").read_bytes())
        text = f"logit-balance:reference={path}"
        assert parse_adapter(text) == fitted
        assert short_name(text) == "logit-balance:reference=b"


def predict(pictures: Path, model: str, *options: str, code: int = 0) -> Any:
    arguments = ["predict", str(pictures), "--model", model, *NAMES, "--json", *options]
    return call(*arguments, code=code)


def answers(out: Any) -> list[Any]:
    return [json.loads(line)["probabilities"] for line in out.stdout.splitlines()]


def test_file_and_folder_give_the_same_answers(
    labelled: Path, reference: Path, tiny_model: str
) -> None:
    fit(reference, tiny_model)
    pics = labelled / "pics"
    file = reference.parent / "b"
    by_file = predict(pics, tiny_model, "--adapter", f"logit-balance:reference={file}")
    folder = ["--adapter", "logit-balance:strength=1", "--reference", str(reference)]
    by_folder = predict(pics, tiny_model, *folder)
    assert answers(by_file) == answers(by_folder)
    assert "none of the images classified here are among them" in flat(by_folder.stderr)
    plain = predict(pics, tiny_model, "--adapter", "zero-shot")
    assert answers(by_file) != answers(plain)


def test_different_references_never_share_answers(
    labelled: Path, reference: Path, tiny_model: str
) -> None:
    out = labelled / "out"
    options = [*"--adapter logit-balance --limit 4 --out".split(), str(out)]
    options += ["--reference", str(reference)]
    first = predict(labelled / "pics", tiny_model, *options)
    repeated = predict(labelled / "pics", tiny_model, *options)
    assert answers(first) == answers(repeated)
    assert len(rows_of(out)) == 4
    picture(999).save(reference / "more.png")
    changed = predict(labelled / "pics", tiny_model, *options)
    assert len(rows_of(out)) == 8
    assert len({row.key.method for row in rows_of(out)}) == 2
    assert answers(changed) != answers(first)


def test_images_that_are_classified_are_refused(
    labelled: Path, reference: Path, tiny_model: str
) -> None:
    pics = labelled / "pics"
    shutil.copy(pics / "3.png", reference / "copy under another name.png")
    shutil.copy(pics / "4.png", reference / "sub" / "4.png")
    options = ["--adapter", "logit-balance", "--reference", str(reference)]
    error = flat(predict(pics, tiny_model, *options, code=3).stderr)
    message = "`--reference` 'reference pictures' has 2 of the images to be classified"
    assert message in error
    assert "allow it with `--reference-is-data`" in error
    paths = f"{pics / '3.png'}\n{pics / '5.png'}\n".encode()
    command = ["predict", "-", "--model", tiny_model, *NAMES, *options]
    error = call(*command, stdin=paths, code=3).stderr
    assert "has 1 of the images" in flat(error)
    out = call(*command, "--reference-is-data", "--json", stdin=paths)
    assert len(out.stdout.splitlines()) == 2
    assert "; 1 of the images classified here are among them" in flat(out.stderr)
    first = predict(pics, tiny_model, *options, "--limit", "1")
    assert len(answers(first)) == 1


def test_an_audit_names_the_reference(
    labelled: Path, reference: Path, tiny_model: str
) -> None:
    arguments = audit_arguments(
        labelled, tiny_model, adapters="zero-shot,logit-balance"
    )
    arguments += ["--reference", str(reference)]
    call(*arguments)
    audit = load_audit(labelled).document
    recorded = dict(audit.provenance["reference"])
    digest = recorded.pop("sha256")
    assert (
        recorded.items()
        >= {
            "folder": "reference pictures",
            "images": 11,
            "left_out": 1,
            "shared": 0,
        }.items()
    )
    assert recorded["methods"] == ["logit-balance"]
    note = "logit-balance: fitted on 11 images of 'reference pictures'; none of the images "
    assert any(text.startswith(note) for text in audit.warnings)
    page = (labelled / "out" / "report.html").read_text()
    assert "fitted on 11 images of" in page
    assert digest in page
    shutil.copy(labelled / "pics" / "7.png", reference)
    error = call(*arguments, code=3).stderr
    assert "has 1 of the images to be classified" in flat(error)
    call(*arguments, "--reference-is-data")
    audit = load_audit(labelled).document
    assert audit.provenance["reference"]["shared"] == 1
    note = "; 1 of the images classified here are among them"
    assert any(note in text for text in audit.warnings)


def test_whether_a_file_and_an_audit_share_images_is_not_known(
    labelled: Path, reference: Path, tiny_model: str
) -> None:
    """An audit calls the attribute by its column, and so must the file."""
    start = NAMES.index("--sensitive")
    names = [*NAMES]
    for i in (start + 1, start + 3):
        names[i] = f"place: {names[i]}"
    command = ["fit", "--adapter", "logit-balance", "--images", str(reference), *names]
    call(*command, "--model", tiny_model, "--out", str(labelled / "file"), code=4)
    method = f"zero-shot,logit-balance:reference={labelled / 'file'}"
    call(*audit_arguments(labelled, tiny_model, adapters=method))
    audit = load_audit(labelled).document
    runs = [run.name for run in audit.runs]
    assert runs == ["zero-shot", "logit-balance:reference=file"]
    note = "whether some of them are classified here is not known"
    assert any(note in text for text in audit.warnings)
    assert "reference" not in audit.provenance
    fit(reference, tiny_model)  # with another name of the attribute
    method = f"zero-shot,logit-balance:reference={reference.parent / 'b'}"
    error = call(*audit_arguments(labelled, tiny_model, adapters=method), code=3).stderr
    assert "Error: this LogitBalance was fitted with another `--sensitive`" in error


def test_examine_takes_a_reference(
    labelled: Path, reference: Path, tiny_model: str
) -> None:
    command = ["examine", str(labelled / "pics"), "--model", tiny_model, *NAMES]
    command += "--json --views 4 --adapters logit-balance --reference".split()
    document = Examination.from_json(call(*command, str(reference)).stdout).document
    assert document.provenance["reference"]["images"] == 11
    note = "logit-balance: fitted on 11 images"
    assert any(note in text for text in document.warnings)
