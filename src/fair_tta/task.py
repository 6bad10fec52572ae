"""The text side of a classifier: prompts, the shared context and their features."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fair_tta.backends.base import Backend, Tokens
from fair_tta.context import PromptSet, SharedContext
from fair_tta.errors import PromptError
from fair_tta.prompts import Prompt, Templates


class Task:
    """What is to be told apart, in the words of one model.

    Nothing here depends on an image, so it is computed once and shared by all adapters.

    Args:
        backend: the model.
        targets: ``{label: phrase}``.
        sensitive: ``{attribute: {label: phrase}}``, may be empty.
        templates: the sentences.
        scale: inverse temperature, the model's own if None.
    """

    def __init__(
        self,
        backend: Backend,
        targets: Mapping[str, str],
        sensitive: Mapping[str, Mapping[str, str]],
        templates: Templates,
        scale: float | None = None,
    ) -> None:
        self.backend = backend
        self.targets = dict(targets)
        self.sensitive = {attribute: dict(names) for attribute, names in sensitive.items()}
        self.templates = templates
        self.scale = backend.scale if scale is None else float(scale)
        target_prompts = templates.target_prompts(self.targets)
        sensitive_prompts = {
            attribute: templates.sensitive_prompts(names)
            for attribute, names in self.sensitive.items()
        }
        _check_distinct(backend, "targets", self.targets, target_prompts)
        for attribute, names in self.sensitive.items():
            _check_distinct(backend, "sensitive", names, sensitive_prompts[attribute])
        self._shared = SharedContext(
            backend.tokenize, [target_prompts, *sensitive_prompts.values()]
        )
        if not self._shared.token_ids:
            raise PromptError(
                f"`template` should have words besides its slots, there is no context to adapt "
                f"in {target_prompts[0].text!r}."
            )
        self.target_prompts = self._shared.place(target_prompts)
        self.sensitive_prompts = {
            attribute: self._shared.place(prompts)
            for attribute, prompts in sensitive_prompts.items()
        }
        self._joint: dict[str, PromptSet] = {}

    @cached_property
    def context(self) -> Tensor:
        """The initial context, ``[vectors, width]``: the embeddings of the template's words."""
        ids = torch.tensor(self._shared.token_ids, device=self.backend.device)
        return self.backend.embed_tokens(ids[None])[0]

    @cached_property
    def target_features(self) -> Tensor:
        """Unit features of the target prompts as they are, ``[targets, dim]``."""
        return self._own_features(self.target_prompts)

    @cached_property
    def sensitive_features(self) -> dict[str, Tensor]:
        """Unit features of the sensitive prompts as they are, ``{attribute: [values, dim]}``."""
        return {name: self._own_features(p) for name, p in self.sensitive_prompts.items()}

    def joint_prompts(self, attribute: str) -> PromptSet:
        """Prompts of all (target, sensitive value) pairs, target by target."""
        if attribute not in self._joint:
            names = self.sensitive[attribute]
            prompts = self.templates.joint_prompts(self.targets, names)
            self._joint[attribute] = self._shared.place(prompts)
        return self._joint[attribute]

    def encode(self, prompts: PromptSet, context: Tensor) -> Tensor:
        """Unit features of prompts under another context, differentiable in it.

        Args:
            prompts: `target_prompts`, one of `sensitive_prompts`, or joint prompts.
            context: ``[..., vectors, width]``; leading dimensions are separate episodes.

        Returns:
            ``[..., prompts, dim]``
        """
        spliced = prompts.splice(self.backend.embed_tokens(prompts.tokens.ids), context)
        episodes = spliced.shape[:-3]
        repeat = episodes.numel()
        tokens = Tokens(prompts.tokens.ids.repeat(repeat, 1), prompts.tokens.mask.repeat(repeat, 1))
        features = unit(self.backend.encode_prompts(tokens, spliced.flatten(0, -3)))
        return features.reshape(*episodes, len(prompts.texts), -1)

    def log_probabilities(self, images: Tensor, texts: Tensor) -> Tensor:
        """``log softmax(scale * cosine)``: ``[..., n, dim], [..., k, dim] -> [..., n, k]``."""
        return (self.scale * images @ texts.transpose(-1, -2)).log_softmax(-1)

    def _own_features(self, prompts: PromptSet) -> Tensor:
        return unit(self.backend.encode_text(prompts.tokens))


def unit(features: Tensor) -> Tensor:
    """Features of length one, in float32 (float64 stays)."""
    wide = features if features.dtype == torch.float64 else features.float()
    return normalize(wide, dim=-1)


def _check_distinct(
    backend: Backend, argument: str, names: Mapping[str, str], prompts: list[Prompt]
) -> None:
    tokens = backend.tokenize([prompt.text for prompt in prompts])
    seen: dict[tuple[int, ...], str] = {}
    for i, label in enumerate(names):
        row = tuple(tokens.row(i))
        if row in seen:
            raise PromptError(
                f"`{argument}` should be told apart by the model, but {seen[row]!r} and {label!r} "
                "give the same tokens: use other words."
            )
        seen[row] = label
