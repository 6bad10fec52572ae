"""From labelled images to a method that is ready to use."""

from __future__ import annotations

from pathlib import Path

import pytest
from fits import fit_on
from internals import MiniatureTask

from fair_tta import (
    AssociationCorrection,
    FairTPTClassifier,
    FairTTAError,
    LogitBalance,
    ZeroShot,
)
from fair_tta.auditing import Mitigation
from fair_tta.methods import load_adapter
from fair_tta.miniature import BADGES, BIRDS

DRAWN = BIRDS.draw(450)
IMAGES = [one.image for one in DRAWN]
PLACES = [next(iter(one.sensitive.values())) for one in DRAWN]


def classifier(task: MiniatureTask = BIRDS) -> FairTPTClassifier:
    names = task.targets, task.sensitive, task.template
    return FairTPTClassifier("miniature", *names, adapter=ZeroShot())


@pytest.fixture(scope="module")
def labelled() -> Mitigation:
    return classifier().mitigate(IMAGES, [one.target for one in DRAWN], PLACES)


def test_labels_choose_and_the_method_is_fitted_on_all(labelled: Mitigation) -> None:
    assert isinstance(labelled.adapter, LogitBalance)
    expected = fit_on(LogitBalance(), classifier(), IMAGES)._checked_reference()
    assert labelled.adapter._checked_reference().images == len(IMAGES)
    for name, value in labelled.adapter._checked_reference().tensors.items():
        assert value.flatten().tolist() == pytest.approx(
            expected.tensors[name].flatten().tolist(), abs=1e-4
        )
    assert labelled.audit.runs == (
        "zero-shot",
        "association-correction",
        "logit-balance",
    )
    assert "cross-fitted on these 450 images" in labelled.audit.warnings[0]


def test_the_figures_are_the_cross_fitted_ones(labelled: Mitigation) -> None:
    document = labelled.audit.document
    change = document.comparisons[1].adjusted.typical_gap
    assert isinstance(change.low, float)
    assert isinstance(change.high, float)
    interval = f"[{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    assert f"{interval} points (95 % CI, allowing for 2 candidates)" in labelled.reason
    assert document.runs[2].adapter is not None
    assert document.runs[2].adapter.name == "CrossFitted"


def test_a_saved_method_is_ready_to_use(labelled: Mitigation, tmp_path: Path) -> None:
    labelled.classifier.save(tmp_path / "adapter.safetensors")
    loaded = load_adapter(tmp_path / "adapter.safetensors")
    assert loaded == labelled.adapter == labelled.classifier.adapter
    assert classifier().with_adapter(loaded).predict(IMAGES[0]).label
    with pytest.raises(FairTTAError, match="was fitted with another `targets`"):
        classifier(BADGES).with_adapter(loaded)


def test_a_method_without_a_fit_is_saved_with_its_settings(
    labelled: Mitigation, tmp_path: Path
) -> None:
    method = AssociationCorrection(strength=0.5)
    labelled.classifier.with_adapter(method).save(tmp_path / "adapter.safetensors")
    assert load_adapter(tmp_path / "adapter.safetensors") == method


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_without_an_effect_there_is_no_method() -> None:
    found = classifier().mitigate(
        IMAGES[:45], [one.target for one in DRAWN[:45]], PLACES[:45]
    )
    assert found.adapter is None
    assert "No method is chosen: association-correction does not sign" in found.reason
    assert found.classifier.adapter == ZeroShot()


def test_without_labels_it_refuses_in_one_sentence() -> None:
    with pytest.raises(
        FairTTAError, match=r"logit-balance.*label about a hundred"
    ) as refused:
        classifier().mitigate(IMAGES)
    assert str(refused.value).count(". ") == 0


def test_without_attribute_values_it_says_that_they_are_needed() -> None:
    with pytest.raises(
        FairTTAError, match="`sensitive` should be the attribute values"
    ) as refused:
        classifier().mitigate(IMAGES, [one.target for one in DRAWN])
    assert str(refused.value).count(". ") == 0


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_clusters() -> None:
    clf, some = classifier(), IMAGES[:60]
    labels, places = [one.target for one in DRAWN[:60]], PLACES[:60]
    found = clf.mitigate(some, labels, places, clusters=[i // 4 for i in range(60)])
    assert found.audit.document.data.clusters == 15
    with pytest.raises(FairTTAError, match=r"10 or more persons or sources \(got 2\)"):
        clf.mitigate(some, labels, places, clusters=[i % 2 for i in range(60)])
