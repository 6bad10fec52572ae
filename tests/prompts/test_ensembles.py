"""Several templates: features of a prompt are the unit mean of those of its sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import families
import families_open_clip
import numpy as np
import open_clip
import pytest
from checks import picture
from fits import fit_on, save
from internals import make_job

from fair_tta import FairTPTClassifier, FairTTAError, LogitBalance, Templates, ZeroShot
from fair_tta.auditing import Audit
from fair_tta.methods import load_adapter
from fair_tta.models import TransformersBackend

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")

TARGETS, SENSITIVE = ["cat", "black dog"], ["male", "female"]
SENTENCES = [
    "a photo of a {sensitive} {target}.",
    "a {sensitive} {target} in a picture.",
]
PICTURES = [picture(i) for i in range(8)]


def classifier(template: Any = SENTENCES, **changes: Any) -> FairTPTClassifier:
    backend = TransformersBackend(*families.seeded(families.clip))
    settings: dict[str, Any] = {
        "sensitive": {"sex": SENSITIVE},
        "scale": 30.0,
        "adapter": ZeroShot(),
    }
    return FairTPTClassifier(
        backend, TARGETS, template=template, **(settings | changes)
    )


def test_equal_to_open_clips_zero_shot_classifier() -> None:
    parts = families_open_clip.build(families_open_clip.shrunk("ViT-B-32"))
    templates = [one("{}") for one in open_clip.OPENAI_IMAGENET_TEMPLATES]
    names = ["tench", "great white shark", "hen"]
    clf = FairTPTClassifier(parts, names, template=templates)
    expected = open_clip.build_zero_shot_classifier(
        parts[0].eval(), parts[2], names, templates
    )
    assert len(templates) == 80
    np.testing.assert_allclose(
        clf._task.target_features.numpy().T, expected.numpy(), atol=1e-5
    )


def test_all_features_are_unit_means() -> None:
    clf = classifier()
    task, singles = clf._task, [classifier(sentence)._task for sentence in SENTENCES]

    def mean(features: list[Any]) -> Any:
        total = np.mean([f.double().numpy() for f in features], 0)
        return total / np.linalg.norm(total, axis=-1, keepdims=True)

    np.testing.assert_allclose(
        task.target_features.numpy(),
        mean([s.target_features for s in singles]),
        atol=1e-5,
    )
    values = [s.sensitive_features["sex"] for s in singles]
    np.testing.assert_allclose(
        task.sensitive_features["sex"].numpy(), mean(values), atol=1e-5
    )
    joint = [s.own_features(s.joint_prompts("sex")) for s in singles]
    joint_features = task.own_features(task.joint_prompts("sex"))
    np.testing.assert_allclose(joint_features.numpy(), mean(joint), atol=1e-5)
    # the mean is of prompts that differ
    assert abs(joint[0] - joint[1]).max() > 0.01


def test_a_list_of_one_is_that_one() -> None:
    single, in_list = classifier(SENTENCES[0]), classifier(SENTENCES[:1])
    assert in_list.predict(PICTURES) == single.predict(PICTURES)
    assert in_list._task.templates.sentences == single._task.templates.sentences


def test_templates_in_a_list_and_lists_of_lists() -> None:
    first = Templates.from_sentence(SENTENCES[0])
    flat = classifier([[first], SENTENCES[1]])._task.templates
    assert flat.sentences["joint"] == SENTENCES
    assert flat.sentences["target"] == [
        "a photo of a {target}.",
        "a {target} in a picture.",
    ]
    assert first._further == ()


def test_what_is_fitted_or_stored_knows_all_templates(tmp_path: Path) -> None:
    clf = classifier()
    save(fit_on(LogitBalance(), clf, PICTURES), tmp_path / "b.safetensors")
    method = load_adapter(tmp_path / "b.safetensors")
    assert clf.with_adapter(method).predict(PICTURES[0]).label in TARGETS
    for other in (
        SENTENCES[0],
        SENTENCES[::-1],
        [*SENTENCES, "a {sensitive} {target}."],
    ):
        with pytest.raises(FairTTAError, match="was fitted with another `template`"):
            classifier(other, adapter=method)
    digests = {
        make_job(classifier(template), [ZeroShot()]).digests[1]
        for template in (
            SENTENCES,
            SENTENCES[:1],
            [SENTENCES[0], "a {sensitive} {target}."],
        )
    }
    assert len(digests) == 3


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
def test_audits_keep_all_templates(tmp_path: Path) -> None:
    audit = classifier().audit(
        PICTURES, TARGETS * 4, {"sex": ["male"] * 4 + ["female"] * 4}
    )
    audit.save(tmp_path / "audit.json")
    loaded = Audit.load(tmp_path / "audit.json").to_dict()
    assert loaded["provenance"]["prompts"]["template"]["joint"] == SENTENCES
    assert SENTENCES[1] in classifier()._repr_html_()
