"""What a visitor of the app may do wrong, and what the page then says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from internals import (
    Classifiers,
    FormFields,
    UploadedFile,
    UploadLimits,
    alert_html,
    answers_html,
    audit_uploads,
    chosen_methods,
    draw_folder,
    examine_uploads,
    guarded,
    read_header,
    read_limits,
)

from fair_tta import FairTTAError
from fair_tta.datasets import Labels
from fair_tta.miniature import BIRDS

Case = Callable[[Path], object]

LABELS = "file,class,background\nbirds-000.png,water bird,water\n"


def classifiers() -> Classifiers:
    return Classifiers(views=2, limits=UploadLimits(names=6))


def question(*fields: str) -> Case:
    return lambda folder: classifiers().get(FormFields(*fields))


def failure(error: Exception) -> Case:
    """Return the case of an error inside a run of the app."""

    def act() -> str:
        raise error

    return lambda folder: guarded(act, str, "/srv/secret")


def label_file(data: bytes) -> Case:
    def case(folder: Path) -> object:
        (folder / "labels.csv").write_bytes(data)
        return read_header(folder / "labels.csv", UploadLimits(rows=3, columns=3))

    return case


def audit_of(
    fields: FormFields,
    target: str = "class",
    sensitive: tuple[str, ...] = ("background",),
    labels: str | None = None,
) -> Case:
    """Return the case of an audit of drawn birds with these columns and fields."""

    def case(folder: Path) -> object:
        paths, drawn_labels = draw_folder(folder / "drawn", BIRDS, 12)
        file = Path(drawn_labels)
        if labels is not None:
            file = folder / "labels.csv"
            file.write_text(labels)
        files = [UploadedFile(path, Path(path).name) for path in paths]
        out = folder / "out"
        columns = Labels(out / "images", file, target, sensitive)
        return audit_uploads(classifiers(), {}, files, columns, fields, out)

    return case


def unreadable_images(folder: Path) -> object:
    (folder / "broken.png").write_bytes(b"nonsense")
    files = [UploadedFile(str(folder / "broken.png"), "broken.png")]
    classifier = classifiers().get(FormFields("a, b", "c, d"))
    return examine_uploads(classifier, {}, files, folder / "out")


CASES = {
    "too many files": lambda _: UploadLimits().check("Images", files=10_000),
    "too many characters": question("x" * 20_000),
    "too many classes": question("a,b,c,d,e,f,g"),
    "too many values": question("a, b", "c,d,e,f,g,h,i"),
    "a long sentence": question("a, b", "", "x" * 20_000),
    "a limit of 0": lambda _: UploadLimits(files=0),
    "a limit that there is not": lambda _: read_limits({"size": 1}),
    "a table with too many rows": label_file(b"file,class\n" + b"a.png,x\n" * 4),
    "a table with too many columns": label_file(b"file,class,place,time\n"),
    "a spreadsheet": label_file(b"PK\3\4 a spreadsheet"),
    "no classes": question(""),
    "one class": question("cat"),
    "one value": question("cat, dog", "day"),
    "a sentence without a slot": question("cat, dog", "", "no slots"),
    "no method": lambda _: answers_html(
        classifiers().get(FormFields("a, b")), {}, "a.png"
    ),
    "a method with settings": lambda _: chosen_methods(["fair-tpt:lam=10"]),
    "a file of methods": lambda _: chosen_methods(["tpt", "my_file.py:Method"]),
    "a method that needs attribute values": lambda _: chosen_methods(["bend-vlm"]),
    "a method that needs a setting": lambda _: chosen_methods(["ttr"]),
    "a method that needs labels": lambda _: chosen_methods(["balanced-head"]),
    "an examination without an attribute": lambda folder: examine_uploads(
        classifiers().get(FormFields("cat, dog")), {}, [], folder / "out"
    ),
    "an examination of a broken image": unreadable_images,
    "an audit without a column of classes": audit_of(FormFields(""), target=""),
    "an audit without attributes": audit_of(FormFields(""), sensitive=()),
    "an audit of a column that there is not": audit_of(FormFields(""), "klass"),
    "an audit of a column twice": audit_of(FormFields(""), sensitive=("class",)),
    "an audit of another attribute": audit_of(FormFields("", "time: day, night")),
    "an audit of one class": audit_of(FormFields("cat")),
    "an audit of a column with one value": audit_of(FormFields(""), labels=LABELS),
    "an error of a field": failure(
        FairTTAError("`targets` should name at least two values (got ['<b>']).")
    ),
    "an error with a folder of the server": failure(
        FairTTAError("cannot read '/srv/secret/uploads/12ab/my cat.png': damaged")
    ),
    "an error of the disk": failure(
        PermissionError(13, "Permission denied", "/srv/elsewhere/a.png")
    ),
    "an error of fair-tta": failure(ZeroDivisionError("division by zero")),
    "a message with markup": lambda _: alert_html("<b>bold</b>"),
}
