"""Features of prompts: as they are, and under other contexts, with gradients."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fair_tta.backends.protocol import Backend
from fair_tta.text.cache import Cache
from fair_tta.text.prompt_set import PromptSet

TOKENS_AT_ONCE = 1024
"""How many tokens run through the text tower at once when a gradient is wanted: bounds memory."""

_ROUNDING = 1e-5  # of the length of unit features
_TOGETHER = 64  # prompts that may share their beginnings: each one more costs some attention


@dataclass(frozen=True, eq=False)
class PromptEncoder:
    """The text tower of a model with the weights it has now.

    Attributes:
        backend: the model.
        cache: where shortened prompts and their token embeddings are kept.
    """

    backend: Backend
    cache: Cache
    _owner: object = field(default_factory=object, repr=False)

    def own_features(self, prompts: PromptSet) -> Tensor:
        """Unit features of prompts as they are, from the model's own call: ``[prompts, dim]``."""
        rows = max(1, 8 * TOKENS_AT_ONCE // prompts.tokens.ids.shape[1])
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
        prompts, embeddings = self._prepared(prompts)
        spliced = prompts.splice(embeddings, context)
        episodes = spliced.reshape(-1, *spliced.shape[-3:])
        features = unit(self._encode_episodes(prompts, episodes))
        return features.reshape(*spliced.shape[:-2], -1)

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
        """How many of such prompts have so many tokens; at least one."""
        return max(1, tokens // self._shortened(prompts).tokens.ids.shape[1])

    def _shortened(self, prompts: PromptSet) -> PromptSet:
        """The prompts without padding that does not matter."""

        def shorten() -> PromptSet:
            cut = getattr(self.backend, "shorten", None)
            return prompts.trim(prompts.tokens if cut is None else cut(prompts.tokens))

        return self.cache.recall(self._owner, ("short", prompts), shorten)

    def _prepared(self, prompts: PromptSet) -> tuple[PromptSet, Tensor]:
        """A few prompts without padding that does not matter, and their token embeddings."""

        def prepare() -> tuple[PromptSet, Tensor]:
            short = prompts.trim(self._shortened(prompts).tokens)
            return short, self.backend.embed_tokens(short.tokens.ids)

        return self.cache.recall(
            self._owner, prompts, prepare, lambda made: made[1].nbytes + made[0].tree.mask.nbytes
        )

    def _encode_episodes(self, prompts: PromptSet, embeddings: Tensor) -> Tensor:
        """``[episodes, prompts, length, width] -> [episodes, prompts, dim]``."""
        encode = getattr(self.backend, "encode_episodes", None)
        if encode is not None:
            features: Tensor = encode(prompts.tokens, prompts.tree, embeddings)
            return features
        tokens = prompts.tokens.repeat(len(embeddings))
        every = self.backend.encode_prompts(tokens, embeddings.flatten(0, 1))
        return every.reshape(*embeddings.shape[:2], -1)


def unit(features: Tensor) -> Tensor:
    """Features of length one, in float32 (float64 stays)."""
    wide = features if features.dtype == torch.float64 else features.float()
    return normalize(wide, dim=-1)


def of_length_one(features: Tensor) -> Tensor:
    """Features of any length as unit features; those that are stay so, to the last digit."""
    is_unit = (features.norm(dim=-1, keepdim=True) - 1).abs() < _ROUNDING
    if bool(is_unit.all()):
        return features
    largest = features.abs().amax(-1, keepdim=True)  # no square is lost or too large
    return torch.where(is_unit, features, unit(features / largest.where(largest > 0, 1.0)))


def _blocks(
    prompts: PromptSet, context: Tensor, at_once: int
) -> list[list[tuple[PromptSet, Tensor, slice, slice]]]:
    """Cut episodes x prompts into blocks of at most so many prompts."""
    episodes = max(1, at_once // len(prompts))
    rows = [
        (part, slice(i * at_once, i * at_once + len(part)))
        for i, part in enumerate(prompts.parts(at_once))
    ]
    return [
        [(part, context[e : e + episodes], slice(e, e + episodes), where) for part, where in rows]
        for e in range(0, len(context), episodes)
    ]
