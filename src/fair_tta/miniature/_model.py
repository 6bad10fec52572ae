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
    model.load_state_dict(_renamed(load_file(folder / "model.safetensors")))
    mean, std = tuple(pixels["image_mean"]), tuple(pixels["image_std"])
    preprocess = open_clip.image_transform(vision["image_size"], False, mean=mean, std=std)
    tokenizer = HFTokenizer(
        str(folder), context_length=text["max_position_embeddings"], clean="whitespace"
    )
    return model.eval(), preprocess, tokenizer


_PLACES = {  # transformers' name in a layer: open_clip's
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}
_ENDS = {
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.pre_layrnorm.weight": "visual.ln_pre.weight",
    "vision_model.pre_layrnorm.bias": "visual.ln_pre.bias",
    "vision_model.post_layernorm.weight": "visual.ln_post.weight",
    "vision_model.post_layernorm.bias": "visual.ln_post.bias",
    "logit_scale": "logit_scale",
}


def _renamed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights under open_clip's names; it keeps q, k and v in one matrix."""
    made = {_ENDS[name]: value for name, value in weights.items() if name in _ENDS}
    made["text_projection"] = weights["text_projection.weight"].T
    made["visual.proj"] = weights["visual_projection.weight"].T
    for name, value in weights.items():
        tower, layers, rest = name.partition("_model.encoder.layers.")
        if not layers:
            continue
        block = ("visual." if tower == "vision" else "") + "transformer.resblocks."
        number, _, place = rest.partition(".")
        place, _, kind = place.rpartition(".")
        if place in _PLACES:
            made[f"{block}{number}.{_PLACES[place]}.{kind}"] = value
        elif place == "self_attn.q_proj":
            parts = [weights[name.replace("q_proj", f"{p}_proj")] for p in "qkv"]
            made[f"{block}{number}.attn.in_proj_{kind}"] = torch.cat(parts)
    return made
