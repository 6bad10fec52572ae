"""Tokenised prompts that know where the shared context sits in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.backends.lazy import made_once
from fair_tta.backends.protocol import Tokens
from fair_tta.backends.sharing import Tree


@dataclass(frozen=True, eq=False)
class PromptSet:
    """Tokenised prompts that know where the shared context sits in them.

    Attributes:
        texts: the sentences.
        tokens: ids and mask, ``[prompts, length]``.
        slots: ``[prompts, length]``, which vector of the context stands here, -1 for fixed tokens.
    """

    texts: tuple[str, ...]
    tokens: Tokens
    slots: Tensor

    def __len__(self) -> int:
        return len(self.texts)

    @property
    @made_once
    def tree(self) -> Tree:
        """What the prompts have in common at their beginnings, under any context."""
        return Tree.of(self.tokens, self.slots)

    @property
    @made_once
    def _parts(self) -> dict[int, list[PromptSet]]:
        return {}

    def parts(self, size: int) -> list[PromptSet]:
        """The prompts in sets of at most so many, always the same ones."""
        if size >= len(self):
            return [self]
        if size not in self._parts:
            self._parts[size] = [self[i : i + size] for i in range(0, len(self), size)]
        return self._parts[size]

    def __getitem__(self, rows: slice) -> PromptSet:
        tokens = Tokens(self.tokens.ids[rows], self.tokens.mask[rows])
        return PromptSet(self.texts[rows], tokens, self.slots[rows])

    def trim(self, tokens: Tokens) -> PromptSet:
        """The same prompts with fewer columns, as in `tokens`."""
        return PromptSet(self.texts, tokens, self.slots[:, : tokens.ids.shape[1]])

    def shift(self, offset: int | Tensor) -> PromptSet:
        """The same prompts with vectors `offset` places further on, one offset or one per prompt.

        So several copies of the context can lie one after another in one tensor.
        """
        by = torch.as_tensor(offset, device=self.slots.device).reshape(-1, 1)
        return PromptSet(self.texts, self.tokens, torch.where(self.slots < 0, -1, self.slots + by))

    def splice(self, embeddings: Tensor, context: Tensor) -> Tensor:
        """Put context vectors into token embeddings.

        Args:
            embeddings: ``[prompts, length, width]``, those of `tokens`.
            context: ``[..., vectors, width]``.

        Returns:
            ``[..., prompts, length, width]``, differentiable in both.
        """
        vectors = context[..., self.slots.clamp(min=0), :]
        return torch.where((self.slots >= 0).unsqueeze(-1), vectors, embeddings)


def concatenate(sets: Sequence[PromptSet]) -> PromptSet:
    """One set of all prompts, in order."""
    return PromptSet(
        tuple(text for prompts in sets for text in prompts.texts),
        Tokens(
            torch.cat([prompts.tokens.ids for prompts in sets]),
            torch.cat([prompts.tokens.mask for prompts in sets]),
        ),
        torch.cat([prompts.slots for prompts in sets]),
    )
