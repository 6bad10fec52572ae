"""Inputs of audits, comparisons, examinations and mitigations, and damaged documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from checks import picture
from internals import read_thresholds

from fair_tta import FairTPTClassifier, OrthCali, ZeroShot, audit, compare
from fair_tta.auditing import Audit, Examination, Scores
from fair_tta.metrics import Bootstrap

TRUTH = ["cat", "dog"] * 60
PLACES = ["in"] * 60 + ["out"] * 60
BEFORE = ["cat"] * 120
QUICK = Bootstrap(100)
IMAGES = [picture(i) for i in range(4)]
DIGESTS = [f"image {i}" for i in range(120)]


def built(answers: Any = BEFORE, name: str = "before", **options: Any) -> Audit:
    return audit(TRUTH, answers, PLACES, name=name, **{"interval": QUICK, **options})


def pair(**options: Any) -> Audit:
    return compare([built(), built(TRUTH, "after", **options)])


def scored(**scores: Any) -> Audit:
    return built(scores=Scores(**scores))


def classifier(**options: Any) -> FairTPTClassifier:
    options = {"sensitive": ["in", "out"], **options}
    return FairTPTClassifier("miniature", ["cat", "dog"], **options)


@cache
def examination() -> Examination:
    return classifier().examine(IMAGES)


def edited(document: dict[str, Any], index: Iterable[Any], value: Any = None) -> Any:
    """Return a document with another value in a place; without one it is deleted."""
    *keys, last = index
    part: Any = document
    for key in keys:
        part = part[key]
    if value is None:
        del part[last]
    else:
        part[last] = value
    return document


def read_audit(*index: Any, value: Any = None) -> Callable[[Path], Audit]:
    return lambda _: Audit.from_dict(edited(pair().to_dict(), index, value))


def read_examination(*index: Any, value: Any = None) -> Callable[[Path], Examination]:
    return lambda _: Examination.from_dict(
        edited(examination().to_dict(), index, value)
    )


def too_large(folder: Path) -> Audit:
    with (folder / "large.json").open("wb") as file:
        file.truncate(2**28 + 1)
    return Audit.load(folder / "large.json")


def thresholds(text: str, run: str = "tpt") -> Callable[[Path], object]:
    return lambda _: read_thresholds([text], run, ["tpt"])


CASES: dict[str, Callable[[Path], object]] = {
    # audits
    "no sensitive values": lambda _: audit(TRUTH, BEFORE, None),
    "labels in other words": lambda _: built(["a " + name for name in TRUTH]),
    "answers that are numbers": lambda _: built([1, 0] * 60),
    "some answers that are no class": lambda _: built(["?"] * 30 + TRUTH[30:]),
    "few images of a class in a group": lambda _: audit(
        TRUTH[:50], TRUTH[:50], PLACES[40:90], interval=QUICK
    ),
    "images of one group only": lambda _: audit(TRUTH, BEFORE, ["in"] * 120),
    "too few clusters": lambda _: built(clusters=["anna"] * 3),
    "no interval": lambda _: built(interval=None),
    "a set of harmful classes that is a number": lambda _: built(harmful=5),
    "a set of harmful classes that is a word": lambda _: built(harmful="cat"),
    "a set of harmful classes that is empty": lambda _: built(harmful={"crime": []}),
    "a harmful class that is none": lambda _: built(harmful=["thug"]),
    "scores of other images": lambda _: scored(entropy=[0.5]),
    "steps of other images": lambda _: scored(relative_step=[0.5]),
    "a step instead of steps": lambda _: scored(relative_step=0.1),
    "steps that are words": lambda _: scored(relative_step=["x"] * 120),
    "a warning instead of lists": lambda _: scored(warnings=["bad"] * 120),
    "warnings of other images": lambda _: scored(warnings=[["bad"]] * 7),
    "beliefs of other images": lambda _: scored(zero_shot={"cat": [0.5]}),
    "beliefs that are words": lambda _: scored(zero_shot={"cat": ["x"] * 120}),
    "beliefs above 1": lambda _: scored(zero_shot={"cat": [2.0] * 120}),
    "beliefs that do not sum to 1": lambda _: scored(
        zero_shot={"cat": [0.5] * 120, "dog": [0.4] * 120}
    ),
    "beliefs in values without names": lambda _: scored(sensitive_zero_shot=[0.5]),
    "beliefs in values of other images": lambda _: scored(
        sensitive_zero_shot={"place": [[0.5, 0.5]]}
    ),
    # figures of an audit
    "an unknown metric": lambda _: built().estimate("fairness"),
    "an unknown run": lambda _: built().estimate("bias", "TPT"),
    "the difference of the first run": lambda _: pair().difference("bias", "before"),
    "the difference of an unknown metric": lambda _: pair().difference("luck", "after"),
    "an unknown group": lambda _: pair().compared_group("after", {"place": "x"}),
    "data frames of a saved audit": lambda _: Audit.from_json(
        built().to_json()
    ).to_dataframe(),
    # comparisons
    "nothing to compare": lambda _: compare([]),
    "runs of one name": lambda _: compare([built(), built()]),
    "other rows": lambda _: compare(
        [built(), audit(TRUTH, TRUTH, PLACES[::-1], name="after", interval=QUICK)]
    ),
    "clusters of one run only": lambda _: pair(clusters=[i // 2 for i in range(120)]),
    "other settings": lambda _: pair(interval=Bootstrap(200)),
    "other sets of classes": lambda _: pair(harmful=["cat"]),
    "a saved audit": lambda _: compare([Audit.from_json(built().to_json())]),
    "images in another order": lambda _: compare(
        [built(digests=DIGESTS), built(TRUTH, "after", digests=DIGESTS[::-1])]
    ),
    # thresholds
    "a threshold without a sign": thresholds("wga"),
    "a threshold above 100 points": thresholds("wga < 101"),
    "a threshold of an unknown metric": thresholds("luck > 1"),
    "a threshold that looks like a share": thresholds("accuracy<0.9"),
    "a threshold for an unknown run": thresholds("wga < 60", "zero"),
    # documents
    "no JSON": lambda _: Audit.from_json("{"),
    "a list": lambda _: Audit.from_json("[]"),
    "an audit of a later version": lambda _: Audit.from_json(
        '{"schema": "fair-tta/audit/9"}'
    ),
    "a file that is too large": too_large,
    "an audit with a number as text": read_audit("data", "n", value="600"),
    "an audit with a field that is missing": read_audit("runs", 1, "name"),
    "an audit with a rate above 1": read_audit(
        "runs", 0, "metrics", "bias", "value", value=7.5
    ),
    "an audit without the time": read_audit("provenance", "time"),
    "an audit without a group": read_audit("runs", 1, "groups", 1),
    "an audit without a class": read_audit("data", "targets", 1),
    "an audit with too many right answers": read_audit(
        "runs", 0, "groups", 0, "classes", 0, "correct", value=4000
    ),
    "an examination of another kind": read_examination("schema", value="x"),
    "an examination without images": read_examination("n", value=0),
    "an examination with another ranking": read_examination(
        "ranking", "sensitive", value=["zero"]
    ),
    "an examination without a class": read_examination("targets", 1),
    "an examination without an attribute": read_examination(
        "adapters", 0, "pseudo_eod", "sensitive"
    ),
    # classifiers
    "an audit of one image": lambda _: classifier().audit(IMAGES[0], ["cat"], ["in"]),
    "an audit with unknown labels": lambda _: classifier().audit(
        IMAGES, ["Cat", 3] * 2, ["in"] * 4
    ),
    "an audit with too many labels": lambda _: classifier().audit(
        IMAGES[:3], TRUTH[:4], PLACES[:4]
    ),
    "an audit with a label that is missing": lambda _: classifier().audit(
        IMAGES, TRUTH[:3], PLACES[:4]
    ),
    "an audit of predictions with labels in other words": lambda _: audit(
        [0, 1] * 2, classifier().predict(IMAGES), PLACES[:4]
    ),
    "an audit with too few labels for an iterator": lambda _: classifier().audit(
        iter(IMAGES), TRUTH[:3], PLACES[:3]
    ),
    "an examination of one image": lambda _: classifier().examine(IMAGES[0]),
    "an examination of no image": lambda _: classifier().examine([]),
    "an examination of a number": lambda _: classifier().examine(7),
    "an examination without attributes": lambda _: classifier(sensitive=None).examine(
        IMAGES, None
    ),
    "an examination of a missing file": lambda folder: classifier().examine(
        [IMAGES[0], folder / "gone.png"]
    ),
    "an examination of one class of methods": lambda _: classifier().examine(
        IMAGES, [OrthCali(), ZeroShot(), OrthCali(lam=0)]
    ),
    "a mitigation without labels": lambda _: classifier().mitigate(IMAGES),
    "a mitigation without attribute values": lambda _: classifier().mitigate(
        IMAGES, TRUTH[:4]
    ),
    "a mitigation with too few labels": lambda _: classifier().mitigate(
        IMAGES, TRUTH[:3], PLACES[:3]
    ),
}
