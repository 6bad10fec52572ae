"""The text side of a classifier: its prompts, and their features under any context."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from fair_tta._cache import Cache, size_of
from fair_tta._linalg import least_precise_dtype, rounding_floor, unit_features
from fair_tta.models._backend import Backend
from fair_tta.models._model_lock import computed_once, eval_mode_no_grad
from fair_tta.models._stored_text import TextTable
from fair_tta.models._weights import WeightChangeDetector, check_weights_finite
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
"""Tokens that run through the text tower at once when a gradient is wanted: bounds memory."""

MORE_WITHOUT_GRADIENT = 8
"""Times as many tokens fit into that memory when no graph is kept for a gradient."""

# Prompts that share their beginnings run as one sequence. Each of them makes the attention of all
# longer, so that from some number on sharing costs more than it saves.
_MAX_PROMPTS_TOGETHER = 64


class PromptBlock(NamedTuple):
    """Some prompts under the contexts of some episodes, small enough for one pass.

    Attributes:
        prompts: the prompts.
        context: ``[episodes, vectors, width]``.
        episodes: which of all episodes these are.
        rows: which of all prompts these are.
    """

    prompts: PromptSet
    context: Tensor
    episodes: slice
    rows: slice


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Task:
    """The classes and sensitive attributes as prompts of one model with its current weights.

    A task is immutable: for other weights there is another one. Features are computed when they
    are first needed. Values that adapters compute from it (`remember`) lie in the cache.

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
        # A model with features of whole sentences only has no context that could be tuned.
        if shared is None and isinstance(getattr(backend, "text", backend), TextTable):
            shared = WholeSentences(backend.tokenize)
        elif shared is None:
            shared = find_context(backend.tokenize, templates, targets, sensitive)
        target_prompts = shared.locate_named(
            "targets", targets, templates._target_prompts
        )
        attributes = {}
        sensitive_prompts = {}
        for attribute, names in sensitive.items():
            attributes[attribute] = dict(names)
            sensitive_prompts[attribute] = shared.locate_named(
                "sensitive", names, templates._sensitive_prompts
            )
        # The dataclass is frozen, so its fields are set here and never again.
        vars(self).update(
            backend=backend,
            cache=Cache() if cache is None else cache,
            targets=dict(targets),
            sensitive=attributes,
            templates=templates,
            target_prompts=target_prompts,
            sensitive_prompts=sensitive_prompts,
            _scale=scale,
            _shared=shared,
            _owner=object(),
        )

    def _with_current_weights(self) -> Task:
        """Return the same task without anything computed from earlier weights."""
        return self._with_sensitive(self.sensitive)

    def _for_image_dtype(self, dtype: torch.dtype) -> Task:
        """Return the same task for features of images that were stored in this dtype.

        Only `image_floor` differs; everything that was computed is shared.
        """
        if least_precise_dtype(self._text_dtype, dtype) == self._text_dtype:
            return self
        # Computed before the copy is made, so that the copy has them too.
        _ = self.sensitive_features
        coarser_task = copy.copy(self)
        vars(coarser_task).update(_image_dtype=dtype)
        kept: Task = vars(self).setdefault(f"seen in {dtype}", coarser_task)
        return kept

    @property
    def _text_dtype(self) -> torch.dtype:
        """The dtype in which prompts were encoded; features are kept in float32 at least."""
        return least_precise_dtype(self.backend.dtype, self.target_features.dtype)

    @property
    def text_floor(self) -> float:
        """The share of a prompt's feature that a projection has to leave: see `rounding_floor`."""
        return rounding_floor(self.target_features.shape[-1], self._text_dtype)

    @property
    def image_floor(self) -> float:
        """The same share for features of images, projected off features of prompts."""
        return rounding_floor(
            self.target_features.shape[-1], self._image_dtype or self._text_dtype
        )

    def _with_sensitive(self, sensitive: Mapping[str, Mapping[str, str]]) -> Task:
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
        features = {}
        for attribute, prompts in self.sensitive_prompts.items():
            features[attribute] = self.own_features(prompts)
        return features

    def joint_prompts(self, attribute: str) -> PromptSet:
        """Return prompts of all pairs of target and attribute value, target by target."""

        def make() -> PromptSet:
            values = self.sensitive[attribute]
            prompts = self.templates._joint_prompts(self.targets, values)
            return self._shared.locate(prompts)

        return self.remember(("joint", attribute), make)

    def sentence_prompts(self, sentences: Sequence[str]) -> PromptSet:
        """Return whole sentences, which hold none of the context."""
        return fixed_prompts(self.backend.tokenize(list(sentences)), sentences)

    def _phrase_features(self, phrases: Sequence[str]) -> Tensor:
        """Return features of the target sentence with other phrases: ``[phrases, dim]``."""
        # The phrases are their own labels, which nothing shows.
        phrase_of_label = dict(zip(phrases, phrases, strict=True))
        prompts = self.templates._target_prompts(phrase_of_label)
        return self.own_features(self._shared.locate(prompts))

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
        phrase_of_label = {}
        names_of_attributes = [names.items() for names in self.sensitive.values()]
        for combination in product(*names_of_attributes):
            labels, phrases = zip(*combination, strict=True)
            phrase_of_label[" x ".join(labels)] = " ".join(phrases)
        return self._with_sensitive({" x ".join(self.sensitive): phrase_of_label})

    def remember(
        self, key: Hashable, make: Callable[[], T], size: Callable[[T], int] = size_of
    ) -> T:
        """Make a value once, as long as the cache has room for it.

        The key identifies the value and any images that it depends on; `size` counts its bytes,
        by default those of its tensors.
        """
        # A value that was begun before a clearing may be outdated, and is not kept.
        n_clearings = self.cache.times_cleared
        value = self.cache._find(self._owner, key)
        if value is None:
            value = make()
            self.cache._keep(self._owner, key, value, size(value), n_clearings)
        typed: T = value
        return typed

    def own_features(self, prompts: PromptSet) -> Tensor:
        """Return unit features of untuned prompts, from the model's own call: ``[prompts, dim]``.

        For several templates they are the unit mean of each template's unit features.
        """
        features = unit_features(self._raw_features(prompts))
        if prompts.further is None:
            return features
        further = self.own_features(prompts.further)
        further = further.unflatten(0, (len(prompts), -1))
        of_templates = torch.cat([features.unsqueeze(1), further], 1)
        return unit_features(of_templates.mean(1))

    def _raw_features(self, prompts: PromptSet) -> Tensor:
        """Return features of prompts from the model's own call, not normalised."""
        tokens_at_once = MORE_WITHOUT_GRADIENT * TOKENS_AT_ONCE
        rows = max(1, tokens_at_once // prompts.tokens.ids.shape[1])
        with eval_mode_no_grad(self.backend):
            return torch.cat(
                [self.backend.encode_text(p.tokens) for p in prompts.parts(rows)]
            )

    def encode(self, prompts: PromptSet, context: Tensor) -> Tensor:
        """Return unit features of prompts under another context, differentiable in it.

        ``[..., vectors, width] -> [..., prompts, dim]``; leading dimensions are separate episodes.
        """
        if len(prompts) > _MAX_PROMPTS_TOGETHER:
            parts = prompts.parts(_MAX_PROMPTS_TOGETHER)
            features_of_parts = [self.encode(part, context) for part in parts]
            return torch.cat(features_of_parts, dim=-2)
        short, embeddings = self._embedded(prompts)
        spliced = short.splice(embeddings, context)
        episodes = spliced.reshape(-1, *spliced.shape[-3:])

        # Backends that share beginnings of prompts need to know which they are.
        encode_episodes = getattr(self.backend, "encode_episodes", None)
        if encode_episodes is not None:
            features: Tensor = encode_episodes(short.tokens, short.tree, episodes)
        else:
            tokens = short.tokens.repeat(len(episodes))
            features = self.backend.encode_prompts(tokens, episodes.flatten(0, 1))
        return unit_features(features).reshape(*spliced.shape[:-2], -1)

    def encode_many(self, prompts: PromptSet, context: Tensor) -> Tensor:
        """`encode` without gradient, a bounded number of tokens at a time.

        ``[episodes, vectors, width] -> [episodes, prompts, dim]``
        """
        tokens_at_once = MORE_WITHOUT_GRADIENT * TOKENS_AT_ONCE
        features = []
        with torch.no_grad():
            for blocks in self._blocks(prompts, context, tokens_at_once):
                parts = [self.encode(block.prompts, block.context) for block in blocks]
                features.append(torch.cat(parts, dim=1))
        return torch.cat(features)

    def _pull_back(
        self, prompts: PromptSet, context: Tensor, cotangent: Tensor
    ) -> Tensor:
        """Return the gradient of the context, given that of the features.

        ``[episodes, vectors, width], [episodes, prompts, dim] -> [episodes, vectors, width]``, a
        bounded number of tokens at a time.
        """
        # Each block has a graph of its own, which is freed before the next one.
        gradient = torch.zeros_like(context)
        for blocks in self._blocks(prompts, context, TOKENS_AT_ONCE):
            for block in blocks:
                with torch.enable_grad():
                    leaf = block.context.detach().requires_grad_()
                    features = self.encode(block.prompts, leaf)
                block_cotangent = cotangent[block.episodes, block.rows]
                (block_gradient,) = torch.autograd.grad(features, leaf, block_cotangent)
                gradient[block.episodes] += block_gradient
        return gradient

    def _count_tokens(self, prompts: PromptSet) -> int:
        """Return how many tokens the text tower reads of these prompts."""
        return self._shortened(prompts).tokens.ids.numel()

    def _blocks(
        self, prompts: PromptSet, context: Tensor, tokens: int
    ) -> list[list[PromptBlock]]:
        """Cut episodes x prompts into blocks of about `tokens` tokens, listed by episodes.

        A block has several episodes only if it has all prompts.
        """
        length = self._shortened(prompts).tokens.ids.shape[1]
        prompts_at_once = max(1, tokens // length)
        episodes_at_once = max(1, prompts_at_once // len(prompts))
        parts = prompts.parts(prompts_at_once)
        blocks = []
        for start in range(0, len(context), episodes_at_once):
            episodes = slice(start, start + episodes_at_once)
            blocks_of_episodes = []
            for i, part in enumerate(parts):
                rows = slice(i * prompts_at_once, (i + 1) * prompts_at_once)
                block = PromptBlock(part, context[episodes], episodes, rows)
                blocks_of_episodes.append(block)
            blocks.append(blocks_of_episodes)
        return blocks

    def _shortened(self, prompts: PromptSet) -> PromptSet:
        """Return the prompts without padding, if the backend can do without it."""

        def shorten() -> PromptSet:
            cut = getattr(self.backend, "shorten", None)
            return prompts.trim(prompts.tokens if cut is None else cut(prompts.tokens))

        return self.remember(("short", prompts), shorten)

    def _embedded(self, prompts: PromptSet) -> tuple[PromptSet, Tensor]:
        """Return shortened prompts with their token embeddings."""

        def embed() -> tuple[PromptSet, Tensor]:
            short = self._shortened(prompts)
            return short, self.backend.embed_tokens(short.tokens.ids)

        def count_bytes(embedded: tuple[PromptSet, Tensor]) -> int:
            short, embeddings = embedded
            return embeddings.nbytes + short.tree.mask.nbytes

        return self.remember(prompts, embed, count_bytes)

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return ``scale * cosine``, in the wider dtype of both.

        ``[..., n, dim], [..., k, dim] -> [..., n, k]``
        """
        dtype = torch.promote_types(images.dtype, texts.dtype)
        cosines = images.to(dtype) @ texts.to(dtype).transpose(-1, -2)
        return self.scale * cosines

    def log_probabilities(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return ``log softmax(scale * cosine)``, shaped as `logits`."""
        return self.logits(images, texts).log_softmax(-1)


class CurrentTask:
    """The task for the present weights of a model, shared by classifiers made of one another."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._detector = WeightChangeDetector()
        with eval_mode_no_grad(task.backend) as model:
            check_weights_finite(model)
            self._detector.accept(model)

    @contextmanager
    def borrow(self, *, exclusive: bool = True) -> Iterator[Task]:
        """Hold the model for a while, with a task that is not older than its weights.

        To tune prompts, or to watch a module while it runs, the model must be held `exclusive`.
        """
        with eval_mode_no_grad(self.task.backend, exclusive=exclusive) as model:
            if self._detector.has_changed(model):
                self._renew_if_changed()
            yield self.task

    def _renew_if_changed(self) -> None:
        # Exclusive, because a thread that tunes weights exchanges them for a while: what looked
        # like a change may be over when that thread is done.
        with eval_mode_no_grad(self.task.backend) as model:
            if self._detector.has_changed(model):
                check_weights_finite(model)
                self.renew()
                self._detector.accept(model)

    def renew(self) -> None:
        """Replace the task and clear the cache, when no other thread can refill it."""
        with eval_mode_no_grad(self.task.backend):
            self.task.cache.clear()
            self.task = self.task._with_current_weights()
