"""What the rest of the library needs from a CLIP model, as a protocol."""

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
        """All sentences over and over again."""
        return Tokens(self.ids.repeat(times, 1), self.mask.repeat(times, 1))

    def row(self, index: int) -> list[int]:
        """The ids of one sentence without padding."""
        ids: list[int] = self.ids[index][self.mask[index]].tolist()
        return ids


@runtime_checkable
class Backend(Protocol):
    """A dual encoder whose prompts can be tuned. Satisfy it to use a user-defined model.

    Features need not be normalised and may have any floating dtype.
    """

    @property
    def name(self) -> str:
        """What to call the model in messages."""

    @property
    def device(self) -> torch.device:
        """Where features come out and where tokens are expected."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of token embeddings."""

    @property
    def scale(self) -> float:
        """Inverse temperature: logits are ``scale * cosine``."""

    def encode_images(self, images: Sequence[Image]) -> Tensor:
        """Preprocess RGB images as the model wants them and encode them: ``[images, dim]``."""

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Tokenise whole sentences. Raises `PromptError` if one is too long for the model."""

    def embed_tokens(self, ids: Tensor) -> Tensor:
        """Token embeddings, before positions are added: ``[..., length] -> [..., length, width]``.

        Raises `TowerError` if the text tower does not let embeddings be replaced.
        """

    def encode_text(self, tokens: Tokens) -> Tensor:
        """The model's own text features: ``[prompts, dim]``."""

    def encode_prompts(self, tokens: Tokens, embeddings: Tensor) -> Tensor:
        """Text features when `embeddings` stand in for those of `tokens.ids`: ``[prompts, dim]``.

        Differentiable in `embeddings`, which has the shape ``[prompts, length, width]``.
        """
