"""The text side of a classifier: prompts, the shared context and their features."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import islice, product
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fair_tta.backends.base import Backend
from fair_tta.context import PromptSet, SharedContext
from fair_tta.errors import PromptError
from fair_tta.prompts import Prompt, Templates

T = TypeVar("T")

TOKENS_AT_ONCE = 1024
"""How many tokens run through the text tower at once when a gradient is wanted: bounds memory."""

_RECENT = 256  # batches of images
_TOGETHER = 64  # prompts that may share their beginnings: each one more costs some attention


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
        self._memory: dict[Hashable, Any] = {}
        self._recent: OrderedDict[Hashable, Tensor] = OrderedDict()
        target_prompts = templates.target_prompts(self.targets)
        sensitive_prompts = {
            attribute: templates.sensitive_prompts(names)
            for attribute, names in self.sensitive.items()
        }
        # a few joint prompts, because a joint sentence of its own may have words of its own
        joint = []
        if templates.joint is not None:
            joint = [
                templates.joint_prompts(_first_two(self.targets), _first_two(names))
                for names in self.sensitive.values()
            ]
        sets = [target_prompts, *sensitive_prompts.values()]
        self._shared = SharedContext(backend.tokenize, [*sets, *joint])
        arguments = ["targets", *["sensitive"] * len(sensitive_prompts)]
        for argument, names, prompts in zip(
            arguments, (self.targets, *self.sensitive.values()), sets, strict=True
        ):
            self._check_distinct(argument, names, prompts)
        self.target_prompts = self._shared.place(target_prompts)
        self.sensitive_prompts = {
            attribute: self._shared.place(prompts)
            for attribute, prompts in sensitive_prompts.items()
        }
        for placed in (self.target_prompts, *self.sensitive_prompts.values()):
            bare = (placed.slots < 0).all(1).nonzero().flatten().tolist()
            if bare:
                raise PromptError(
                    "`template` should have words besides its slots, there is no context to adapt "
                    f"in {placed.texts[bare[0]]!r}."
                )

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be made again: graphs of autograd cannot be copied or sent."""
        state = self.__dict__ | {"_memory": {}, "_recent": OrderedDict()}
        state.pop("_ready", None)
        return state

    @cached_property
    def context(self) -> Tensor:
        """The initial context, ``[vectors, width]``: the embeddings of the template's words."""
        ids = torch.tensor(self._shared.token_ids, device=self.backend.device)
        return self.backend.embed_tokens(ids[None])[0]

    @cached_property
    def target_features(self) -> Tensor:
        """Unit features of the target prompts as they are, ``[targets, dim]``."""
        return self.own_features(self.target_prompts)

    @cached_property
    def sensitive_features(self) -> dict[str, Tensor]:
        """Unit features of the sensitive prompts as they are, ``{attribute: [values, dim]}``."""
        return {name: self.own_features(p) for name, p in self.sensitive_prompts.items()}

    def joint_prompts(self, attribute: str) -> PromptSet:
        """Prompts of all (target, sensitive value) pairs, target by target."""
        names = self.sensitive[attribute]
        return self.remember(
            ("joint", attribute),
            lambda: self._shared.place(self.templates.joint_prompts(self.targets, names)),
        )

    @cached_property
    def product(self) -> Task:
        """The same task with one sensitive attribute: all combinations of the attributes' values.

        The phrases of a combination follow one another in the sensitive slot.
        """
        if len(self.sensitive) < 2:
            return self
        combinations = product(*(names.items() for names in self.sensitive.values()))
        names = {
            " x ".join(label for label, _ in values): " ".join(phrase for _, phrase in values)
            for values in combinations
        }
        attribute = " x ".join(self.sensitive)
        return Task(self.backend, self.targets, {attribute: names}, self.templates, self.scale)

    def count_tokens(self, prompts: PromptSet) -> int:
        """How many tokens the text tower sees of these prompts."""
        return self._prepared(prompts)[0].tokens.ids.numel()

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Make something that does not depend on an image once."""
        if key not in self._memory:
            self._memory[key] = make()
        value: T = self._memory[key]
        return value

    def recall(self, key: Hashable, images: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """Make something for these images, unless it was made for the very same ones recently.

        So a sweep over methods and settings does common work once.
        """
        full = key, images.shape, blake2b(images.cpu().numpy().tobytes(), digest_size=16).digest()
        if full not in self._recent:
            self._recent[full] = make()
            if len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
        self._recent.move_to_end(full)
        return self._recent[full]

    def own_features(self, prompts: PromptSet) -> Tensor:
        """Unit features of prompts as they are, from the model's own call: ``[prompts, dim]``."""
        rows = max(1, 8 * TOKENS_AT_ONCE // prompts.tokens.ids.shape[1])
        parts = [
            self.backend.encode_text(prompts[i : i + rows].tokens) for i in _steps(prompts, rows)
        ]
        return unit(torch.cat(parts))

    def encode(self, prompts: PromptSet, context: Tensor) -> Tensor:
        """Unit features of prompts under another context, differentiable in it.

        Args:
            prompts: `target_prompts`, one of `sensitive_prompts`, or joint prompts.
            context: ``[..., vectors, width]``; leading dimensions are separate episodes.

        Returns:
            ``[..., prompts, dim]``
        """
        if len(prompts) > _TOGETHER:
            parts = [prompts[i : i + _TOGETHER] for i in _steps(prompts, _TOGETHER)]
            return torch.cat([self.encode(part, context) for part in parts], dim=-2)
        prompts, embeddings = self._prepared(prompts)
        spliced = prompts.splice(embeddings, context)
        episodes = spliced.reshape(-1, *spliced.shape[-3:])
        features = unit(self._encode_episodes(prompts, episodes))
        return features.reshape(*spliced.shape[:-2], -1)

    def encode_many(self, prompts: PromptSet, context: Tensor) -> Tensor:
        """`encode` without gradient, a bounded number of tokens at a time.

        Args:
            prompts: ``prompts``
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
            prompts: ``prompts``
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

    def log_probabilities(self, images: Tensor, texts: Tensor) -> Tensor:
        """``log softmax(scale * cosine)``: ``[..., n, dim], [..., k, dim] -> [..., n, k]``."""
        return (self.scale * images @ texts.transpose(-1, -2)).log_softmax(-1)

    def _check_distinct(
        self, argument: str, names: Mapping[str, str], prompts: list[Prompt]
    ) -> None:
        seen: dict[tuple[int, ...], str] = {}
        for label, prompt in zip(names, prompts, strict=True):
            other = seen.setdefault(tuple(self._shared.ids(prompt.text)), label)
            if other != label:
                raise PromptError(
                    f"`{argument}` should be told apart by the model, but {other!r} and {label!r} "
                    "give the same tokens: use other words."
                )

    @cached_property
    def _ready(self) -> WeakKeyDictionary[PromptSet, tuple[PromptSet, Tensor]]:
        return WeakKeyDictionary()

    def _at_once(self, prompts: PromptSet, tokens: int) -> int:
        """How many of such prompts have so many tokens; at least one."""
        return max(1, tokens // self._prepared(prompts)[0].tokens.ids.shape[1])

    def _prepared(self, prompts: PromptSet) -> tuple[PromptSet, Tensor]:
        """The prompts without padding that does not matter, and their token embeddings."""
        if prompts not in self._ready:
            shorten = getattr(self.backend, "shorten", None)
            short = prompts.trim(prompts.tokens if shorten is None else shorten(prompts.tokens))
            self._ready[prompts] = short, self.backend.embed_tokens(short.tokens.ids)
        return self._ready[prompts]

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


def _first_two(names: Mapping[str, str]) -> dict[str, str]:
    return dict(islice(names.items(), 2))


def _steps(items: Sequence[Any] | PromptSet, size: int) -> range:
    return range(0, len(items), size)


def _blocks(
    prompts: PromptSet, context: Tensor, at_once: int
) -> list[list[tuple[PromptSet, Tensor, slice, slice]]]:
    """Cut episodes x prompts into blocks of at most so many prompts."""
    rows, episodes = min(len(prompts), at_once), max(1, at_once // len(prompts))
    parts = [(prompts, slice(0, rows))]
    if rows < len(prompts):
        parts = [(prompts[i : i + rows], slice(i, i + rows)) for i in _steps(prompts, rows)]
    return [
        [(part, context[e : e + episodes], slice(e, e + episodes), where) for part, where in parts]
        for e in range(0, len(context), episodes)
    ]
