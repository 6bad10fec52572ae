"""Models of the transformers library: CLIP, SigLIP, ALIGN, BLIP and whoever looks like them."""

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
from fair_tta.models._model_lock import (
    check_weights_present,
    eval_mode_lock,
    scale_from_log,
)
from fair_tta.models._stored_text import refuse_missing_scale
from fair_tta.models._towers import (
    PROBE,
    TextCall,
    TextTower,
    VisionTower,
    check_prompt_length,
)

_NO_LIMIT = 512  # for text towers and tokenizers that name no longest sentence


class TransformersBackend(TextTower, VisionTower):
    """A transformers dual encoder with its image processor and tokenizer.

    It has `get_text_features` and `get_image_features`, or is BLIP's retrieval model, of which the
    image-text-contrastive half is used. A text tower alone, such as `CLIPTextModelWithProjection`,
    will do for stored features.
    """

    def __init__(self, model: Any, image_processor: Any, tokenizer: Any) -> None:
        if not hasattr(model, "get_text_features") and hasattr(model, "clip"):
            model = model.clip  # CLIPSegForImageSegmentation carries its CLIP along
        check_weights_present(model)
        self.model: Any = model
        text_call = _text_call(model)
        self.sees_images = not is_text_tower(model)
        self.image_processor = image_processor
        # slow processors of transformers 4 take an image that is 3 pixels high for 3 channels
        guesses = "input_data_format" in _parameters(
            getattr(image_processor, "preprocess", None)
        )
        self._image_options = {"input_data_format": "channels_last"} if guesses else {}
        self.tokenizer = tokenizer
        self._image_arguments = _parameters(getattr(model, "get_image_features", None))
        text = getattr(model, "text_model", getattr(model, "text_encoder", model))
        self._length = _context_length(model, text, tokenizer)
        name = f"{type(text).__name__} of {self.name}"
        super().__init__(model, name, text_call, self.tokenize(PROBE))

    @property
    def name(self) -> str:
        """Class and origin of the model."""
        origin = getattr(self.model, "name_or_path", "")
        return type(self.model).__name__ + (f" ({origin})" if origin else "")

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights; single numbers, such as the temperature, may have another."""
        kinds = (
            p.dtype for p in self.model.parameters() if p.ndim and p.is_floating_point()
        )
        dtype: torch.dtype = next(kinds, self.model.dtype)
        return dtype

    @property
    def scale(self) -> float:
        """``exp(logit_scale)``; 1 / temperature for ALIGN; 1 for BLIP, which stores none."""
        log_scale = getattr(self.model, "logit_scale", None)
        if log_scale is not None:
            power = float(log_scale.detach())
            if hasattr(
                self.model, "max_log_logit_scale"
            ):  # AIMv2 clips when it uses it
                power = min(max(power, 0.0), float(self.model.max_log_logit_scale))
            return scale_from_log(power, self.name)
        if not self.sees_images:
            refuse_missing_scale(self.name)
        temperature = getattr(self.model, "temperature", None)
        return 1.0 if temperature is None else 1.0 / float(temperature.detach())

    @staticmethod
    def _features(model: Any, inputs: dict[str, Tensor]) -> Tensor:
        if _is_blip(model):
            features: Tensor = model.vision_proj(
                model.vision_model(**inputs).last_hidden_state[:, 0]
            )
            return features
        return _pooled(model.get_image_features(**inputs))

    def _project_tokens(self, pixels: Tensor) -> Tensor | None:
        vision = getattr(self.model, "vision_model", None)
        norm = getattr(vision, "post_layernorm", None)
        project = getattr(self.model, "visual_projection", None)
        if hasattr(self.model, "vision_proj"):  # BLIP, whose last state is normalised
            norm, project = nn.Identity(), self.model.vision_proj
        if vision is None or norm is None or project is None:
            return None
        tokens: Tensor = project(norm(vision(pixel_values=pixels).last_hidden_state))
        return tokens

    def _inputs(self, images: Sequence[Image]) -> dict[str, Tensor]:
        with eval_mode_lock():
            inputs = self.image_processor(
                images=list(images), return_tensors="pt", **self._image_options
            )
        return {
            key: value
            for key, value in inputs.items()
            if key == "pixel_values" or key in self._image_arguments
        }

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Whole sentences, padded to the model's full length on the tokenizer's side."""
        try:
            rows = self.tokenizer(list(texts), padding=False, truncation=False)[
                "input_ids"
            ]
        except Exception as error:  # tokenizers raises bare exceptions
            raise ModelError(
                f"the tokenizer of {self.name} does not take sentences such as {texts[0]!r:.80} "
                f"({error}): it is damaged, get it again."
            ) from error
        for text, row in zip(texts, rows, strict=True):
            check_prompt_length(text, len(row), self._length)
        pad = self.tokenizer.pad_token_id
        ids = torch.full(
            (len(rows), self._length), 0 if pad is None else pad, device="cpu"
        )
        mask = torch.zeros_like(ids, dtype=torch.bool)
        left = getattr(self.tokenizer, "padding_side", "right") == "left"
        for i, row in enumerate(rows):
            columns = (
                slice(self._length - len(row), None) if left else slice(0, len(row))
            )
            ids[i, columns] = torch.tensor(row, device="cpu")
            mask[i, columns] = True
        return Tokens(ids.to(self.device), mask.to(self.device))


def _text_call(model: Any) -> TextCall:
    """The model's own text features."""
    if _is_blip(model):
        return partial(_blip_text, model)
    if is_text_tower(model):
        return partial(_tower_text, model)
    if not all(
        hasattr(model, name) for name in ("get_text_features", "get_image_features")
    ):
        raise ModelError(
            f"`model` should be a dual encoder of images and text; {type(model).__name__} "
            "does not have both `get_image_features` and `get_text_features`.",
            argument="model",
        )
    return partial(_text, model)


def _is_blip(model: Any) -> bool:
    return all(
        hasattr(model, name) for name in ("text_encoder", "text_proj", "vision_proj")
    )


def is_text_tower(model: Any) -> bool:
    """Whether this is the text tower of a dual encoder, which gives features of sentences."""
    kind = type(model).__name__
    is_tower = "TextModelWithProjection" in kind or (
        "Siglip" in kind and "TextModel" in kind
    )
    return is_tower and not hasattr(model, "get_image_features")


def _masks(model: Any, mask: Tensor | None) -> dict[str, Tensor]:
    """SigLIP was trained on padded sentences without a mask; its tokenizer may make one anyway."""
    uses_mask = "siglip" not in str(getattr(model.config, "model_type", ""))
    return {"attention_mask": mask.long()} if uses_mask and mask is not None else {}


def _text(model: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    return _pooled(model.get_text_features(input_ids=ids, **_masks(model, mask)))


def _tower_text(model: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    output = model(input_ids=ids, **_masks(model, mask))
    return _pooled(getattr(output, "text_embeds", output))


def _blip_text(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    hidden = model.text_encoder(
        input_ids=ids, attention_mask=mask.long()
    ).last_hidden_state
    features: Tensor = model.text_proj(hidden[:, 0])
    return features


def _pooled(output: Any) -> Tensor:
    """Features from what transformers returns: a tensor (4.x) or an object (5.x)."""
    features: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return (
        features[:, 0] if features.ndim == 3 else features
    )  # FLAVA projects every position


def _parameters(function: Any) -> frozenset[str]:
    return (
        frozenset()
        if function is None
        else frozenset(inspect.signature(function).parameters)
    )


def _context_length(model: Any, text: nn.Module, tokenizer: Any) -> int:
    """The longest sentence that both the tokenizer and the table of positions admit."""
    config = getattr(model.config, "text_config", model.config)
    positions = getattr(config, "max_position_embeddings", None)
    longest = tokenizer.model_max_length
    if positions is None:
        return int(min(longest, _NO_LIMIT))
    for (
        name,
        module,
    ) in text.named_modules():  # RoBERTa's positions start after the padding index
        if "position" in name and isinstance(module, nn.Embedding):
            positions -= 0 if module.padding_idx is None else module.padding_idx + 1
    return int(min(longest, positions))
