"""`FairTPTClassifier.audit`, and the origin that it writes down."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import families
import pytest
import torch
from checks import SENSITIVE, TARGETS, TEMPLATE, picture
from fits import fit_on
from internals import FOLDER, AugMix, FixedRate, model_identity, weights_hash
from torch import nn

from fair_tta import TPT, FairTPTClassifier, FairTTAError, ZeroShot, miniature
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.errors import SmallGroupWarning
from fair_tta.methods import TIE, TIEStar
from fair_tta.metrics import Bootstrap
from fair_tta.models import TransformersBackend

IMAGES = [picture(i) for i in range(8)]
LABELS = ["cat", "dog", "bird", "cat"] * 2
PLACES = ["water"] * 4 + ["land"] * 4


@pytest.fixture(autouse=True)
def _small_groups_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        yield


@pytest.fixture(scope="module")
def clf() -> FairTPTClassifier:
    backend = TransformersBackend(*families.seeded(families.clip))
    return FairTPTClassifier(
        backend, TARGETS, SENSITIVE, TEMPLATE, adapter=ZeroShot(), views=AugMix(1)
    )


def test_clf_audit_measures_its_predictions(clf: FairTPTClassifier) -> None:
    measured = clf.audit(IMAGES, LABELS, PLACES)
    predictions = clf.predict(IMAGES)
    correct = 0
    for prediction, label in zip(predictions, LABELS, strict=True):
        correct += prediction.label == label
    assert measured.runs == ("ZeroShot",)
    assert measured.estimate("accuracy").value == correct / 8
    document = measured.to_dict()
    assert document["data"]["sensitive"] == {"place": ["water", "land"]}
    assert document["data"]["targets"] == ["cat", "dog", "bird"]
    [run] = document["runs"]
    assert run["cost"]["seconds"] > 0
    mean = sum(p.sensitive_entropy["place"] for p in predictions) / 8
    assert run["sensitive_indifference"]["place"]["value"] == pytest.approx(mean)
    provenance = document["provenance"]
    assert provenance["model"]["name"] == clf._backend.name
    assert len(provenance["model"]["weights_sha256"]) == 64
    assert provenance["prompts"]["targets"] == TARGETS
    assert provenance["prompts"]["sensitive"] == SENSITIVE
    assert provenance["prompts"]["template"] == {
        "target": "a photo of a {target}.",
        "sensitive": "a photo of a {sensitive}.",
        "joint": "a photo of a {target} {sensitive}.",
    }
    assert provenance["views"] == {"repr": repr(AugMix(1)), "n": 1}
    assert provenance["seed"] == 0
    assert provenance["packages"]["torch"]
    assert provenance["machine"]["cpus"] >= 1


def test_two_audits_of_the_same_run_are_equal_except_for_time(
    clf: FairTPTClassifier,
) -> None:
    first = clf.audit(IMAGES, LABELS, PLACES)
    second = clf.audit(IMAGES, LABELS, PLACES)
    assert first == second
    assert first.document.runs[0].cost != second.document.runs[0].cost


def test_adapters_side_by_side(clf: FairTPTClassifier) -> None:
    fixed = clf.with_adapter(TPT(rate=FixedRate(0.5)))
    together = compare(
        [clf.audit(IMAGES, LABELS, PLACES), fixed.audit(IMAGES, LABELS, PLACES)]
    )
    assert together.runs == ("ZeroShot", "TPT")
    settings = together.to_dict()["runs"][1]["adapter"]["settings"]
    assert settings["rate"]["name"] == "FixedRate"
    assert settings["rate"]["settings"] == {
        "lr": 0.5,
        "optimizer": "torch.optim.adamw.AdamW",
    }
    assert together.to_dict()["runs"][1]["relative_steps"]["n"] == 8
    assert Audit.from_json(together.to_json()) == together


def test_labels_and_attributes_of_users(clf: FairTPTClassifier) -> None:
    numbers = {"cat": 0, "dog": 1, "bird": 2}
    renamed = clf.audit(
        iter(IMAGES),
        [numbers[label] for label in LABELS],
        {"place": ["sea"] * 8, "light": ["day", "night"] * 4},
        rename={0: "cat", 1: "dog", 2: "bird"},
        name="mine",
        interval=Bootstrap(100),
    )
    assert renamed.runs == ("mine",)
    assert renamed.to_dict()["data"]["sensitive"] == {
        "place": ["sea"],
        "light": ["day", "night"],
    }
    accuracy = clf.audit(IMAGES, LABELS, PLACES).estimate("accuracy").value
    assert renamed.estimate("accuracy").value == accuracy


def test_sensitive_values_that_do_not_occur_are_reported(
    clf: FairTPTClassifier,
) -> None:
    measured = clf.audit(IMAGES, LABELS, {"place": ["water"] * 8})
    land = measured.to_dict()["runs"][0]["groups"][1]
    assert land["sensitive"] == {"place": "land"}
    assert land["n"] == 0
    assert land["accuracy"]["value"] is None
    assert land["accuracy"]["reason"] == "no images: land"


def test_predictions_as_a_data_frame(clf: FairTPTClassifier) -> None:
    pytest.importorskip("pandas")
    predictions = clf.predict(IMAGES)
    frame = predictions.to_dataframe()
    assert frame["label"].tolist() == [p.label for p in predictions]
    assert frame["probabilities: dog"].tolist() == [
        p.probabilities["dog"] for p in predictions
    ]
    assert (
        frame["sensitive: place: land"][0] == predictions[0].sensitive["place"]["land"]
    )
    assert frame["warnings"][0] == ""
    assert not frame["flipped"].any()


def test_predictions_are_answers(clf: FairTPTClassifier) -> None:
    predictions = clf.predict(IMAGES)
    by_predictions = audit(LABELS, predictions, {"place": PLACES})
    by_images = clf.audit(IMAGES, LABELS, PLACES)
    assert by_predictions.runs == ("ZeroShot",)
    assert by_predictions.document.data.targets == by_images.document.data.targets
    (run,) = by_predictions.document.runs
    (run_of_images,) = by_images.document.runs
    assert run.adapter == run_of_images.adapter
    metrics_of_images = run_of_images.metrics.by_name()
    for name, estimate in run.metrics.by_name().items():
        assert estimate.value == metrics_of_images[name].value, name
    assert run.perceived
    assert run.median_confidence == run_of_images.median_confidence
    scores = Scores(confidence=[0.5] * 8)
    options: Any = {"name": "mine", "scores": scores, "targets": [*TARGETS]}
    named = audit(LABELS, predictions, PLACES, **options)
    assert named.runs == ("mine",)
    assert named.document.runs[0].median_confidence == 0.5


def test_before_and_after_are_compared_without_a_model(clf: FairTPTClassifier) -> None:
    before = clf.predict(IMAGES)
    after = clf.with_adapter("association-correction").predict(IMAGES)
    compared = compare([audit(LABELS, before, PLACES), audit(LABELS, after, PLACES)])
    assert compared.runs == ("ZeroShot", "AssociationCorrection")
    halves = [audit(LABELS[:4], run[:4], PLACES[2:6]) for run in (before, after)]
    half = compare(halves)
    assert half.runs == compared.runs


def test_answers_that_are_missing_are_refused(clf: FairTPTClassifier) -> None:
    with pytest.warns(UserWarning, match="image 1: "):
        predictions = clf.predict([IMAGES[0], b"nonsense"], errors="skip")
    assert predictions.labels[1] is None
    with pytest.raises(
        FairTTAError, match=r"\(got none for 1, the first at index 1, which could"
    ):
        audit(LABELS[:2], predictions, PLACES[:2])


def test_the_hash_is_of_the_weights() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    changed = copy.deepcopy(model)
    with torch.no_grad():
        next(changed.parameters())[0, 0] += 1e-3
    assert weights_hash(model) == weights_hash(copy.deepcopy(model))
    assert weights_hash(model) != weights_hash(changed)
    halves = [
        copy.deepcopy(model).to(dtype) for dtype in (torch.bfloat16, torch.float16)
    ]
    assert len({weights_hash(m) for m in (model, *halves)}) == 3
    assert weights_hash(nn.Linear(2, 2, device="meta")) is None


@dataclass(frozen=True)
class Bare:
    name: str = "bare"
    device: str = "cpu"
    dtype: str = "float"


def test_a_backend_without_a_model_is_still_named() -> None:
    assert model_identity(Bare()) == {
        "name": "bare",
        "class": "Bare",
        "origin": None,
        "parameters": None,
        "weights_sha256": None,
        "device": "cpu",
        "dtype": "float",
    }


def test_a_local_model_is_named_without_its_path(tmp_path: Path) -> None:
    backend: Any = TransformersBackend(*families.seeded(families.clip))
    (tmp_path / "mine").mkdir()
    for origin, name in (
        (str(tmp_path / "mine"), "mine"),
        (str(tmp_path / "gone" / "model"), "model"),
        (str(FOLDER), "miniature"),
        ("someone/model", "someone/model"),
    ):
        backend.model.name_or_path = origin
        identity = model_identity(backend)
        assert identity["origin"] == name
        assert identity["name"] == f"CLIPModel ({name})"
    backend.model.name_or_path = ""
    assert model_identity(backend)["name"] == "CLIPModel"


@pytest.fixture(scope="module")
def birds() -> tuple[FairTPTClassifier, list[Any], list[str], list[str]]:
    """A classifier with images, their labels and their attribute values."""
    task = miniature.BIRDS
    clf = FairTPTClassifier(
        "miniature",
        task.targets,
        task.sensitive,
        task.template,
        adapter=ZeroShot(),
        batch_size=5,
        views=AugMix(1),
    )
    drawn = task.draw(24, split="validation")
    (attribute,) = clf.sensitive
    images = [row.image for row in drawn]
    labels = [row.target for row in drawn]
    return clf, images, labels, [row.sensitive[attribute] for row in drawn]


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_a_method_that_has_to_know_the_values_gets_them(
    birds: tuple[FairTPTClassifier, list[Any], list[str], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    clf, images, labels, values = birds
    tie = fit_on(TIE(), clf, images, values)
    measured = clf.audit(images, labels, values, adapter=tie, progress=True)
    assert "24/24" in capsys.readouterr().err
    assert measured.runs == ("TIE",)
    answers = []
    for image, value in zip(images, values, strict=True):
        answers.append(clf.with_adapter(tie.knowing(value)).predict(image).label)
    (attribute,) = clf.sensitive
    expected = audit(labels, answers, {attribute: values}, targets=clf.targets)
    confusion = {}
    for group in expected.document.runs[0].groups:
        confusion[str(group.sensitive)] = group.confusion
    for group in measured.document.runs[0].groups:
        assert group.confusion == confusion[str(group.sensitive)]
    star = clf.audit(images, labels, values, adapter=fit_on(TIEStar(), clf, images))
    assert star.runs == ("TIEStar",)
    with pytest.raises(FairTTAError, match="TIE needs the true sensitive value"):
        clf.with_adapter(tie).predict(images)
    assert clf.with_adapter(tie).audit(images, labels, values) == measured


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_such_a_method_needs_the_classifiers_values(
    birds: tuple[FairTPTClassifier, list[Any], list[str], list[str]],
) -> None:
    clf, images, labels, values = birds
    tie = fit_on(TIE(), clf, images, values)
    with pytest.raises(FairTTAError, match="TIE has not been fitted: call `clf"):
        clf.audit(images, labels, values, adapter=TIE())
    for wrong in ({"sex": values}, ["swamp"] * len(images)):
        with pytest.raises(FairTTAError, match="TIE needs the true values"):
            clf.audit(images, labels, wrong, adapter=tie)
    with pytest.raises(FairTTAError, match=r"got 7, but there are more images"):
        clf.audit(iter(images), labels[:7], values[:7], adapter=tie)
