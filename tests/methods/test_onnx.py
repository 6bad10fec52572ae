"""Methods as ONNX files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import families
import numpy as np
import onnx
import onnxruntime
import pytest
import test_every_adapter as every
import torch

from fair_tta import FairTPT, FairTPTClassifier, FairTTAError, Zero
from fair_tta.extend import Adapter, Outcome
from fair_tta.methods import EpisodicTIE, Tent

pytestmark = [
    pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning"),
    pytest.mark.filterwarnings(
        "ignore::fair_tta.errors.FeatureMismatchWarning"
    ),  # of random features
]

ONE_VIEW = {
    name: method
    for name, method in every.ADAPTERS.items()
    if not any(
        getattr(method.needs, need)
        for need in "views pixels prompt_gradient values".split()
    )
}


def run(path: Path, features: np.ndarray[Any, Any]) -> Any:
    session = onnxruntime.InferenceSession(str(path))
    return session.run(None, {"features": features})[0]


def classifier_of(name: str) -> FairTPTClassifier:
    if name == "EpisodicTIE":  # of one attribute; see below
        return every.classifier(
            adapter=EpisodicTIE(), sensitive=["male", "female", "old"]
        )
    return every.classifier(adapter=ONE_VIEW[name])


@pytest.mark.parametrize("name", ONE_VIEW)
def test_one_view_methods_are_exported(name: str, tmp_path: Path) -> None:
    clf = classifier_of(name)
    path = tmp_path / "head.onnx"
    clf.export(path)
    generator = torch.Generator().manual_seed(1)
    for count, length in ((1, 1.0), (40, 7.0)):
        features = length * torch.randn(count, families.DIM, generator=generator)
        expected = [
            list(p.probabilities.values()) for p in clf._predict_encoded(features)
        ]
        assert run(path, features.numpy()) == pytest.approx(
            np.array(expected), abs=1e-5
        )


def test_labels_and_method_are_in_the_file(tmp_path: Path) -> None:
    classifier_of("SAGE").export(tmp_path / "head.onnx")
    model = onnx.load(tmp_path / "head.onnx")
    onnx.checker.check_model(model)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["targets"]) == every.TARGETS
    assert metadata["method"].startswith("SAGE(")


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        (Zero(), "Zero cannot be exported: it needs further views of an image"),
        (FairTPT(), "FairTPT cannot be exported: it .*view"),
        (Tent(), "Tent cannot be exported: it needs the images themselves"),
        (
            EpisodicTIE(),
            "EpisodicTIE cannot be exported: it computes '_linalg_svd' for each",
        ),
    ],
)
def test_other_methods_report_why_and_leave_the_file(
    adapter: Adapter, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "head.onnx"
    path.write_bytes(b"before")
    with pytest.raises(FairTTAError, match=reason):
        every.classifier(adapter=adapter).export(path)  # of two attributes
    assert path.read_bytes() == b"before"


class Counting(Adapter):
    """What it finds depends on how many images there are, which a file cannot know."""

    def adapt(self, task: Any, features: torch.Tensor) -> Outcome:
        logits = task.logits(features[:, 0], task.target_features)
        return Outcome((logits / len(logits)).softmax(-1))


def test_a_file_that_gives_other_answers_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(
        FairTTAError, match=r"Counting cannot be exported: .* other probabilities"
    ):
        every.classifier(adapter=Counting()).export(tmp_path / "head.onnx")
    assert not (tmp_path / "head.onnx").exists()
