"""Models of the transformers library: CLIP, SigLIP, ALIGN, BLIP and models built like them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor, nn

from fair_tta.errors import ModelError
from fair_tta.models._backend import Tokens
from fair_tta.models._model_lock import eval_mode_lock
from fair_tta.models._stored_text import refuse_missing_scale
from fair_tta.models._text_tower import (
    PROBE,
    TextCall,
    TextTower,
    check_prompt_length,
)
from fair_tta.models._vision_tower import VisionTower
from fair_tta.models._weights import check_weights_present, scale_from_log

_DEFAULT_LENGTH = 512  # tokens, for text towers and tokenizers that state no limit


class TransformersBackend(TextTower, VisionTower):
    """A transformers dual encoder with its image processor and tokenizer.

    It has `get_text_features` and `get_image_features`, or is BLIP's retrieval model, of which the
    image-text-contrastive half is used. A text tower alone, such as `CLIPTextModelWithProjection`,
    is enough for stored features.
    """

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any) -> None:
        if not hasattr(model, "get_text_features") and hasattr(model, "clip"):
            model = model.clip  # of CLIPSegForImageSegmentation
        check_weights_present(model)
        self.model: Any = model
        text_call = _text_call(model)
        self.sees_images = not is_text_tower(model)
        self.image_processor = image_processor
        # Slow processors of transformers 4 take an image that is 3 pixels high for 3 channels.
        preprocess = getattr(image_processor, "preprocess", None)
        self._processor_options = {}
        if "input_data_format" in _parameter_names(preprocess):
            self._processor_options["input_data_format"] = "channels_last"
        self.tokenizer = tokenizer
        get_image_features = getattr(model, "get_image_features", None)
        self._image_arguments = _parameter_names(get_image_features)
        text_model = getattr(model, "text_model", getattr(model, "text_encoder", model))
        self._length = _context_length(model, text_model, tokenizer)
        tower = f"{type(text_model).__name__} of {self.name}"
        super().__init__(model, tower, text_call, self.tokenize(PROBE))

    @property
    def name(self) -> str:
        """Class and origin of the model."""
        origin = getattr(self.model, "name_or_path", "")
        return type(self.model).__name__ + (f" ({origin})" if origin else "")

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights; scalars, such as the temperature, may have another."""
        dtypes = (
            weight.dtype
            for weight in self.model.parameters()
            if weight.ndim and weight.is_floating_point()
        )
        dtype: torch.dtype = next(dtypes, self.model.dtype)
        return dtype

    @property
    def scale(self) -> float:
        """``exp(logit_scale)``; 1 / temperature for ALIGN; 1 for BLIP, which stores none."""
        parameter = getattr(self.model, "logit_scale", None)
        if parameter is not None:
            log_scale = float(parameter.detach())
            # AIMv2 clips it when it is used.
            if hasattr(self.model, "max_log_logit_scale"):
                upper = float(self.model.max_log_logit_scale)
                log_scale = min(max(log_scale, 0.0), upper)
            return scale_from_log(log_scale, self.name)
        # The whole model has a scale, which its text tower does not know.
        if not self.sees_images:
            refuse_missing_scale(self.name)
        temperature = getattr(self.model, "temperature", None)
        return 1.0 if temperature is None else 1.0 / float(temperature.detach())

    @staticmethod
    def _call_tower(model: Any, inputs: dict[str, Tensor]) -> Tensor:
        if _is_blip(model):
            states = model.vision_model(**inputs).last_hidden_state
            features: Tensor = model.vision_proj(states[:, 0])
            return features
        return _as_features(model.get_image_features(**inputs))

    def _project_tokens(self, pixels: Tensor) -> Tensor | None:
        vision = getattr(self.model, "vision_model", None)
        norm = getattr(vision, "post_layernorm", None)
        project = getattr(self.model, "visual_projection", None)
        if hasattr(self.model, "vision_proj"):  # BLIP, whose last state is normalised
            norm = nn.Identity()
            project = self.model.vision_proj
        if vision is None or norm is None or project is None:
            return None
        tokens: Tensor = project(norm(vision(pixel_values=pixels).last_hidden_state))
        return tokens

    def _preprocess(self, images: Sequence[Image]) -> dict[str, Tensor]:
        # Outside the caller's autocast and inference mode.
        with eval_mode_lock():
            inputs = self.image_processor(
                images=list(images), return_tensors="pt", **self._processor_options
            )
        # SigLIP 2 also needs shapes and a mask of its patches; some processors return more.
        accepted = {"pixel_values", *self._image_arguments}
        return {key: tensor for key, tensor in inputs.items() if key in accepted}

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Return whole sentences, padded to the model's full length on the tokenizer's side."""
        try:
            encoded = self.tokenizer(list(texts), padding=False, truncation=False)
            sentences = encoded["input_ids"]
        except Exception as error:  # tokenizers raises bare exceptions
            raise ModelError(
                f"the tokenizer of {self.name} does not take sentences such as {texts[0]!r:.80} "
                f"({error}): it is damaged, get it again."
            ) from error
        for text, sentence in zip(texts, sentences, strict=True):
            check_prompt_length(text, len(sentence), self._length)

        pad = self.tokenizer.pad_token_id or 0
        ids = torch.full((len(sentences), self._length), pad, device="cpu")
        mask = torch.zeros_like(ids, dtype=torch.bool)
        pads_left = getattr(self.tokenizer, "padding_side", "right") == "left"
        for row, sentence in enumerate(sentences):
            length = len(sentence)
            start = self._length - length if pads_left else 0
            ids[row, start : start + length] = torch.tensor(sentence, device="cpu")
            mask[row, start : start + length] = True
        return Tokens(ids.to(self.device), mask.to(self.device))


def _text_call(model: Any) -> TextCall:
    """Return the function that computes the model's own text features."""
    if _is_blip(model):
        return partial(_encode_with_blip, model)
    if is_text_tower(model):
        return partial(_encode_with_tower, model)
    methods = ("get_text_features", "get_image_features")
    if not all(hasattr(model, method) for method in methods):
        raise ModelError(
            f"`model` should be a dual encoder of images and text; {type(model).__name__} "
            "does not have both `get_image_features` and `get_text_features`.",
            argument="model",
        )
    return partial(_encode_with_dual_encoder, model)


def _is_blip(model: Any) -> bool:
    parts = ("text_encoder", "text_proj", "vision_proj")
    return all(hasattr(model, part) for part in parts)


def is_text_tower(model: Any) -> bool:
    """Return whether this is the text tower of a dual encoder, with features of sentences."""
    class_name = type(model).__name__
    is_siglip = "Siglip" in class_name and "TextModel" in class_name
    is_tower = is_siglip or "TextModelWithProjection" in class_name
    return is_tower and not hasattr(model, "get_image_features")


def _mask_argument(model: Any, mask: Tensor | None) -> dict[str, Tensor]:
    """Return the keyword argument of the mask, if the model takes one.

    SigLIP was trained on padded sentences without a mask; its tokenizer may make one anyway.
    """
    is_siglip = "siglip" in str(getattr(model.config, "model_type", ""))
    return {} if mask is None or is_siglip else {"attention_mask": mask.long()}


def _encode_with_dual_encoder(model: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    output = model.get_text_features(input_ids=ids, **_mask_argument(model, mask))
    return _as_features(output)


def _encode_with_tower(model: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    output = model(input_ids=ids, **_mask_argument(model, mask))
    return _as_features(getattr(output, "text_embeds", output))


def _encode_with_blip(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    output = model.text_encoder(input_ids=ids, attention_mask=mask.long())
    features: Tensor = model.text_proj(output.last_hidden_state[:, 0])
    return features


def _as_features(output: Any) -> Tensor:
    """Return features from what transformers returns: a tensor (4.x) or an object (5.x)."""
    features: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    # FLAVA projects every position.
    return features[:, 0] if features.ndim == 3 else features


def _parameter_names(function: Any) -> frozenset[str]:
    if function is None:
        return frozenset()
    return frozenset(inspect.signature(function).parameters)


def _context_length(model: Any, text_model: nn.Module, tokenizer: Any) -> int:
    """Return the longest sentence that both the tokenizer and the table of positions allow."""
    config = getattr(model.config, "text_config", model.config)
    positions = getattr(config, "max_position_embeddings", None)
    tokenizer_limit = tokenizer.model_max_length
    if positions is None:
        return int(min(tokenizer_limit, _DEFAULT_LENGTH))
    # RoBERTa's positions start after the padding index.
    for name, module in text_model.named_modules():
        is_table = "position" in name and isinstance(module, nn.Embedding)
        if is_table and module.padding_idx is not None:
            positions -= module.padding_idx + 1
    return int(min(tokenizer_limit, positions))
