"""`FairTPTClassifier.mitigate` on drawn birds."""

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
IMAGES = [row.image for row in DRAWN]
LABELS = [row.target for row in DRAWN]
PLACES = [next(iter(row.sensitive.values())) for row in DRAWN]


def classifier(task: MiniatureTask = BIRDS) -> FairTPTClassifier:
    names = task.targets, task.sensitive, task.template
    return FairTPTClassifier("miniature", *names, adapter=ZeroShot())


@pytest.fixture(scope="module")
def labelled() -> Mitigation:
    return classifier().mitigate(IMAGES, LABELS, PLACES)


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
    mitigation = classifier().mitigate(IMAGES[:45], LABELS[:45], PLACES[:45])
    assert mitigation.adapter is None
    assert mitigation.classifier.adapter == ZeroShot()
    reason = "No method is chosen: association-correction does not sign"
    assert reason in mitigation.reason


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_clusters() -> None:
    columns = IMAGES[:60], LABELS[:60], PLACES[:60]
    persons = [i // 4 for i in range(60)]
    mitigation = classifier().mitigate(*columns, clusters=persons)
    assert mitigation.audit.document.data.clusters == 15
    with pytest.raises(FairTTAError, match=r"10 or more persons or sources \(got 2\)"):
        classifier().mitigate(*columns, clusters=[i % 2 for i in range(60)])
