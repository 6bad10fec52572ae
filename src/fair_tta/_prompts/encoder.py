"""Features of prompts: as they are, and under other contexts, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fair_tta._cache import Cache, size_of
from fair_tta._linalg import unit
from fair_tta._models.borrow import borrowed, made_once
from fair_tta._models.prefix_sharing import Tree
from fair_tta._models.protocol import Backend, Tokens

T = TypeVar("T")


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
        """The prompts in sets of at most `size`, always the same ones."""
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


TOKENS_AT_ONCE = 1024
"""How many tokens run through the text tower at once when a gradient is wanted: bounds memory."""

_TOGETHER = 64  # prompts that may share their beginnings: each one more costs some attention


@dataclass(frozen=True, init=False, eq=False, repr=False)
class PromptEncoder:
    """The text tower of a model with its current weights; a `Task` is one.

    Attributes:
        backend: the model.
        cache: where token embeddings and what `remember` makes are kept.
    """

    backend: Backend
    cache: Cache
    _owner: object

    def remember(
        self, key: Hashable, make: Callable[[], T], size: Callable[[T], int] = size_of
    ) -> T:
        """Make something once, as long as the cache has room for it.

        Args:
            key: identifies it, and the images it depends on if there are any.
            make: makes it.
            size: its bytes; by default those of its tensors.
        """
        return self.cache.recall(self._owner, key, make, size)

    def own_features(self, prompts: PromptSet) -> Tensor:
        """Unit features of prompts as they are, from the model's own call: ``[prompts, dim]``."""
        rows = max(1, 8 * TOKENS_AT_ONCE // prompts.tokens.ids.shape[1])
        with borrowed(self.backend):
            parts = [self.backend.encode_text(part.tokens) for part in prompts.parts(rows)]
            return unit(torch.cat(parts))

    def encode(self, prompts: PromptSet, context: Tensor) -> Tensor:
        """Unit features of prompts under another context, differentiable in it.

        Args:
            prompts: the prompts.
            context: ``[..., vectors, width]``; leading dimensions are separate episodes.

        Returns:
            ``[..., prompts, dim]``
        """
        if len(prompts) > _TOGETHER:
            parts = [self.encode(part, context) for part in prompts.parts(_TOGETHER)]
            return torch.cat(parts, dim=-2)
        short, embeddings = self._prepared(prompts)
        spliced = short.splice(embeddings, context)
        every = spliced.reshape(-1, *spliced.shape[-3:])
        encode = getattr(self.backend, "encode_episodes", None)
        if encode is not None:
            features: Tensor = encode(short.tokens, short.tree, every)
        else:
            tokens = short.tokens.repeat(len(every))
            features = self.backend.encode_prompts(tokens, every.flatten(0, 1))
        return unit(features).reshape(*spliced.shape[:-2], -1)

    def encode_many(self, prompts: PromptSet, context: Tensor) -> Tensor:
        """`encode` without gradient, a bounded number of tokens at a time.

        Args:
            prompts: the prompts.
            context: ``[episodes, vectors, width]``

        Returns:
            ``[episodes, prompts, dim]``
        """
        with torch.no_grad():
            blocks = _blocks(prompts, context, self._at_once(prompts, 8 * TOKENS_AT_ONCE))
            return torch.cat(
                [torch.cat([self.encode(p, c) for p, c, _, _ in row], 1) for row in blocks]
            )

    def pull_back(self, prompts: PromptSet, context: Tensor, cotangent: Tensor) -> Tensor:
        """The gradient with respect to the context, from that with respect to the features.

        Args:
            prompts: the prompts.
            context: ``[episodes, vectors, width]``
            cotangent: ``[episodes, prompts, dim]``

        Returns:
            ``[episodes, vectors, width]``. Only a bounded number of tokens is worked on at a time.
        """
        gradient = torch.zeros_like(context)
        for row in _blocks(prompts, context, self._at_once(prompts, TOKENS_AT_ONCE)):
            for some, part, episodes, rows in row:
                with torch.enable_grad():
                    leaf = part.detach().requires_grad_()
                    features = self.encode(some, leaf)
                (pulled,) = torch.autograd.grad(features, leaf, cotangent[episodes, rows])
                gradient[episodes] += pulled
        return gradient

    def count_tokens(self, prompts: PromptSet) -> int:
        """How many tokens the text tower sees of these prompts."""
        return self._shortened(prompts).tokens.ids.numel()

    def _at_once(self, prompts: PromptSet, tokens: int) -> int:
        """How many of these prompts have `tokens` tokens; at least one."""
        return max(1, tokens // self._shortened(prompts).tokens.ids.shape[1])

    def _shortened(self, prompts: PromptSet) -> PromptSet:
        """The prompts without padding that does not matter."""

        def shorten() -> PromptSet:
            cut = getattr(self.backend, "shorten", None)
            return prompts.trim(prompts.tokens if cut is None else cut(prompts.tokens))

        return self.remember(("short", prompts), shorten)

    def _prepared(self, prompts: PromptSet) -> tuple[PromptSet, Tensor]:
        """A few prompts without padding that does not matter, and their token embeddings."""

        def prepare() -> tuple[PromptSet, Tensor]:
            short = self._shortened(prompts)
            return short, self.backend.embed_tokens(short.tokens.ids)

        return self.remember(
            prompts, prepare, lambda made: made[1].nbytes + made[0].tree.mask.nbytes
        )


def _blocks(
    prompts: PromptSet, context: Tensor, at_once: int
) -> list[list[tuple[PromptSet, Tensor, slice, slice]]]:
    """Cut episodes x prompts into blocks of at most `at_once` prompts."""
    episodes = max(1, at_once // len(prompts))
    rows = [
        (part, slice(i * at_once, i * at_once + len(part)))
        for i, part in enumerate(prompts.parts(at_once))
    ]
    return [
        [(part, context[e : e + episodes], slice(e, e + episodes), where) for part, where in rows]
        for e in range(0, len(context), episodes)
    ]
