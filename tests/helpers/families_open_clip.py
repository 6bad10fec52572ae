"""Tiny random open_clip models: open_clip's own configs, shrunk and built by open_clip itself.

Nothing is downloaded. Configs that name a tokenizer or a text tower on the hub get a tiny one of
the same kind, handed over where open_clip would load the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache, partial
from typing import Any
from unittest.mock import patch

import open_clip
import transformers
from families import (
    DIM,
    HEADS,
    LAYERS,
    SIZE,
    WIDTH,
    WORDS,
    bert_tokenizer,
    unigram_tokenizer,
)
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

# --- tokenizers ------------------------------------------------------------------------------

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece writes it where a word begins


@lru_cache
def tiny_tokenizer(tokenizer_kind: str) -> Any:
    """A tokenizer with the special tokens, their ids and their places of the real one."""
    if tokenizer_kind == "bert":
        return bert_tokenizer()
    if tokenizer_kind == "xlm-roberta":
        return unigram_tokenizer("roberta")
    special, template, pad = {
        "roberta": (["<s>", "<pad>", "</s>", "<unk>"], "<s> $A </s>", "<pad>"),
        "mt5": (["<pad>", "</s>", "<unk>"], "$A </s>", "<pad>"),
        "siglip": (
            ["<pad>", "</s>", "<unk>"],
            "$A </s>",
            "</s>",
        ),  # padded with end of text
        "gemma": (["<pad>", "</s>", "<s>", "<unk>"], "$A </s>", "<pad>"),
        "nllb": (
            ["<s>", "<pad>", "</s>", "<unk>", "eng_Latn"],
            "eng_Latn $A </s>",
            "<pad>",
        ),
    }[tokenizer_kind]
    inner = (
        _byte_level(special) if tokenizer_kind == "roberta" else _sentencepiece(special)
    )
    inner.post_processor = processors.TemplateProcessing(
        single=template,
        special_tokens=[(t, i) for i, t in enumerate(special) if t in template.split()],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="</s>",
        unk_token="<unk>",
        pad_token=pad,
        **({"bos_token": "<s>"} if "<s>" in special else {}),
    )


def _byte_level(special: list[str]) -> Any:
    """As GPT-2 and RoBERTa: bytes, merged into words with their leading space."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([f"{a} {b}" for a in WORDS for b in WORDS[::5]], trainer)
    return inner


def _sentencepiece(special: list[str]) -> Any:
    """As T5 and Gemma: whole words where they are known, else characters."""
    characters = [_SPACE, *(chr(c) for c in range(33, 127))]
    pieces = [
        *((token, 0.0) for token in special),
        *((_SPACE + word, -5.0) for word in WORDS),
        *((character, -10.0) for character in characters),
    ]
    inner = Tokenizer(models.Unigram(pieces, unk_id=special.index("<unk>")))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    return inner


_TOKENIZER_KINDS = {  # part of the name on the hub: kind
    "bert-base-uncased": "bert",
    "xlm-v-base": "xlm-roberta",
    "xlm-roberta": "xlm-roberta",
    "roberta": "roberta",
    "mt5": "mt5",
    "i18n": "siglip",
    "SigLIP2": "gemma",
    "SigLIP": "siglip",
    "nllb": "nllb",
}


def _tokenizer_kind(name: str) -> str:
    return next(
        tokenizer_kind
        for part, tokenizer_kind in _TOKENIZER_KINDS.items()
        if part in name
    )


# --- text towers of transformers ---------------------------------------------------------------


def tiny_text_config(tokenizer_kind: str) -> Any:
    """The config of a text tower that open_clip takes from transformers."""
    tokenizer = tiny_tokenizer(tokenizer_kind)
    ids = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if tokenizer_kind == "mt5":
        return transformers.MT5Config(
            d_model=WIDTH,
            d_kv=WIDTH // HEADS,
            d_ff=2 * WIDTH,
            num_layers=LAYERS,
            num_heads=HEADS,
            **ids,
        )
    if tokenizer_kind == "nllb":
        sizes: dict[str, Any] = {
            "layers": LAYERS,
            "attention_heads": HEADS,
            "ffn_dim": 2 * WIDTH,
        }
        sides = {
            f"{s}_{k}": v for s in ("encoder", "decoder") for k, v in sizes.items()
        }
        return transformers.M2M100Config(
            d_model=WIDTH, max_position_embeddings=128, **sides, **ids
        )
    kinds: Any = {
        "bert": transformers.BertConfig,
        "roberta": transformers.RobertaConfig,
        "xlm-roberta": transformers.XLMRobertaConfig,
    }
    return kinds[tokenizer_kind](
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=128,
        **ids,
    )


# --- models --------------------------------------------------------------------------------------


def shrink(config: Mapping[str, Any]) -> dict[str, Any]:
    """Few layers and small width; everything else as in the config.

    A timm vision tower becomes a small ViT: there is no small timm model of each kind, and what is
    checked is the text side.
    """
    small = deepcopy(dict(config))
    text = small["text_cfg"]
    small["embed_dim"] = WIDTH if text.get("proj_type") == "none" else DIM
    if "hf_model_name" in text:
        text["hf_model_name"] = _tokenizer_kind(text["hf_model_name"])
    else:
        text.update(width=WIDTH, heads=HEADS, layers=LAYERS)
    if "hf_tokenizer_name" in text:
        text["hf_tokenizer_name"] = _tokenizer_kind(text["hf_tokenizer_name"])
        text["vocab_size"] = len(tiny_tokenizer(text["hf_tokenizer_name"]))
    vision = {k: v for k, v in small["vision_cfg"].items() if not k.startswith("timm_")}
    if isinstance(vision.get("layers"), list):  # ResNet
        vision.update(layers=[1, 1, 1, 1], width=8, image_size=SIZE)
    else:
        vision.update(
            layers=1, width=WIDTH, head_width=8, patch_size=8, image_size=SIZE
        )
    if vision.get("attentional_pool"):
        vision.update(attn_pooler_heads=HEADS, attn_pooler_queries=4)
    small["vision_cfg"] = vision
    if "multimodal_cfg" in small:  # CoCa's decoder of captions
        small["multimodal_cfg"].update(
            width=WIDTH, heads=HEADS, layers=1, attn_pooler_heads=HEADS
        )
    return small


def build(config: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """``(model, preprocess, tokenizer)`` of a shrunk config, from open_clip's own functions."""
    with registered(config) as name:
        model, _, preprocess = open_clip.create_model_and_transforms(
            name, pretrained_text=False
        )
        return model, preprocess, open_clip.get_tokenizer(name)


@contextmanager
def registered(config: Mapping[str, Any]) -> Iterator[str]:
    """For the time of the block open_clip knows a shrunk config, by the name that is yielded."""

    def text_config(tokenizer_kind: str, **_: Any) -> Any:
        return tiny_text_config(tokenizer_kind)

    def tokenizer(tokenizer_kind: str, **_: Any) -> Any:
        return deepcopy(tiny_tokenizer(tokenizer_kind))

    with (
        patch.dict(open_clip.factory._MODEL_CONFIGS, {"tiny": deepcopy(dict(config))}),
        patch.object(open_clip.hf_model.AutoConfig, "from_pretrained", text_config),
        patch.object(transformers.AutoTokenizer, "from_pretrained", tokenizer),
    ):
        yield "tiny"


def shrunk(name: str) -> dict[str, Any]:
    """The shrunk config of one of `open_clip.list_models()`."""
    return shrink(open_clip.get_model_config(name))


def _build_named(name: str) -> tuple[Any, Any, Any]:
    return build(shrunk(name))


def _build_bert() -> tuple[Any, Any, Any]:
    """As BiomedCLIP, which is on the hub but not in open_clip's list."""
    config = shrunk("roberta-ViT-B-32")
    config["text_cfg"] = {
        "hf_model_name": "bert",
        "hf_tokenizer_name": "bert",
        "hf_proj_type": "mlp",
        "hf_pooler_type": "cls_last_hidden_state_pooler",
        "context_length": 96,
    }
    return build(config)


OPEN_CLIP: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "CLIP": partial(_build_named, "ViT-B-32"),
    "CLIP with ResNet": partial(_build_named, "RN50-quickgelu"),
    "CLIP worldwide (MetaCLIP 2)": partial(_build_named, "ViT-H-14-worldwide"),
    "CLIPA": partial(_build_named, "ViT-L-14-CLIPA"),
    "CustomTextCLIP TextTransformer": partial(_build_named, "EVA02-B-16"),
    "MobileCLIP-S": partial(_build_named, "MobileCLIP-S1"),
    "SigLIP": partial(_build_named, "ViT-B-16-SigLIP"),
    "SigLIP 2": partial(_build_named, "ViT-B-16-SigLIP2"),
    "HFTextEncoder RoBERTa": partial(_build_named, "roberta-ViT-B-32"),
    "HFTextEncoder BERT (BiomedCLIP)": _build_bert,
    "HFTextEncoder mT5": partial(_build_named, "mt5-base-ViT-B-32"),
    "HFTextEncoder NLLB": partial(_build_named, "nllb-clip-base-siglip"),
    "CoCa": partial(_build_named, "coca_ViT-B-32"),
    "CoCa RoBERTa": partial(_build_named, "coca_roberta-ViT-B-32"),
}
