"""Models of the open_clip library: CLIP, CustomTextCLIP with any text tower, CoCa."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from PIL.Image import Image
from torch import Tensor
from torch.func import functional_call

from fair_tta.errors import ModelError
from fair_tta.models._backend import Tokens
from fair_tta.models._model_lock import eval_mode_lock
from fair_tta.models._stored_text import refuse_missing_scale
from fair_tta.models._text_tower import PROBE, TextTower, check_prompt_length
from fair_tta.models._twin import CallModule
from fair_tta.models._vision_tower import VisionTower
from fair_tta.models._weights import check_weights_present, scale_from_log

# Room in which a sentence is tokenised to count its tokens, in multiples of the model's length.
_ROOM_FACTOR = 8


class OpenClipBackend(TextTower, VisionTower):
    """An open_clip model (`encode_image`, `encode_text`) with its own transform and tokenizer.

    A text tower alone, such as ``model.text``, is enough for stored features.
    """

    def __init__(
        self,
        model: Any,
        preprocess: Callable[[Image], Tensor],
        tokenizer: Callable[..., Tensor],
    ) -> None:
        check_weights_present(model)
        self.model: Any = model
        self.sees_images = hasattr(model, "encode_image")
        self.image_processor = preprocess
        self.tokenizer = tokenizer
        self._takes_length = "context_length" in inspect.signature(tokenizer).parameters
        padding_id, pads_with_end = _padding(tokenizer)
        self._has_padding_token = padding_id is not None
        self._padding_id = padding_id or 0  # open_clip's own tokenizer pads with 0
        # CoCa's mask lets its appended class token see one position of padding; where padding and
        # end of text are the same token, the first of them is the end.
        text_model = getattr(model, "text", model)
        appends_cls = getattr(text_model, "cls_emb", None) is not None
        slack = int(appends_cls or pads_with_end)
        call = partial(_encode_shortened, CallModule(model, _encode_ids))
        super().__init__(model, f"of {self.name}", call, self.tokenize(PROBE), slack)

    @property
    def name(self) -> str:
        """Class of the model and of its text tower."""
        name = f"open_clip {type(self.model).__name__}"
        text_model = getattr(self.model, "text", None)
        if text_model is None:
            return name
        return f"{name} with {type(text_model).__name__}"

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the vision tower's weights, in which images are passed."""
        weights: Any = list(getattr(self.model, "visual", self.model).parameters())
        # The first convolution takes the pixels.
        convolutions = [weight for weight in weights if weight.ndim == 4]
        dtype: torch.dtype = (convolutions or weights)[0].dtype
        return dtype

    @property
    def scale(self) -> float:
        """``exp(logit_scale)``."""
        log_scale: Any = getattr(self.model, "logit_scale", None)
        if log_scale is None:
            refuse_missing_scale(self.name)
        return scale_from_log(log_scale.detach(), self.name)

    def _preprocess(self, images: Sequence[Image]) -> dict[str, Tensor]:
        # Outside the caller's autocast and inference mode.
        with eval_mode_lock():
            pixels = [self.image_processor(image) for image in images]
            return {"pixel_values": torch.stack(pixels)}

    @staticmethod
    def _call_tower(model: Any, inputs: dict[str, Tensor]) -> Tensor:
        features: Tensor = model.encode_image(inputs["pixel_values"], normalize=False)
        return features

    def _project_tokens(self, pixels: Tensor) -> Tensor | None:
        # A shallow copy has other settings and the same modules.
        visual = copy.copy(self.model.visual)
        if getattr(visual, "pool_type", None) is None or visual.attn_pool is not None:
            return None
        visual.pool_type = "none"
        visual.output_tokens = False
        tokens: Tensor = visual(pixels)
        return tokens

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Return whole sentences at the model's full length."""
        ids = self.tokenizer(list(texts))
        if not isinstance(ids, Tensor):
            raise ModelError(
                "the tokenizer should turn sentences into a tensor of ids, as those of "
                f"open_clip.get_tokenizer(name) do (got {type(ids).__name__})."
            )
        mask = ids != self._padding_id
        # Without a padding token, 0 is also the "!" of "!=": all between real tokens is real.
        if not self._has_padding_token:
            has_real_before = mask.cumsum(1) > 0
            has_real_after = mask.flip(1).cumsum(1).flip(1) > 0
            mask = has_real_before & has_real_after

        # A row that is nearly full may have been truncated.
        length = ids.shape[1]
        nearly_full_rows = mask[:, -2:].any(1).nonzero().flatten().tolist()
        for row in nearly_full_rows:
            text = texts[row]
            check_prompt_length(text, self._true_length(text, length), length)
        return Tokens(ids.to(self.device), mask.to(self.device))

    def _true_length(self, text: str, length: int) -> int:
        """Return how many tokens a sentence has when it is not truncated.

        The tokens lost by truncation are counted, since end of text may not show among the real
        tokens: SigLIP pads with it, CLIPA strips it.
        """
        if not self._takes_length:
            is_full = self.tokenizer([text])[0, -1] != self._padding_id
            return length + int(is_full)
        truncated = self._count_real_tokens(text, length)
        untruncated = self._count_real_tokens(text, _ROOM_FACTOR * length)
        return length + untruncated - truncated

    def _count_real_tokens(self, text: str, length: int) -> int:
        ids = self.tokenizer([text], context_length=length)
        return int((ids != self._padding_id).sum())


def _encode_ids(model: Any, ids: Tensor) -> Tensor:
    if not hasattr(model, "encode_text"):
        # A text tower alone; CoCa's returns features of tokens too.
        output = model(ids)
        return cast("Tensor", output[0] if isinstance(output, tuple) else output)
    features: Tensor = model.encode_text(ids, normalize=False)
    return features


def _encode_shortened(module: CallModule, ids: Tensor, _mask: Tensor | None) -> Tensor:
    """Return text features, with the tower's tables as short as the ids during the call."""
    tables = _short_tables(module.model, ids.shape[1])
    features: Tensor = functional_call(module, tables, (ids,), tie_weights=False)
    return features


def _short_tables(model: Any, length: int) -> dict[str, Tensor]:
    """Return the beginnings of the table of positions and of the attention mask, by name.

    Empty if they are not longer. An appended class token keeps its own position, the last one.
    """
    # CLIP has the tables itself, all others in `text`.
    text_model = getattr(model, "text", model)
    positions = getattr(text_model, "positional_embedding", None)
    if not isinstance(positions, Tensor):
        return {}  # a tower of transformers, which takes any length
    appended = 0 if getattr(text_model, "cls_emb", None) is None else 1
    if length + appended >= positions.shape[0]:
        return {}
    prefix = "model." if text_model is model else "model.text."
    last = positions[positions.shape[0] - appended :]
    short = torch.cat([positions[:length], last])
    tables = {prefix + "positional_embedding": short}
    mask = getattr(text_model, "attn_mask", None)
    if mask is not None:
        tables[prefix + "attn_mask"] = mask[: len(short), : len(short)]
    return tables


def _padding(tokenizer: Any) -> tuple[int | None, bool]:
    """Return the id of the padding token, if any, and whether it also ends the text."""
    # open_clip wraps tokenizers of transformers.
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    padding_id = getattr(inner, "pad_token_id", None)
    end_id = getattr(inner, "eos_token_id", None)
    return padding_id, padding_id is not None and padding_id == end_id
