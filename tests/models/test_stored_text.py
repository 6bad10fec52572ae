"""A text side alone: stored text features, or a text tower without a vision tower."""

from __future__ import annotations

from typing import Any

import families
import numpy as np
import open_clip
import pytest
import torch
import transformers
from fits import fit_on
from internals import Adapter, Backend, TextTable, check_adapter

from fair_tta import (
    AssociationCorrection,
    FairTPTClassifier,
    FairTTAError,
    Features,
    LogitBalance,
)
from fair_tta.errors import ModelError, PromptError, TowerError

NAMES: dict[str, Any] = {
    "targets": ["cat", "dog"],
    "sensitive": ["on water", "on land"],
    "template": "a photo of a {target} {sensitive}.",
}
TOWERS = {
    "clip": "CLIPTextModelWithProjection",
    "metaclip2": "MetaClip2TextModelWithProjection",
    "siglip": "SiglipTextModel",
}


@pytest.mark.parametrize("family", TOWERS)
def test_a_text_tower_gives_the_features_of_the_whole_model(family: str) -> None:
    tower_class = getattr(transformers, TOWERS[family], None)
    if tower_class is None:
        pytest.skip("this version of transformers does not have it")
    model, images, tokenizer = families.seeded(getattr(families, family))
    tower = tower_class(model.config.text_config).eval()
    weights = model.state_dict()
    for name, tensor in tower.state_dict().items():
        names = [key for key in weights if key == name or key == f"text_model.{name}"]
        tensor.copy_(weights[names[0]])
    dual_encoder = FairTPTClassifier(
        model, processor=(images, tokenizer), scale=30.0, **NAMES
    )
    clf = FairTPTClassifier(tower, processor=tokenizer, scale=30.0, **NAMES)
    assert clf.adapter == AssociationCorrection()
    expected = dual_encoder._task.target_features
    torch.testing.assert_close(clf._task.target_features, expected)
    torch.testing.assert_close(
        clf._task.sensitive_features, dual_encoder._task.sensitive_features
    )
    stored = Features(np.random.default_rng(0).standard_normal((9, expected.shape[1])))
    np.testing.assert_allclose(
        clf.with_adapter("orthcali").predict_proba(stored),
        dual_encoder.with_adapter("orthcali").predict_proba(stored),
        1e-5,
    )
    with pytest.warns(UserWarning, match="fitted on 9 images"):
        fitted = fit_on(LogitBalance(), clf, stored)
    dual_encoder.with_adapter(fitted)  # what a text tower fits, the whole model can use
    with pytest.raises(
        ModelError, match=r"no image encoder here: pass .* Features\(array\)\.$"
    ):
        clf.predict("image.png")
    with pytest.raises(ModelError, match="no image encoder here"):
        clf._backend.encode_images([])
    with pytest.raises(
        ModelError, match=r"TextModel.* has no logit scale: pass `scale`"
    ):
        FairTPTClassifier(tower, processor=tokenizer, **NAMES)


def test_a_text_tower_of_open_clip() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tower = open_clip.transformer.TextTransformer(
            context_length=16, width=32, heads=2, layers=1, output_dim=12
        ).eval()
    tokenizer = open_clip.SimpleTokenizer(context_length=16)
    clf = FairTPTClassifier(tower, processor=tokenizer, scale=20.0, **NAMES)
    features = tower(tokenizer(["a photo of a cat.", "a photo of a dog."]))
    expected = features / features.norm(dim=1, keepdim=True)
    torch.testing.assert_close(
        clf._task.target_features, expected.detach(), atol=1e-5, rtol=0
    )
    with pytest.raises(
        ModelError, match="open_clip TextTransformer has no logit scale"
    ):
        FairTPTClassifier(tower, processor=tokenizer, **NAMES)


def sentences() -> list[str]:
    words = ["cat", "dog", "cat on water", "cat on land", "dog on water", "dog on land"]
    return [
        "a photo of a on water.",
        "a photo of a on land.",
        *(f"a photo of a {w}." for w in words),
    ]


def table(without: str = "") -> dict[str, Any]:
    vectors = np.random.default_rng(3).standard_normal((8, 6))
    features = dict(zip(sentences(), vectors, strict=True))
    return {
        text: vector
        for text, vector in features.items()
        if not without or without not in text
    }


def test_a_table_is_a_backend_of_whole_sentences() -> None:
    backend = TextTable(table(), 50.0)
    assert isinstance(backend, Backend)
    tokens = backend.tokenize(["a photo of a dog.", "a photo of a cat."])
    expected = np.stack([table()["a photo of a dog."], table()["a photo of a cat."]])
    np.testing.assert_allclose(backend.encode_text(tokens).numpy(), expected, rtol=1e-6)


def test_a_table_of_words_is_refused() -> None:
    with pytest.raises(FairTTAError, match="should be a vector"):
        TextTable({"a": "word"}, 1.0)


def test_a_prompt_that_the_table_lacks_is_named() -> None:
    with pytest.raises(PromptError) as error:
        FairTPTClassifier.from_features(
            table(), ["cat", "dogs"], template="a photo of a {}."
        )
    assert str(error.value).startswith(
        "`text_features` should have the prompts 'a photo of a dogs.' (nearest to the first: "
        "'a photo of a dog.', 'a photo of a "
    )
    clf = FairTPTClassifier.from_features(table(" on "), **{**NAMES, "sensitive": None})
    assert clf.targets == ("cat", "dog")
    lean = {text: v for text, v in table().items() if len(text.split()) < 7}
    clf = FairTPTClassifier.from_features(lean, **NAMES)
    for method in ("orthcali", "partial-projection", "perception-clip"):
        with pytest.raises(
            PromptError, match=r"'a photo of a cat on water\.', 'a photo of a cat on"
        ):
            clf.with_adapter(method)
    clf.with_adapter("orthcali:lam=0")


@pytest.mark.parametrize("method", ["fair-tpt", "tpt", "zero", "memo", "seraser"])
def test_methods_that_need_more_refuse_at_construction(method: str) -> None:
    with pytest.raises(
        ModelError, match=r"needs .*, and there is no image encoder: choose"
    ) as error:
        FairTPTClassifier.from_features(table(), **NAMES, adapter=method)
    assert str(error.value).count(". ") == 0


def test_a_method_that_tunes_the_prompt_refuses() -> None:
    class Tunes(Adapter):
        needs = type(Adapter.needs)(prompt_gradient=True)

        def adapt(self, task: Any, features: Any) -> Any: ...

    task = FairTPTClassifier.from_features(table(), **NAMES)._task
    with pytest.raises(
        TowerError, match="tunes the prompt, but stored text features have no text"
    ):
        check_adapter(Tunes(), task)
