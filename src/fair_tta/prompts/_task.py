"""The text side of a classifier: its prompts, and their features under any context."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import torch
from torch import Tensor

from fair_tta._cache import Cache, size_of
from fair_tta._linalg import coarsest, floor_of, unit
from fair_tta.models._backend import Backend
from fair_tta.models._model_lock import (
    WeightChangeDetector,
    check_weights_finite,
    computed_once,
    eval_mode_no_grad,
)
from fair_tta.models._stored_text import TextTable
from fair_tta.prompts._context import (
    PromptSet,
    SharedContext,
    WholeSentences,
    find_context,
    fixed_prompts,
)
from fair_tta.prompts._templates import Templates

T = TypeVar("T")

TOKENS_AT_ONCE = 1024
"""How many tokens run through the text tower at once when a gradient is wanted: bounds memory."""

_TOGETHER = (
    64  # prompts that may share their beginnings: each one more costs some attention
)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Task:
    """The classes and sensitive attributes as prompts of one model with its current weights.

    It never changes: for other weights there is another task. Features are computed when they are
    first needed. What adapters compute from it (`remember`) lies in the cache.

    Args:
        backend: the model.
        targets: ``{label: phrase}``.
        sensitive: ``{attribute: {label: phrase}}``, may be empty.
        templates: the sentences.
        scale: inverse temperature, the model's own if None.
        shared: the context of another task, to be used here too.
        cache: where features and graphs are kept; a new one if None.

    Attributes:
        target_prompts: prompts of the targets.
        sensitive_prompts: prompts of the attribute values, by attribute.
    """

    backend: Backend
    cache: Cache
    targets: Mapping[str, str]
    sensitive: Mapping[str, Mapping[str, str]]
    templates: Templates
    target_prompts: PromptSet
    sensitive_prompts: Mapping[str, PromptSet]
    _scale: float | None
    _shared: SharedContext
    _owner: object
    _image_dtype: torch.dtype | None = None

    def __init__(
        self,
        backend: Backend,
        targets: Mapping[str, str],
        sensitive: Mapping[str, Mapping[str, str]],
        templates: Templates,
        scale: float | None = None,
        shared: SharedContext | None = None,
        cache: Cache | None = None,
    ) -> None:
        sensitive = {attribute: dict(names) for attribute, names in sensitive.items()}
        if shared is None and isinstance(getattr(backend, "text", backend), TextTable):
            shared = WholeSentences(backend.tokenize)
        elif shared is None:
            shared = find_context(backend.tokenize, templates, targets, sensitive)
        vars(self).update(
            backend=backend,
            cache=Cache() if cache is None else cache,
            targets=dict(targets),
            sensitive=sensitive,
            templates=templates,
            target_prompts=shared.place_named(
                "targets", targets, templates._target_prompts
            ),
            sensitive_prompts={
                attribute: shared.place_named(
                    "sensitive", names, templates._sensitive_prompts
                )
                for attribute, names in sensitive.items()
            },
            _scale=scale,
            _shared=shared,
            _owner=object(),
        )

    def _anew(self) -> Task:
        """The same task for the weights as they are now."""
        return self._with(self.sensitive)

    def _for_image_dtype(self, dtype: torch.dtype) -> Task:
        """The same task beside features of images that were stored in this dtype.

        See `image_floor`; what is kept is shared.
        """
        own = self._text_dtype
        if coarsest(own, dtype) == own:
            return self
        _ = self.sensitive_features  # made once for both
        other = copy.copy(self)
        vars(other).update(_image_dtype=dtype)
        kept: Task = vars(self).setdefault(f"seen in {dtype}", other)
        return kept

    @property
    def _text_dtype(self) -> torch.dtype:
        """In which the features of prompts were made; they are kept in float32 at least."""
        return coarsest(self.backend.dtype, self.target_features.dtype)

    @property
    def text_floor(self) -> float:
        """How much a projection has to leave of a prompt's feature: see `floor_of`."""
        return floor_of(self.target_features.shape[-1], self._text_dtype)

    @property
    def image_floor(self) -> float:
        """The same for features of images, from which parts along prompts' features are taken."""
        return floor_of(
            self.target_features.shape[-1], self._image_dtype or self._text_dtype
        )

    def _with(self, sensitive: Mapping[str, Mapping[str, str]]) -> Task:
        return Task(
            self.backend, self.targets, sensitive, self.templates, self._scale, self._shared,
            self.cache,
        )  # fmt: skip

    @property
    @computed_once
    def scale(self) -> float:
        """Inverse temperature of the softmax."""
        return float(self.backend.scale if self._scale is None else self._scale)

    @property
    @computed_once
    def context(self) -> Tensor:
        """The initial context, ``[vectors, width]``: the embeddings of the template's words."""
        with eval_mode_no_grad(self.backend):
            ids = torch.tensor(self._shared.token_ids, device=self.backend.device)
            return self.backend.embed_tokens(ids[None])[0]

    @property
    @computed_once
    def target_features(self) -> Tensor:
        """Unit features of the target prompts, ``[targets, dim]``."""
        return self.own_features(self.target_prompts)

    @property
    @computed_once
    def sensitive_features(self) -> dict[str, Tensor]:
        """Unit features of the sensitive prompts, ``{attribute: [values, dim]}``."""
        return {
            name: self.own_features(p) for name, p in self.sensitive_prompts.items()
        }

    def joint_prompts(self, attribute: str) -> PromptSet:
        """Prompts of all pairs of a target and an attribute value, target by target."""
        names = self.sensitive[attribute]
        return self.remember(
            ("joint", attribute),
            lambda: self._shared.place(
                self.templates._joint_prompts(self.targets, names)
            ),
        )

    def sentence_prompts(self, sentences: Sequence[str]) -> PromptSet:
        """Whole sentences, which hold none of the context."""
        return fixed_prompts(self.backend.tokenize(list(sentences)), sentences)

    def _phrase_features(self, phrases: Sequence[str]) -> Tensor:
        """Unit features of the target sentence with other phrases in its slot: ``[n, dim]``."""
        prompts = self.templates._target_prompts(
            dict(zip(phrases, phrases, strict=True))
        )
        return self.own_features(self._shared.place(prompts))

    @property
    def product(self) -> Task:
        """The same task with one sensitive attribute: all combinations of attribute values.

        The phrases of a combination follow one another in the sensitive slot. The context is
        this task's, so its vectors have the same numbers.
        """
        return self if len(self.sensitive) < 2 else self._product

    @property
    @computed_once
    def _product(self) -> Task:
        combinations = product(*(names.items() for names in self.sensitive.values()))
        names = {
            " x ".join(label for label, _ in values): " ".join(
                phrase for _, phrase in values
            )
            for values in combinations
        }
        return self._with({" x ".join(self.sensitive): names})

    def remember(
        self, key: Hashable, make: Callable[[], T], size: Callable[[T], int] = size_of
    ) -> T:
        """Make something once, as long as the cache has room for it.

        The key identifies it, and the images it depends on if there are any; `size` is its bytes,
        by default those of its tensors.
        """
        since = self.cache.cleared
        found = self.cache._find(self._owner, key)
        if found is None:
            found = make()
            self.cache._keep(self._owner, key, found, size(found), since)
        kept: T = found
        return kept

    def own_features(self, prompts: PromptSet) -> Tensor:
        """Unit features of prompts as they are, from the model's own call: ``[prompts, dim]``.

        Of several templates it is the unit mean of their unit features.
        """
        features = unit(self._raw_features(prompts))
        if prompts.further is None:
            return features
        others = self.own_features(prompts.further).unflatten(0, (len(prompts), -1))
        return unit(torch.cat([features.unsqueeze(1), others], 1).mean(1))

    def _raw_features(self, prompts: PromptSet) -> Tensor:
        """Features of prompts as the model's own call gives them, of any length."""
        rows = max(1, 8 * TOKENS_AT_ONCE // prompts.tokens.ids.shape[1])
        with eval_mode_no_grad(self.backend):
            return torch.cat(
                [self.backend.encode_text(p.tokens) for p in prompts.parts(rows)]
            )

    def encode(self, prompts: PromptSet, context: Tensor) -> Tensor:
        """Unit features of prompts under another context, differentiable in it.

        ``[..., vectors, width] -> [..., prompts, dim]``; leading dimensions are separate episodes.
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

        ``[episodes, vectors, width] -> [episodes, prompts, dim]``
        """
        with torch.no_grad():
            blocks = self._blocks(prompts, context, 8 * TOKENS_AT_ONCE)
            return torch.cat(
                [
                    torch.cat([self.encode(p, c) for p, c, _, _ in row], 1)
                    for row in blocks
                ]
            )

    def _pull_back(
        self, prompts: PromptSet, context: Tensor, cotangent: Tensor
    ) -> Tensor:
        """The gradient with respect to the context, from that with respect to the features.

        ``[episodes, vectors, width], [episodes, prompts, dim] -> [episodes, vectors, width]``, a
        bounded number of tokens at a time.
        """
        gradient = torch.zeros_like(context)
        for row in self._blocks(prompts, context, TOKENS_AT_ONCE):
            for some, part, episodes, rows in row:
                with torch.enable_grad():
                    leaf = part.detach().requires_grad_()
                    features = self.encode(some, leaf)
                (pulled,) = torch.autograd.grad(
                    features, leaf, cotangent[episodes, rows]
                )
                gradient[episodes] += pulled
        return gradient

    def _count_tokens(self, prompts: PromptSet) -> int:
        """How many tokens the text tower sees of these prompts."""
        return self._shortened(prompts).tokens.ids.numel()

    def _blocks(
        self, prompts: PromptSet, context: Tensor, tokens: int
    ) -> list[list[tuple[PromptSet, Tensor, slice, slice]]]:
        """Cut episodes x prompts into blocks of about `tokens` tokens."""
        at_once = max(1, tokens // self._shortened(prompts).tokens.ids.shape[1])
        step = max(1, at_once // len(prompts))
        episodes = [slice(e, e + step) for e in range(0, len(context), step)]
        rows = [slice(i, i + at_once) for i in range(0, len(prompts), at_once)]
        parts = list(zip(prompts.parts(at_once), rows, strict=True))
        return [
            [(part, context[some], some, where) for part, where in parts]
            for some in episodes
        ]

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

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return ``scale * cosine``, in the wider dtype of both.

        ``[..., n, dim], [..., k, dim] -> [..., n, k]``
        """
        dtype = torch.promote_types(images.dtype, texts.dtype)
        return self.scale * (images.to(dtype) @ texts.to(dtype).transpose(-1, -2))

    def log_probabilities(self, images: Tensor, texts: Tensor) -> Tensor:
        """``log softmax(scale * cosine)``: ``[..., n, dim], [..., k, dim] -> [..., n, k]``."""
        return self.logits(images, texts).log_softmax(-1)


class CurrentTask:
    """A task, exchanged for a new one when the weights have changed.

    Classifiers that are made of one another hold the same one.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._detector = WeightChangeDetector()
        with eval_mode_no_grad(task.backend) as model:
            check_weights_finite(model)
            self._detector.accept(model)

    @contextmanager
    def borrow(self, *, exclusive: bool = True) -> Iterator[Task]:
        """Hold the model for a while; nothing in the task or its cache is older than it.

        Whoever tunes the prompt, or looks at a module while it runs, has to be `exclusive`.
        """
        with eval_mode_no_grad(self.task.backend, exclusive=exclusive) as model:
            if self._detector.has_changed(model):
                self._look_again()
            yield self.task

    def _look_again(self) -> None:
        """Alone, as one who is exchanges tensors for a while."""
        with eval_mode_no_grad(self.task.backend) as model:
            if self._detector.has_changed(model):
                check_weights_finite(model)
                self.renew()
                self._detector.accept(model)

    def renew(self) -> None:
        """Exchange the task and clear the cache, once no thread is at work that would refill it."""
        with eval_mode_no_grad(self.task.backend):
            self.task.cache.clear()
            self.task = self.task._anew()
