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
from fair_tta.models._model_lock import (
    CallModule,
    check_weights_present,
    eval_mode_lock,
    scale_from_log,
)
from fair_tta.models._stored_text import refuse_missing_scale
from fair_tta.models._towers import PROBE, TextTower, VisionTower, check_prompt_length


class OpenClipBackend(TextTower, VisionTower):
    """An open_clip model (`encode_image`, `encode_text`) with its own transform and tokenizer.

    A text tower alone, such as ``model.text``, will do for stored features.
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
        padding, pads_with_end = _padding(tokenizer)
        self._has_padding_token = padding is not None
        self._pad = padding or 0  # open_clip's own tokenizer pads with 0
        appends_cls = (
            getattr(getattr(model, "text", model), "cls_emb", None) is not None
        )
        # CoCa's mask lets its appended class token see one position of padding; where padding and
        # end of text are the same token, the first of them is the end.
        slack = int(appends_cls or pads_with_end)
        probe, call = self.tokenize(PROBE), partial(_text, CallModule(model, _own_text))
        super().__init__(model, f"of {self.name}", call, probe, slack)

    @property
    def name(self) -> str:
        """Class of the model and of its text tower."""
        tower = getattr(self.model, "text", None)
        inside = "" if tower is None else f" with {type(tower).__name__}"
        return f"open_clip {type(self.model).__name__}{inside}"

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the vision tower's weights, in which images are passed."""
        weights: Any = list(getattr(self.model, "visual", self.model).parameters())
        dtype: torch.dtype = next((w for w in weights if w.ndim == 4), weights[0]).dtype
        return dtype

    @property
    def scale(self) -> float:
        """``exp(logit_scale)``."""
        log_scale: Any = getattr(self.model, "logit_scale", None)
        if log_scale is None:
            refuse_missing_scale(self.name)
        return scale_from_log(log_scale.detach(), self.name)

    def _inputs(self, images: Sequence[Image]) -> dict[str, Tensor]:
        with eval_mode_lock():
            return {
                "pixel_values": torch.stack(
                    [self.image_processor(one) for one in images]
                )
            }

    @staticmethod
    def _features(model: Any, inputs: dict[str, Tensor]) -> Tensor:
        features: Tensor = model.encode_image(inputs["pixel_values"], normalize=False)
        return features

    def _project_tokens(self, pixels: Tensor) -> Tensor | None:
        visual = copy.copy(self.model.visual)  # whose modules are the model's
        if getattr(visual, "pool_type", None) is None or visual.attn_pool is not None:
            return None
        visual.pool_type, visual.output_tokens = "none", False
        tokens: Tensor = visual(pixels)
        return tokens

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Whole sentences at the model's full length."""
        ids = self.tokenizer(list(texts))
        if not isinstance(ids, Tensor):
            raise ModelError(
                "the tokenizer should turn sentences into a tensor of ids, as those of "
                f"open_clip.get_tokenizer(name) do (got {type(ids).__name__})."
            )
        mask = ids != self._pad
        if not self._has_padding_token:  # 0 is also the "!" of "!=": close the gaps
            mask = (mask.cumsum(1) > 0) & (mask.flip(1).cumsum(1).flip(1) > 0)
        length = ids.shape[1]
        for i in (
            mask[:, -2:].any(1).nonzero().flatten().tolist()
        ):  # nearly full: truncated?
            check_prompt_length(texts[i], self._true_length(texts[i], length), length)
        return Tokens(ids.to(self.device), mask.to(self.device))

    def _true_length(self, text: str, length: int) -> int:
        """How many tokens a sentence has when the tokenizer is given more room.

        What is lost for want of room is counted, since end of text may not show among the real
        tokens: SigLIP pads with it, CLIPA strips it.
        """
        if not self._takes_length:
            return length + int(self.tokenizer([text])[0, -1] != self._pad)
        kept, real = (
            int((self.tokenizer([text], context_length=room) != self._pad).sum())
            for room in (length, 8 * length)
        )
        return length + real - kept


def _own_text(model: Any, ids: Tensor) -> Tensor:
    if not hasattr(model, "encode_text"):
        found = model(ids)  # a text tower alone; CoCa's gives features of tokens too
        return cast("Tensor", found[0] if isinstance(found, tuple) else found)
    features: Tensor = model.encode_text(ids, normalize=False)
    return features


def _text(module: CallModule, ids: Tensor, _mask: Tensor | None) -> Tensor:
    """`encode_text`, with the tower's tables shortened for the call if the ids are shorter."""
    tables = _short_tables(module.model, ids.shape[1])
    features: Tensor = functional_call(module, tables, (ids,), tie_weights=False)
    return features


def _short_tables(model: Any, length: int) -> dict[str, Tensor]:
    """The first rows of the table of positions and of the attention mask, if they are longer.

    An appended class token keeps its own position, the last one.
    """
    text = getattr(
        model, "text", model
    )  # CLIP keeps the tables itself, all others on `text`
    rows = getattr(text, "positional_embedding", None)
    if not isinstance(rows, Tensor):
        return {}  # a tower of transformers, which takes any length
    appended = 0 if getattr(text, "cls_emb", None) is None else 1
    if length + appended >= rows.shape[0]:
        return {}
    prefix = "model." if text is model else "model.text."
    short = torch.cat([rows[:length], rows[rows.shape[0] - appended :]])
    tables = {prefix + "positional_embedding": short}
    mask = getattr(text, "attn_mask", None)
    if mask is not None:
        tables[prefix + "attn_mask"] = mask[: len(short), : len(short)]
    return tables


def _padding(tokenizer: Any) -> tuple[int | None, bool]:
    """Id of the padding token if there is one, and whether it is also the end of text."""
    inner = getattr(
        tokenizer, "tokenizer", tokenizer
    )  # open_clip wraps those of transformers
    pad = getattr(inner, "pad_token_id", None)
    return pad, pad is not None and pad == getattr(inner, "eos_token_id", None)
