"""Folder of the embedded model, and the same model as open_clip builds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FOLDER = Path(__file__).parent / "weights"
"""An ordinary transformers CLIP directory: weights, tokenizer, processor and model card."""


def load_open_clip(folder: Path = FOLDER) -> tuple[Any, Any, Any]:
    """Return the embedded model as open_clip's ``(model, preprocess, tokenizer)``.

    Its outputs are those of the transformers model.

    Args:
        folder: a transformers directory written by ``python tools/train_miniature.py``.
    """
    import open_clip
    from open_clip.tokenizer import HFTokenizer
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    pixels = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
    vision = config["vision_config"]
    text = config["text_config"]
    model = open_clip.CLIP(
        embed_dim=config["projection_dim"],
        vision_cfg={
            "image_size": vision["image_size"],
            "patch_size": vision["patch_size"],
            "width": vision["hidden_size"],
            "layers": vision["num_hidden_layers"],
            "head_width": vision["hidden_size"] // vision["num_attention_heads"],
        },
        text_cfg={
            "context_length": text["max_position_embeddings"],
            "vocab_size": text["vocab_size"],
            "width": text["hidden_size"],
            "layers": text["num_hidden_layers"],
            "heads": text["num_attention_heads"],
        },
    )
    model.load_state_dict(_to_open_clip_names(load_file(folder / "model.safetensors")))
    preprocess = open_clip.image_transform(
        vision["image_size"],
        is_train=False,
        mean=tuple(pixels["image_mean"]),
        std=tuple(pixels["image_std"]),
    )
    tokenizer = HFTokenizer(
        str(folder), context_length=text["max_position_embeddings"], clean="whitespace"
    )
    return model.eval(), preprocess, tokenizer


# Parts of the names of weights in transformers and in open_clip, replaced in this order
_OPEN_CLIP_NAMES = {
    "vision_model.": "visual.",
    "text_model.": "",
    "encoder.layers": "transformer.resblocks",
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "final_layer_norm": "ln_final",
    "pre_layrnorm": "ln_pre",
    "post_layernorm": "ln_post",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.": "attn.",
    "embeddings.position_embedding.weight": "positional_embedding",
    "embeddings.patch_embedding": "conv1",
    "embeddings.": "",
}


def _to_open_clip_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under open_clip's names and in its shapes."""
    renamed: dict[str, Tensor] = {}
    for name, weight in weights.items():
        for part, open_clip_part in _OPEN_CLIP_NAMES.items():
            name = name.replace(part, open_clip_part)
        renamed[name] = weight

    # open_clip keeps the projections of queries, keys and values in one matrix
    for query_name in [name for name in renamed if "q_proj" in name]:
        projections = []
        for letter in "qkv":
            name = query_name.replace("q_proj", f"{letter}_proj")
            projections.append(renamed.pop(name))
        joint_name = query_name.replace("q_proj.", "in_proj_")
        renamed[joint_name] = torch.cat(projections)

    # Linear layers without a bias are plain matrices there, to multiply from the right
    renamed["text_projection"] = renamed.pop("text_projection.weight").T
    renamed["visual.proj"] = renamed.pop("visual_projection.weight").T
    return renamed
