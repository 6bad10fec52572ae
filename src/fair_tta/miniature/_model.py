"""Where the embedded model lies, and the same model as open_clip builds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FOLDER = Path(__file__).parent / "weights"
"""An ordinary transformers CLIP directory: weights, tokenizer, processor and model card."""


def load_open_clip(folder: Path = FOLDER) -> tuple[Any, Any, Any]:
    """The embedded model as open_clip's ``(model, preprocess, tokenizer)``, with equal outputs.

    Args:
        folder: a transformers directory written by ``python tools/train_miniature.py``.
    """
    import open_clip
    from open_clip.tokenizer import HFTokenizer
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    pixels = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
    vision, text = config["vision_config"], config["text_config"]
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
    mean, std = tuple(pixels["image_mean"]), tuple(pixels["image_std"])
    preprocess = open_clip.image_transform(
        vision["image_size"], False, mean=mean, std=std
    )
    tokenizer = HFTokenizer(
        str(folder), context_length=text["max_position_embeddings"], clean="whitespace"
    )
    return model.eval(), preprocess, tokenizer


_OPEN_CLIP_NAMES = {  # parts of names of weights: transformers' and open_clip's
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
    """The weights under open_clip's names; it keeps q, k and v in one matrix."""
    made: dict[str, Tensor] = {}
    for name, value in weights.items():
        for theirs, other in _OPEN_CLIP_NAMES.items():
            name = name.replace(theirs, other)
        made[name] = value
    for name in [name for name in made if "q_proj" in name]:
        parts = [made.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        made[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
    made["text_projection"] = made.pop("text_projection.weight").T
    made["visual.proj"] = made.pop("visual_projection.weight").T
    return made
