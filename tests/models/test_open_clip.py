"""Every open_clip family: splice, gradient, cut, zero-shot; and the forms a model may come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import families
import open_clip
import pytest
import torch
from checks import (
    SENSITIVE,
    TARGETS,
    TEMPLATE,
    assert_cut_is,
    assert_gradient_is_right,
    assert_splice_is_exact,
    assert_zero_shot_is,
    picture,
)
from families_open_clip import OPEN_CLIP, build, registered, shrunk
from open_clip.tokenizer import HFTokenizer

from fair_tta import FairTPTClassifier
from fair_tta.errors import PromptError
from fair_tta.models import Backend, OpenClipBackend, Tokens

# METHODS 6.3: attention in both directions and no mask of the padding, so every position sees it.
MAY_NOT_CUT = {"CLIPA", "MobileCLIP-S", "SigLIP", "SigLIP 2"}

Parts = tuple[str, Any, Any, Any]


def own_text_features(model: Any) -> Callable[[Tokens], Any]:
    """The model's own call at full length."""

    def call(tokens: Tokens) -> Any:
        return model.encode_text(tokens.ids, normalize=False)

    return call


def own_logits(model: Any, preprocess: Any, tokenizer: Any) -> Callable[..., Any]:
    """The model's own logits: what open_clip's `get_logits` does, which CoCa has not.

    The product is taken in float32 or better: in bfloat16 logits around 8 are 1/32 apart.
    """

    @torch.no_grad()
    def call(pictures: list[Any], sentences: list[str]) -> Any:
        dtype = next(w for w in model.visual.parameters() if w.ndim == 4).dtype
        pixels = torch.stack([preprocess(image) for image in pictures]).to(dtype)
        image = model.encode_image(pixels, normalize=True).float()
        text = model.encode_text(tokenizer(sentences), normalize=True).float()
        logits = model.logit_scale.exp().float() * image @ text.T
        return logits if model.logit_bias is None else logits + model.logit_bias.float()

    return call


@pytest.fixture(params=OPEN_CLIP)
def family(request: pytest.FixtureRequest) -> Parts:
    return (request.param, *families.seeded(OPEN_CLIP[request.param]))


@pytest.fixture(params=[pytest.param(n, marks=families.marks(n)) for n in OPEN_CLIP])
def structure(request: pytest.FixtureRequest) -> Parts:
    """All but one family of each structure are slow."""
    return (request.param, *families.seeded(OPEN_CLIP[request.param]))


def test_splice_is_exact(family: Parts) -> None:
    _, model, preprocess, tokenizer = family
    backend = OpenClipBackend(model, preprocess, tokenizer)
    assert_splice_is_exact(backend, own_text_features(model))


def test_gradient_is_right(structure: Parts) -> None:
    _, model, preprocess, tokenizer = structure
    assert_gradient_is_right(OpenClipBackend(model.double(), preprocess, tokenizer))


def test_tail_is_cut_where_exact(structure: Parts) -> None:
    name, model, preprocess, tokenizer = structure
    backend = OpenClipBackend(model, preprocess, tokenizer)
    assert_cut_is(backend, own_text_features(model), name not in MAY_NOT_CUT)


def test_zero_shot_is_the_models_own_answer(structure: Parts) -> None:
    _, model, preprocess, tokenizer = structure
    backend = OpenClipBackend(model, preprocess, tokenizer)
    assert_zero_shot_is(backend, own_logits(model, preprocess, tokenizer))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_zero_shot_in_half_precision(structure: Parts, dtype: torch.dtype) -> None:
    name, model, preprocess, tokenizer = structure
    model.to(dtype)
    backend = OpenClipBackend(model, preprocess, tokenizer)
    assert backend.dtype == dtype
    assert backend.cuts_tail is (name not in MAY_NOT_CUT)
    assert_zero_shot_is(
        backend, own_logits(model, preprocess, tokenizer), tolerance=1e-2
    )


def test_a_sentence_is_never_truncated_in_silence(structure: Parts) -> None:
    _, model, preprocess, tokenizer = structure
    backend = OpenClipBackend(model, preprocess, tokenizer)
    cat = int(tokenizer(["cat " * 6])[0, 3])
    few = int((tokenizer(["cat " * 6]) == cat).sum())
    outcomes = set()
    for n in range(8, tokenizer.context_length + 4):
        sentence = "cat " * n
        fits = int((tokenizer([sentence]) == cat).sum()) == few + n - 6
        outcomes.add(fits)
        if fits:
            backend.tokenize([sentence])
        else:
            with pytest.raises(PromptError, match="at most"):
                backend.tokenize([sentence])
    assert outcomes == {True, False}


def test_longest_sentence_is_exact(structure: Parts) -> None:
    """No padding is left to cut, and CoCa's class token then sees itself."""
    _, model, preprocess, tokenizer = structure
    backend = OpenClipBackend(model, preprocess, tokenizer)
    n = max(n for n in range(8, tokenizer.context_length) if _fits(backend, "cat " * n))
    for words in (n, n - 1, n - 2):
        tokens = backend.tokenize(["a dog", "cat " * words])
        with torch.no_grad():
            own = own_text_features(model)(tokens)
            ours = backend.encode_prompts(tokens, backend.embed_tokens(tokens.ids))
        torch.testing.assert_close(
            backend.encode_text(tokens), own, rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(ours, own, rtol=1e-5, atol=1e-5)


def _fits(backend: Backend, sentence: str) -> bool:
    try:
        backend.tokenize([sentence])
    except PromptError:
        return False
    return True


def test_padding_id_inside_a_sentence() -> None:
    """open_clip's own tokenizer pads with 0, which is also the "!" of "!="."""
    backend = OpenClipBackend(*families.seeded(OPEN_CLIP["CLIP"]))
    tokens = backend.tokenize(["a != cat", "a = cat"])
    assert 0 in tokens.row(0)
    assert 0 not in tokens.row(1)
    assert len(tokens.row(0)) == len(tokens.row(1)) + 1


def test_class_token_after_the_padding() -> None:
    """open_clip's mode "clips" puts a token at the very end, so nothing can be cut."""
    config = shrunk("ViT-L-14-CLIPA")
    model, preprocess, _ = families.seeded(lambda: build(config))
    with registered(config):
        tokenizer = HFTokenizer("bert", context_length=32, tokenizer_mode="clips")
    tokenizer.tokenizer.bos_token, tokenizer.tokenizer.eos_token = "[MASK]", "[SEP]"
    backend = OpenClipBackend(model, preprocess, tokenizer)
    tokens = backend.tokenize(["a cat"])
    assert tokens.mask[0].tolist() == [*[True] * 4, *[False] * 27, True]
    assert_splice_is_exact(backend, own_text_features(model))
    assert_cut_is(backend, own_text_features(model), expected=False)


# --- open_clip's own ways to build a model -----------------------------------------------------


@pytest.mark.parametrize("precision", ["bf16", "fp16", "pure_bf16", "pure_fp16"])
@pytest.mark.parametrize("name", ["ViT-B-32", "EVA02-B-16"])
def test_precisions_of_open_clip(name: str, precision: str) -> None:
    """In "bf16" and "fp16" norms and token embeddings stay in float32 (CoCa itself fails there)."""
    config = shrunk(name)
    with torch.random.fork_rng(), registered(config) as tiny:
        torch.manual_seed(0)
        model = open_clip.create_model(tiny, precision=precision).eval()
    _, preprocess, tokenizer = build(config)
    backend = OpenClipBackend(model, preprocess, tokenizer)
    assert backend.cuts_tail
    assert_zero_shot_is(
        backend, own_logits(model, preprocess, tokenizer), tolerance=1e-2
    )


def test_timm_vision_tower() -> None:
    config = shrunk("EVA02-B-16")
    config["vision_cfg"] = {
        "timm_model_name": "test_vit",
        "timm_model_pretrained": False,
        "timm_pool": "token",
        "timm_proj": "linear",
        "image_size": 160,
    }
    model, preprocess, tokenizer = families.seeded(lambda: build(config))
    backend = OpenClipBackend(model, preprocess, tokenizer)
    assert_zero_shot_is(backend, own_logits(model, preprocess, tokenizer))


# --- accepted forms ------------------------------------------------------------------------------


def probabilities(model: Any) -> Any:
    return FairTPTClassifier(model, TARGETS, SENSITIVE, TEMPLATE).predict_proba(
        [picture()]
    )


@pytest.mark.parametrize("name", ["CLIP", "CustomTextCLIP TextTransformer", "CoCa"])
def test_bare_model_finds_its_preprocessing_and_tokenizer(name: str) -> None:
    parts = families.seeded(OPEN_CLIP[name])
    torch.testing.assert_close(
        torch.tensor(probabilities(parts[0])),
        torch.tensor(probabilities(parts)),
        rtol=0,
        atol=0,
    )
