"""Examinations and audits of uploads: the same figures as without the app, and no more files.

`tests/messages/app_inputs.py` has what they refuse.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from internals import (
    Classifiers,
    FormFields,
    MiniatureTask,
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

pytestmark = [
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning"),
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning"),
]


@cache
def classifiers() -> Classifiers:
    """Return the classifiers of all tests; the model is loaded when the first begins."""
    return Classifiers(views=4)


def uploads_of(paths: list[str]) -> list[UploadedFile]:
    return [UploadedFile(path, Path(path).name) for path in paths]


class Visit:
    """A visitor who has uploaded drawn images and their labels."""

    def __init__(self, folder: Path, task: MiniatureTask, n_images: int) -> None:
        paths, labels = draw_folder(folder / "drawn", task, n_images)
        self.files = uploads_of(paths)
        self.labels = Path(labels)
        self.task = task
        self.out = folder / "out"

    @property
    def classifier(self) -> Any:
        return classifiers().get(form_fields_of(self.task))

    def examine(self, *names: str, **options: Any) -> list[Path]:
        files = options.pop("files", self.files)
        methods = chosen_methods(list(names))
        return examine_uploads(self.classifier, methods, files, self.out, **options)

    def audit(self, *names: str, **options: Any) -> list[Path]:
        labels = Labels(
            self.out / "images",
            options.pop("labels", self.labels),
            "class",
            tuple(self.task.sensitive),
        )
        methods = chosen_methods(list(names), has_labels=True)
        fields = options.pop("fields", form_fields_of(self.task))
        return audit_uploads(
            classifiers(), methods, self.files, labels, fields, self.out, **options
        )


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    return Visit(tmp_path, BIRDS, 12)


def test_an_examination_is_that_of_the_classifier(visit: Visit) -> None:
    counts: list[tuple[int, int]] = []
    page, document = visit.examine(
        "zero-shot",
        "orthcali",
        notes=["A note."],
        progress=lambda done, total: counts.append((done, total)),
    )
    uploaded = Examination.load(document).document
    direct = visit.classifier.examine(
        [file.path for file in visit.files], chosen_methods(["orthcali"])
    ).document
    assert uploaded.attributes == direct.attributes
    assert [adapter.changed for adapter in uploaded.adapters] == [
        adapter.changed for adapter in direct.adapters
    ]
    assert uploaded.warnings[0] == "A note."
    assert counts[-1] == (12, 12)
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_uploads_that_are_deleted_meanwhile_are_examined(visit: Visit) -> None:
    """Gradio deletes uploads after an hour, however long an examination takes."""

    def delete(done: int, total: int) -> None:
        for file in visit.files:
            Path(file.path).unlink(missing_ok=True)

    page, _ = visit.examine(files=visit.files * 2, progress=delete)
    assert "could not be used" not in page.read_text("utf-8")
    names = sorted(path.name for path in visit.out.iterdir())
    assert names == ["examine.html", "examine.json", "rows.sqlite"]


def test_methods_are_fitted_on_uploaded_images(visit: Visit, tmp_path: Path) -> None:
    files, reference = visit.files[:6], visit.files[6:]
    fitted = chosen_methods(["logit-balance"])
    unfitted = chosen_methods(["zero-shot"])
    assert staged_reference(fitted, [], tmp_path / "none") is None
    assert staged_reference(unfitted, reference, tmp_path / "none") is None
    folder = staged_reference(fitted, reference, tmp_path)
    assert folder is not None
    assert len(list(folder.iterdir())) == 6
    page, _ = visit.examine("logit-balance", files=files, reference=reference)
    assert "fitted on 6 images" in page.read_text("utf-8")
    visit.out = tmp_path / "same"
    with pytest.raises(FairTTAError, match="has 6 of the images to be classified"):
        visit.examine("logit-balance", files=files, reference=files)


def test_broken_images_are_reported_by_their_names(
    visit: Visit, tmp_path: Path
) -> None:
    # A path as every one on Windows
    broken = tmp_path / (r"12\ab" if os.sep == "/" else "12ab")
    broken.write_bytes(b"nonsense")
    files = [UploadedFile(str(broken), f"<b>{i}</b>.png") for i in range(7)]
    page, _, problems = visit.examine(files=visit.files + files)
    text = page.read_text("utf-8")
    assert "7 of 19 images could not be used." in text
    assert "&lt;b&gt;0" not in text
    reasons = problems.read_text("utf-8")
    assert reasons.count("b_.png': not one of JPEG, PNG") == 7
    assert str(tmp_path) not in reasons + text
    visit.out = tmp_path / "shown"
    page, *_ = visit.examine(files=visit.files + files, embed_images=True)
    assert "and 2 more." in page.read_text("utf-8")
    assert "<b>0" not in page.read_text("utf-8")


def test_an_audit_has_the_figures_of_an_audit(visit: Visit) -> None:
    files = visit.audit("zero-shot", "orthcali", notes=["A note."])
    names = ["report.html", "audit.json", "card.md", "predictions.csv"]
    assert [file.name for file in files] == names
    page = files[0].read_text("utf-8")
    assert "<img" not in page
    assert "A note." in page
    drawn = BIRDS.draw(12)
    direct = visit.classifier.audit(
        [file.path for file in visit.files],
        [image.target for image in drawn],
        {"background": [image.sensitive["background"] for image in drawn]},
    )
    uploaded = Audit.load(files[1])
    assert uploaded.estimate("accuracy").value == direct.estimate("accuracy").value
    assert len(files[3].read_text("utf-8").splitlines()) == 13
    assert not (visit.out / "images").exists()


def test_drawn_images_are_enough_for_a_verdict(tmp_path: Path) -> None:
    page, document, *_ = Visit(tmp_path, BADGES, 360).audit(
        "zero-shot", "association-correction"
    )
    (comparison,) = Audit.load(document).document.comparisons
    gap = comparison.differences.typical_gap
    assert gap.high is not None
    assert gap.high < 0
    assert "narrows the gap" in page.read_text("utf-8")


def test_labels_are_used_by_methods_that_need_them_and_images_embedded(
    tmp_path: Path,
) -> None:
    page, document, *_ = Visit(tmp_path, BADGES, 120).audit(
        "zero-shot", "balanced-head", embed_images=True
    )
    runs = Audit.load(document).document.runs
    assert [run.name for run in runs] == ["zero-shot", "balanced-head"]
    assert "<img" in page.read_text("utf-8")


class Cancelled(Exception):
    """Raised by the progress of a run that a visitor cancels."""


def test_a_cancelled_run_leaves_no_staged_images(visit: Visit) -> None:
    def stop(done: int, total: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        visit.examine(progress=stop)
    assert not (visit.out / "images").exists()
    with pytest.raises(Cancelled):
        visit.audit("zero-shot", progress=stop)
    assert not (visit.out / "images").exists()


def test_names_come_from_the_columns_if_none_are_written(visit: Visit) -> None:
    _, document, *_ = visit.audit("zero-shot", fields=FormFields(""))
    prompts = Audit.load(document).to_dict()["provenance"]["prompts"]
    assert prompts["targets"] == {"land bird": "land bird", "water bird": "water bird"}
    assert prompts["sensitive"] == {"background": {"land": "land", "water": "water"}}


def test_labels_that_lead_elsewhere_lead_nowhere(visit: Visit, tmp_path: Path) -> None:
    """A label file may name an image on the server's disk."""
    hidden = tmp_path / "hidden.png"
    hidden.write_bytes(Path(visit.files[0].path).read_bytes())
    rows = f"{hidden},water bird,land\n../hidden.png,land bird,water\n"
    labels = tmp_path / "evil.csv"
    labels.write_text(visit.labels.read_text() + rows)
    files = visit.audit("zero-shot", labels=labels)
    texts = [file.read_text("utf-8") for file in files]
    assert len(texts[3].splitlines()) == 13
    assert texts[-1].count("not uploaded: hidden.png") == 2
    assert not any(str(tmp_path) in text for text in texts)
