"""`clf.audit` and where a result comes from."""

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
from internals import FOLDER, AugMix, FixedRate, model_identity, weights_hash
from torch import nn

from fair_tta import TPT, FairTPTClassifier, FairTTAError, ZeroShot
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.errors import SmallGroupWarning
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
    found = clf.audit(IMAGES, LABELS, PLACES)
    predictions = clf.predict(IMAGES)
    right = [p.label == label for p, label in zip(predictions, LABELS, strict=True)]
    assert found.runs == ("ZeroShot",)
    assert found.estimate("accuracy").value == sum(right) / 8
    document = found.to_dict()
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
    first, second = (clf.audit(IMAGES, LABELS, PLACES) for _ in range(2))
    assert first == second
    assert first.to_dict()["runs"][0]["cost"] != second.to_dict()["runs"][0]["cost"]


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


def test_labels_and_attributes_of_ones_own(clf: FairTPTClassifier) -> None:
    own = {"cat": 0, "dog": 1, "bird": 2}
    renamed = clf.audit(
        iter(IMAGES),
        [own[label] for label in LABELS],
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
    found = clf.audit(IMAGES, LABELS, {"place": ["water"] * 8})
    land = found.to_dict()["runs"][0]["groups"][1]
    assert land["sensitive"] == {"place": "land"}
    assert land["n"] == 0
    assert land["accuracy"]["value"] is None
    assert land["accuracy"]["reason"] == "no images: land"


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES[0], ["cat"], "`images` should be several images, one per label."),
        (
            IMAGES,
            ["Cat", 3] * 4,
            "`labels` should be the classifier's targets, ['cat', 'dog', 'bird'] "
            "(got 'Cat', 3): pass `rename={your label: target}`.",
        ),
        (IMAGES[:7], LABELS, "`labels` should be as many as images, 7 (got 8)."),
        (iter(IMAGES[:7]), LABELS, "`labels` should be as many as images, 7 (got 8)."),
    ],
)
def test_errors(clf: FairTPTClassifier, images: Any, labels: Any, message: str) -> None:
    with pytest.raises(FairTTAError) as error:
        clf.audit(images, labels, PLACES[: len(labels)])
    assert str(error.value) == message


def test_a_missing_label_is_not_blamed_on_the_sensitive_values(
    clf: FairTPTClassifier,
) -> None:
    with pytest.raises(
        FairTTAError, match=r"`labels` should be as many as images, 8 \(got 7\)"
    ):
        clf.audit(IMAGES, LABELS[:7], PLACES)


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
    found, by_images = (
        audit(LABELS, predictions, {"place": PLACES}),
        clf.audit(IMAGES, LABELS, PLACES),
    )
    (run,), (other,) = found.document.runs, by_images.document.runs
    assert found.runs == ("ZeroShot",)
    assert run.adapter == other.adapter
    assert found.document.data.targets == by_images.document.data.targets
    for name, figure in run.metrics.by_name().items():
        assert figure.value == other.metrics.by_name()[name].value, name
    assert run.perceived
    assert run.median_confidence == other.median_confidence
    scores = Scores(confidence=[0.5] * 8)
    own = audit(
        LABELS, predictions, PLACES, name="mine", scores=scores, targets=[*TARGETS]
    )
    assert own.runs == ("mine",)
    assert own.document.runs[0].median_confidence == 0.5


def test_before_and_after_are_compared_without_a_model(clf: FairTPTClassifier) -> None:
    before = clf.predict(IMAGES)
    after = clf.with_adapter("association-correction").predict(IMAGES)
    both = compare([audit(LABELS, before, PLACES), audit(LABELS, after, PLACES)])
    assert both.runs == ("ZeroShot", "AssociationCorrection")
    half = compare([audit(LABELS[:4], few[:4], PLACES[2:6]) for few in (before, after)])
    assert half.runs == both.runs


def test_labels_in_other_words_are_explained_for_predictions_too(
    clf: FairTPTClassifier,
) -> None:
    with pytest.raises(FairTTAError, match="`y_pred` should be among the classes"):
        audit([0, 1] * 4, clf.predict(IMAGES), PLACES)


def test_answers_that_are_missing_are_refused(clf: FairTPTClassifier) -> None:
    with pytest.warns(UserWarning, match="image 1: "):
        some = clf.predict([IMAGES[0], b"nonsense"], errors="skip")
    assert some.labels[1] is None
    with pytest.raises(
        FairTTAError, match=r"\(got none for 1, the first at index 1, which could"
    ):
        audit(LABELS[:2], some, PLACES[:2])


def test_the_hash_is_of_the_weights() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    same, other = copy.deepcopy(model), copy.deepcopy(model)
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1e-3
    assert weights_hash(model) == weights_hash(same) != weights_hash(other)
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
        found = model_identity(backend)
        assert found["origin"] == name
        assert found["name"] == f"CLIPModel ({name})"
    backend.model.name_or_path = ""
    assert model_identity(backend)["name"] == "CLIPModel"
