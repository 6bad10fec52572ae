"""Every transformers family: splice, gradient, cut, zero-shot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import families
import pytest
import torch
from checks import (
    assert_cut_is,
    assert_gradient_is_right,
    assert_splice_is_exact,
    assert_zero_shot_is,
)

from fair_tta.errors import PromptError
from fair_tta.models import Tokens, TransformersBackend

Parts = tuple[str, Any, Any, Any]

MAY_NOT_CUT = {"SigLIP", "SigLIP 2"}  # METHODS 6.2: pooled at the last, padded position
NO_MASK = {"SigLIP", "SigLIP 2"}


def own_text_features(name: str, model: Any) -> Callable[[Tokens], Any]:
    """The model's own call, full length, written out independently of the backend."""

    def call(tokens: Tokens) -> Any:
        mask = {} if name in NO_MASK else {"attention_mask": tokens.mask.long()}
        if name == "BLIP ITC":
            hidden = model.text_encoder(input_ids=tokens.ids, **mask).last_hidden_state
            return model.text_proj(hidden[:, 0, :])
        output = model.get_text_features(input_ids=tokens.ids, **mask)
        return output if isinstance(output, torch.Tensor) else output.pooler_output

    return call


def own_logits(
    name: str, model: Any, images: Any, tokenizer: Any
) -> Callable[..., Any]:
    """The model's own forward, with the padding its pipeline would use."""

    @torch.no_grad()
    def call(pictures: list[Any], sentences: list[str]) -> Any:
        padding: dict[str, Any] = {"padding": True}
        if name in NO_MASK:
            padding = {"padding": "max_length", "max_length": 64}
        text = tokenizer(sentences, return_tensors="pt", **padding)
        inputs = {"input_ids": text["input_ids"]}
        if name not in NO_MASK:
            inputs["attention_mask"] = text["attention_mask"]
        pixels = images(images=pictures, return_tensors="pt")
        pixels = {
            k: v.to(model.dtype) if v.is_floating_point() else v
            for k, v in pixels.items()
        }
        if name == "BLIP ITC":
            return model(**inputs, **pixels, use_itm_head=False).itm_score
        return model(**inputs, **pixels).logits_per_image

    return call


@pytest.fixture(params=families.TRANSFORMERS)
def family(request: pytest.FixtureRequest) -> Parts:
    return (request.param, *families.seeded(families.TRANSFORMERS[request.param]))


@pytest.fixture(
    params=[pytest.param(n, marks=families.marks(n)) for n in families.TRANSFORMERS]
)
def structure(request: pytest.FixtureRequest) -> Parts:
    """All but one family of each structure are slow."""
    return (request.param, *families.seeded(families.TRANSFORMERS[request.param]))


def test_splice_is_exact(family: Parts) -> None:
    name, model, images, tokenizer = family
    backend = TransformersBackend(model, images, tokenizer)
    assert_splice_is_exact(backend, own_text_features(name, model))


def test_gradient_is_right(structure: Parts) -> None:
    _, model, images, tokenizer = structure
    assert_gradient_is_right(TransformersBackend(model.double(), images, tokenizer))


def test_tail_is_cut_where_exact(structure: Parts) -> None:
    name, model, images, tokenizer = structure
    backend = TransformersBackend(model, images, tokenizer)
    assert_cut_is(backend, own_text_features(name, model), name not in MAY_NOT_CUT)


def test_zero_shot_is_the_models_own_answer(structure: Parts) -> None:
    name, model, images, tokenizer = structure
    backend = TransformersBackend(model, images, tokenizer)
    assert_zero_shot_is(backend, own_logits(name, model, images, tokenizer))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_zero_shot_in_half_precision(structure: Parts, dtype: torch.dtype) -> None:
    name, model, images, tokenizer = structure
    model.to(dtype)
    backend = TransformersBackend(model, images, tokenizer)
    assert backend.dtype == dtype
    assert backend.cuts_tail is (name not in MAY_NOT_CUT)
    assert_zero_shot_is(
        backend, own_logits(name, model, images, tokenizer), tolerance=1e-2
    )


def test_the_longest_sentence(structure: Parts) -> None:
    """What fits works, one token more is refused; RoBERTa's positions start after its padding."""
    name, model, images, tokenizer = structure
    backend = TransformersBackend(model, images, tokenizer)
    longest = {
        "AltCLIP": 62,
        "Chinese-CLIP": 64,
        "ALIGN": 64,
        "VisionTextDualEncoder": 64,
    }
    limit = longest.get(name, 64 if name in NO_MASK or "BLIP" in name else 77)
    words: list[str] = []
    while len(tokenizer(" ".join([*words, "a"]))["input_ids"]) <= limit:
        words.append("a")
    tokens = backend.tokenize([" ".join(words)])
    assert tokens.ids.shape[1] == limit
    assert backend.encode_text(tokens).isfinite().all()
    with pytest.raises(PromptError, match=f"the model takes at most {limit}"):
        backend.tokenize([" ".join([*words, "a"])])
