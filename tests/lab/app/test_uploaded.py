"""Examinations and audits of uploads: the same figures as without the app, and no more files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from internals import (
    Classifiers,
    FormFields,
    UploadedFile,
    audit_uploads,
    chosen_methods,
    draw_folder,
    examine_uploads,
    form_fields_of,
    staged_reference,
)

from fair_tta import FairTTAError
from fair_tta.auditing import Audit, Examination
from fair_tta.datasets import Labels
from fair_tta.miniature import BADGES, BIRDS


def labels(
    out: Path,
    file: str,
    target: str = "class",
    sensitive: tuple[str, ...] = ("background",),
) -> Labels:
    return Labels(out / "images", Path(file), target, sensitive)


def rows(predictions: Path) -> int:
    return len(predictions.read_text("utf-8").splitlines()) - 1


@pytest.fixture(scope="module")
def classifiers() -> Classifiers:
    return Classifiers(views=4)


@pytest.fixture
def drawn(tmp_path: Path) -> tuple[list[UploadedFile], str]:
    paths, labels = draw_folder(tmp_path / "drawn", BIRDS, 12)
    return [UploadedFile(path, Path(path).name) for path in paths], labels


def test_an_examination_is_that_of_the_classifier(
    classifiers: Classifiers, drawn: tuple[list[UploadedFile], str], tmp_path: Path
) -> None:
    classifier = classifiers.get(form_fields_of(BIRDS))
    methods = chosen_methods(["zero-shot", "orthcali"])
    told: list[tuple[int, int]] = []
    page, document = examine_uploads(
        classifier,
        methods,
        drawn[0],
        tmp_path / "out",
        notes=["A note."],
        progress=lambda done, total: told.append((done, total)),
    )
    found = Examination.load(document).document
    other = classifier.examine(
        [f.path for f in drawn[0]], {"orthcali": methods["orthcali"]}
    )
    assert found.attributes == other.document.attributes
    assert [a.changed for a in found.adapters] == [
        a.changed for a in other.document.adapters
    ]
    assert found.warnings[0] == "A note."
    assert told[-1] == (12, 12)
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_uploads_that_are_deleted_meanwhile_are_examined(
    classifiers: Classifiers, drawn: tuple[list[UploadedFile], str], tmp_path: Path
) -> None:
    """Gradio deletes uploads after an hour, however long an examination takes."""
    files = drawn[0] * 2

    def delete(done: int, total: int) -> None:
        for file in files:
            Path(file.path).unlink(missing_ok=True)

    page, _ = examine_uploads(
        classifiers.get(form_fields_of(BIRDS)),
        {},
        files,
        tmp_path / "out",
        progress=delete,
    )
    assert "could not be used" not in page.read_text("utf-8")
    left = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert left == ["examine.html", "examine.json", "rows.sqlite"]


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_methods_are_fitted_on_uploaded_images(
    classifiers: Classifiers, drawn: tuple[list[UploadedFile], str], tmp_path: Path
) -> None:
    classifier, methods = (
        classifiers.get(form_fields_of(BIRDS)),
        chosen_methods(["logit-balance"]),
    )
    files, reference = drawn[0][:6], drawn[0][6:]
    assert staged_reference(methods, [], tmp_path / "none") is None
    assert (
        staged_reference(chosen_methods(["zero-shot"]), reference, tmp_path / "none")
        is None
    )
    folder = staged_reference(methods, reference, tmp_path)
    assert folder is not None
    assert len(list(folder.iterdir())) == 6
    page, _ = examine_uploads(
        classifier, methods, files, tmp_path / "out", reference=reference
    )
    assert "fitted on 6 images" in page.read_text("utf-8")
    with pytest.raises(FairTTAError, match="has 6 of the images to be classified"):
        examine_uploads(classifier, methods, files, tmp_path / "same", reference=files)


def test_broken_pictures_are_told_on_the_page_by_their_names(
    classifiers: Classifiers, drawn: tuple[list[UploadedFile], str], tmp_path: Path
) -> None:
    bad = tmp_path / (r"12\ab" if os.sep == "/" else "12ab")  # as every path on Windows
    bad.write_bytes(b"nonsense")
    files = [*drawn[0], *[UploadedFile(str(bad), f"<b>{i}</b>.png") for i in range(7)]]
    classifier = classifiers.get(form_fields_of(BIRDS))
    page, _, problems = examine_uploads(classifier, {}, files, tmp_path / "out")
    text = page.read_text("utf-8")
    assert "7 of 19 images could not be used." in text
    assert "&lt;b&gt;0" not in text
    listed = problems.read_text("utf-8")
    assert listed.count("b_.png': not one of JPEG, PNG") == 7
    assert str(tmp_path) not in listed + text
    page, *_ = examine_uploads(
        classifier, {}, files, tmp_path / "shown", embed_images=True
    )
    assert "and 2 more." in page.read_text("utf-8")
    assert "<b>0" not in page.read_text("utf-8")
    with pytest.raises(FairTTAError, match="no image could be used: cannot read"):
        examine_uploads(
            classifiers.get(form_fields_of(BIRDS)), {}, files[-1:], tmp_path / "none"
        )


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_an_audit_has_the_figures_of_an_audit(
    classifiers: Classifiers, drawn: tuple[list[UploadedFile], str], tmp_path: Path
) -> None:
    files = audit_uploads(
        classifiers,
        chosen_methods(["zero-shot", "orthcali"]),
        drawn[0],
        labels(tmp_path / "out", drawn[1]),
        form_fields_of(BIRDS),
        tmp_path / "out",
        notes=["A note."],
    )
    names = [
        "report.html",
        "audit.json",
        "card.md",
        "predictions.csv",
    ]  # no problems, no file
    assert [file.name for file in files] == names
    assert "<img" not in files[0].read_text("utf-8")
    audit = Audit.load(files[1])
    pictures = BIRDS.draw(12)
    direct = classifiers.get(form_fields_of(BIRDS)).audit(
        [f.path for f in drawn[0]],
        [p.target for p in pictures],
        {"background": [p.sensitive["background"] for p in pictures]},
    )
    mine, theirs = audit.document.runs[0], direct.document.runs[0]
    assert mine.metrics.accuracy.value == theirs.metrics.accuracy.value
    assert rows(files[3]) == 12
    assert not (tmp_path / "out" / "images").exists()
    assert "A note." in files[0].read_text("utf-8")


def test_drawn_images_are_enough_for_a_verdict(
    classifiers: Classifiers, tmp_path: Path
) -> None:
    paths, file = draw_folder(tmp_path / "drawn")
    files = audit_uploads(
        classifiers,
        chosen_methods(["zero-shot", "association-correction"]),
        [UploadedFile(path, Path(path).name) for path in paths],
        labels(tmp_path / "out", file, sensitive=("colour",)),
        form_fields_of(BADGES),
        tmp_path / "out",
    )
    (comparison,) = Audit.load(files[1]).document.comparisons
    assert comparison.differences.typical_gap.high is not None
    assert comparison.differences.typical_gap.high < 0
    assert "narrows the gap" in files[0].read_text("utf-8")


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_labels_are_used_by_methods_that_need_them_and_images_shown_if_asked(
    classifiers: Classifiers, tmp_path: Path
) -> None:
    paths, file = draw_folder(tmp_path / "drawn", BADGES, 120)
    files = audit_uploads(
        classifiers,
        chosen_methods(["zero-shot", "balanced-head"], has_labels=True),
        [UploadedFile(path, Path(path).name) for path in paths],
        labels(tmp_path / "out", file, sensitive=("colour",)),
        form_fields_of(BADGES),
        tmp_path / "out",
        embed_images=True,
    )
    assert [run.name for run in Audit.load(files[1]).document.runs][
        1
    ] == "balanced-head"
    assert "<img" in files[0].read_text("utf-8")


class Cancelled(Exception):
    pass


def test_a_run_ends_where_its_progress_is_told_to_stop(
    classifiers: Classifiers, drawn: tuple[list[UploadedFile], str], tmp_path: Path
) -> None:
    """What cancelling does: the callback raises, and the staged images are gone."""

    def stop(done: int, total: int) -> None:
        raise Cancelled

    methods = chosen_methods(["zero-shot"])
    with pytest.raises(Cancelled):
        examine_uploads(
            classifiers.get(form_fields_of(BIRDS)),
            {},
            drawn[0],
            tmp_path / "a",
            progress=stop,
        )
    found = labels(tmp_path / "b", drawn[1])
    with pytest.raises(Cancelled):
        audit_uploads(
            classifiers,
            methods,
            drawn[0],
            found,
            FormFields(""),
            tmp_path / "b",
            progress=stop,
        )
    assert not (tmp_path / "a" / "images").exists()
    assert not (tmp_path / "b" / "images").exists()


def test_names_come_from_the_columns_if_none_are_written(
    classifiers: Classifiers, drawn: tuple[list[UploadedFile], str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    methods, found = chosen_methods(["zero-shot"]), labels(out, drawn[1])
    files = audit_uploads(classifiers, methods, drawn[0], found, FormFields(""), out)
    origin = Audit.load(files[1]).to_dict()["provenance"]["prompts"]
    assert origin["targets"] == {"land bird": "land bird", "water bird": "water bird"}
    assert origin["sensitive"] == {"background": {"land": "land", "water": "water"}}


def test_labels_that_lead_elsewhere_lead_nowhere(
    classifiers: Classifiers, drawn: tuple[list[UploadedFile], str], tmp_path: Path
) -> None:
    """A path of a picture on the server's disk, in a visitor's CSV file."""
    hidden = tmp_path / "hidden.png"
    hidden.write_bytes(Path(drawn[0][0].path).read_bytes())
    evil = tmp_path / "evil.csv"
    text = Path(drawn[1]).read_text()
    evil.write_text(f"{text}{hidden},water bird,land\n../hidden.png,land bird,water\n")
    files = audit_uploads(
        classifiers,
        chosen_methods(["zero-shot"]),
        drawn[0],
        labels(tmp_path / "out", str(evil)),
        form_fields_of(BIRDS),
        tmp_path / "out",
    )
    assert rows(files[3]) == 12
    problems = files[-1].read_text("utf-8")
    assert problems.count("not uploaded: hidden.png") == 2
    assert all(str(tmp_path) not in file.read_text("utf-8") for file in files)
