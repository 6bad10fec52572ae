"""Tiny random models of every family, built from configs: seeded, no download."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import open_clip
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WIDTH, LAYERS, HEADS, SIZE, DIM = 32, 2, 4, 32, 16
WORDS = (
    "a an the photo picture of this is on in with person celebrity bird water land cat dog male "
    "female woman man smiling not young old white black asian indian eastern hair dark blond qqq "
    "xzx wearing glasses makeup painting small big red blue it at one two"
).split()


# --- tokenizers ------------------------------------------------------------------------------

IS_FIVE = int(transformers.__version__.partition(".")[0]) >= 5

if (
    not IS_FIVE
):  # its causal mask for float64 is made in float32, where the value does not fit
    from transformers.modeling_attn_mask_utils import AttentionMaskConverter

    _make_mask = AttentionMaskConverter._make_causal_mask

    def _mask_of_dtype(
        shape: Any, dtype: torch.dtype, *remaining: Any, **options: Any
    ) -> Any:
        torch.set_default_dtype(
            torch.float64 if dtype == torch.float64 else torch.float32
        )
        try:
            return _make_mask(shape, dtype, *remaining, **options)
        finally:
            torch.set_default_dtype(torch.float32)

    _converter: Any = AttentionMaskConverter
    _converter._make_causal_mask = staticmethod(_mask_of_dtype)


def _of_files(class_name: str, files: dict[str, str], **options: Any) -> Any:
    """A tokenizer of transformers 4, which reads its vocabulary from files."""
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, "utf-8")
        return getattr(transformers, class_name)(
            *(str(Path(folder) / name) for name in files), **options
        )


@lru_cache
def clip_tokenizer() -> Any:
    """The real CLIP vocabulary, which open_clip ships."""
    simple = open_clip.SimpleTokenizer()
    vocab = dict(simple.encoder)
    vocab["<|startoftext|>"] = vocab.pop("<start_of_text>")
    vocab["<|endoftext|>"] = vocab.pop("<end_of_text>")
    merges: Any = list(simple.bpe_ranks)
    if IS_FIVE:
        return transformers.CLIPTokenizer(
            vocab=vocab, merges=merges, model_max_length=77
        )
    return _of_files(
        "CLIPTokenizerFast",
        {
            "vocab.json": json.dumps(vocab),
            "merges.txt": "\n".join(["#", *map(" ".join, merges)]),
        },
        model_max_length=77,
    )


@lru_cache
def bert_tokenizer() -> Any:
    """WordPiece with whole words, single characters and punctuation."""
    characters = [chr(c) for c in range(33, 127)]
    pieces = [*WORDS, *characters, *("##" + c for c in characters if c.isalnum())]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys([*special, *pieces]))}
    if IS_FIVE:
        return transformers.BertTokenizer(vocab=vocab, model_max_length=512)
    return _of_files(
        "BertTokenizerFast", {"vocab.txt": "\n".join(vocab)}, model_max_length=512
    )


@lru_cache
def unigram_tokenizer(special_tokens: str) -> Any:
    """SentencePiece-like: some whole words, fragments, characters; pieces depend on neighbours."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    space = "\u2581"
    fragments = "th in er al or le ot it mal ir nd ing ou en".split()
    pieces = [
        *((token, 0.0) for token in special),
        *((space + word, -6.0) for word in WORDS[::2]),
        *((space + letter, -7.0) for letter in "abcpw"),
        *((fragment, -8.0) for fragment in fragments),
        *((character, -10.0) for character in (space, *map(chr, range(33, 127)))),
    ]
    inner = Tokenizer(models.Unigram(pieces, unk_id=special.index("<unk>")))
    inner.normalizer = normalizers.NFKC()
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    template = (
        "<s> $A </s>" if special_tokens == "roberta" else "$A </s>"
    )  # SigLIP: end only
    inner.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>" if special_tokens == "roberta" else "</s>",
        padding_side="left" if special_tokens == "siglip-left" else "right",
        model_max_length=512 if special_tokens == "roberta" else 64,
    )


# --- transformers ----------------------------------------------------------------------------


def _text(**options: Any) -> dict[str, Any]:
    return {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "projection_dim": DIM,
        **options,
    }


def _vision(**options: Any) -> dict[str, Any]:
    return _text(image_size=SIZE, patch_size=8, **options)


def _clip_ids(tokenizer: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 77,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _bert(tokenizer: Any, **options: Any) -> dict[str, Any]:
    return _text(
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        **options,
    )


def _images(
    processor_class: Any = transformers.CLIPImageProcessor, **options: Any
) -> Any:
    size = {"height": SIZE, "width": SIZE}
    if processor_class is transformers.CLIPImageProcessor:
        return processor_class(size={"shortest_edge": SIZE}, crop_size=size, **options)
    return processor_class(size=size, **options)


def clip() -> tuple[Any, Any, Any]:
    tokenizer = clip_tokenizer()
    config = transformers.CLIPConfig(
        text_config=_text(**_clip_ids(tokenizer)),
        vision_config=_vision(),
        projection_dim=DIM,
    )
    return transformers.CLIPModel(config), _images(), tokenizer


def clipseg() -> tuple[Any, Any, Any]:
    tokenizer = clip_tokenizer()
    config = transformers.CLIPSegConfig(
        text_config=_text(**_clip_ids(tokenizer)),
        vision_config=_vision(),
        projection_dim=DIM,
    )
    processor = transformers.ViTImageProcessor(size={"height": SIZE, "width": SIZE})
    return transformers.CLIPSegModel(config), processor, tokenizer


def metaclip2() -> tuple[Any, Any, Any]:
    tokenizer = unigram_tokenizer("roberta")
    config = transformers.MetaClip2Config(
        text_config=_text(**_clip_ids(tokenizer)),
        vision_config=_vision(),
        projection_dim=DIM,
    )
    return transformers.MetaClip2Model(config), _images(), tokenizer


def _siglip_text(tokenizer: Any) -> dict[str, Any]:
    return _text(
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        projection_size=WIDTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )


def siglip() -> tuple[Any, Any, Any]:
    tokenizer = unigram_tokenizer("siglip")
    config = transformers.SiglipConfig(
        text_config=_siglip_text(tokenizer), vision_config=_vision()
    )
    processor = transformers.SiglipImageProcessor(size={"height": SIZE, "width": SIZE})
    return transformers.SiglipModel(config), processor, tokenizer


def siglip2() -> tuple[Any, Any, Any]:
    tokenizer = unigram_tokenizer("siglip-left")
    config = transformers.Siglip2Config(
        text_config=_siglip_text(tokenizer),
        vision_config=_text(patch_size=8, num_patches=16),
    )
    processor = transformers.Siglip2ImageProcessor(patch_size=8, max_num_patches=16)
    return transformers.Siglip2Model(config), processor, tokenizer


def altclip() -> tuple[Any, Any, Any]:
    tokenizer = unigram_tokenizer("roberta")
    text = _bert(tokenizer, project_dim=WIDTH, pooler_fn="cls")
    config = transformers.AltCLIPConfig(
        text_config=text, vision_config=_vision(), projection_dim=DIM
    )
    return transformers.AltCLIPModel(config), _images(), tokenizer


def chinese_clip() -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer()
    config = transformers.ChineseCLIPConfig(
        text_config=_bert(tokenizer), vision_config=_vision(), projection_dim=DIM
    )
    processor = transformers.ChineseCLIPImageProcessor(
        size={"height": SIZE, "width": SIZE}, crop_size={"height": SIZE, "width": SIZE}
    )
    return transformers.ChineseCLIPModel(config), processor, tokenizer


def align() -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer()
    vision = {
        "image_size": SIZE,
        "hidden_dim": WIDTH,
        "width_coefficient": 0.2,
        "depth_coefficient": 0.2,
        "num_hidden_layers": 4,
        "in_channels": [8, 8],
        "out_channels": [8, 160],
        "kernel_sizes": [3, 3],
        "strides": [1, 2],
        "expand_ratios": [1, 2],
        "num_block_repeats": [1, 1],
        "depthwise_padding": [],
    }
    config = transformers.AlignConfig(
        text_config=_bert(tokenizer),
        vision_config=vision,
        projection_dim=WIDTH,
        temperature_init_value=0.1,
    )
    processor = transformers.EfficientNetImageProcessor(
        size={"height": SIZE, "width": SIZE}
    )
    return transformers.AlignModel(config), processor, tokenizer


def dual_encoder() -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer()
    config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(
        transformers.ViTConfig(**_vision()),
        transformers.BertConfig(**_bert(tokenizer)),
        projection_dim=DIM,
    )
    processor = transformers.ViTImageProcessor(size={"height": SIZE, "width": SIZE})
    return transformers.VisionTextDualEncoderModel(config), processor, tokenizer


def blip() -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer()
    config = transformers.BlipConfig(
        text_config=_bert(tokenizer, encoder_hidden_size=WIDTH),
        vision_config=_vision(),
        projection_dim=DIM,
        image_text_hidden_size=DIM,
    )
    processor = transformers.BlipImageProcessor(size={"height": SIZE, "width": SIZE})
    return transformers.BlipForImageTextRetrieval(config), processor, tokenizer


TRANSFORMERS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "CLIP": clip,
    "CLIPSeg": clipseg,
    "MetaCLIP 2": metaclip2,
    "SigLIP": siglip,
    "SigLIP 2": siglip2,
    "AltCLIP": altclip,
    "Chinese-CLIP": chinese_clip,
    "ALIGN": align,
    "VisionTextDualEncoder": dual_encoder,
    "BLIP ITC": blip,
}

STRUCTURES = {"CLIP", "SigLIP", "AltCLIP", "BLIP ITC", "CoCa"}


def marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """All but one family of each structure are slow."""
    return () if name in STRUCTURES else (pytest.mark.slow,)


def seeded(build: Callable[[], Any]) -> Any:
    """Build with a fixed seed and weights large enough that features differ visibly.

    It is built once; every caller has a copy, but for tokenizers.
    """
    return tuple(
        part if hasattr(part, "encode") else copy.deepcopy(part)
        for part in _built(build, SIZE)
    )


@lru_cache(maxsize=16)
def _built(build: Callable[[], Any], _: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parts = build()
        model = parts[0]
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim > 1 and "logit" not in name:
                    weight.normal_(
                        std=0.3 if "embed" in name else weight[0].numel() ** -0.5
                    )
    model.eval()
    return parts
