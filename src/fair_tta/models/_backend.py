"""The protocol of CLIP models that the rest of the library relies on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from PIL.Image import Image
from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """Tokenised sentences.

    Attributes:
        ids: ``[prompts, length]`` token ids, padded as the model wants them.
        mask: ``[prompts, length]`` True at real tokens (begin and end included), False at padding.
    """

    ids: Tensor
    mask: Tensor

    def repeat(self, times: int) -> Tokens:
        """Return all sentences, one copy of the list after another."""
        return Tokens(self.ids.repeat(times, 1), self.mask.repeat(times, 1))

    def row(self, index: int) -> list[int]:
        """Return the ids of one sentence without padding."""
        ids: list[int] = self.ids[index][self.mask[index]].tolist()
        return ids


@runtime_checkable
class Backend(Protocol):
    """A dual encoder whose prompts can be tuned. Satisfy it to use a user-defined model.

    Features need not be normalised and may have any floating dtype.
    """

    @property
    def name(self) -> str:
        """Name of the model in messages."""

    @property
    def device(self) -> torch.device:
        """Device of features and tokens."""

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of token embeddings."""

    @property
    def scale(self) -> float:
        """Inverse temperature: logits are ``scale * cosine``."""

    def encode_images(self, images: Sequence[Image]) -> Tensor:
        """Preprocess RGB images as the model wants them and encode them: ``[images, dim]``."""

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Tokenise whole sentences. Raises `PromptError` if one is too long for the model."""

    def embed_tokens(self, ids: Tensor) -> Tensor:
        """Return token embeddings before positions: ``[..., length] -> [..., length, width]``.

        Raises `TowerError` if the text tower does not let embeddings be replaced.
        """

    def encode_text(self, tokens: Tokens) -> Tensor:
        """Return the model's own text features: ``[prompts, dim]``."""

    def encode_prompts(self, tokens: Tokens, embeddings: Tensor) -> Tensor:
        """Return features ``[prompts, dim]`` of `embeddings` instead of those of `tokens.ids`.

        Differentiable in `embeddings`, which has the shape ``[prompts, length, width]``.
        """
