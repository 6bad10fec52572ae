"""The text side of a classifier: a table of prompts and their features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from fair_tta._cache import Cache
from fair_tta._models.borrow import borrowed, fingerprint, made_once
from fair_tta._models.protocol import Backend
from fair_tta._prompts.context import SharedContext, find_context
from fair_tta._prompts.encoder import PromptEncoder, PromptSet
from fair_tta._prompts.templates import Templates
from fair_tta.errors import ModelError


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Task(PromptEncoder):
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

    targets: Mapping[str, str]
    sensitive: Mapping[str, Mapping[str, str]]
    templates: Templates
    target_prompts: PromptSet
    sensitive_prompts: Mapping[str, PromptSet]
    _scale: float | None
    _shared: SharedContext

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
        if shared is None:
            shared = find_context(backend.tokenize, templates, targets, sensitive)
        vars(self).update(
            backend=backend,
            cache=Cache() if cache is None else cache,
            targets=dict(targets),
            sensitive=sensitive,
            templates=templates,
            target_prompts=shared.place_named("targets", targets, templates.target_prompts),
            sensitive_prompts={
                attribute: shared.place_named("sensitive", names, templates.sensitive_prompts)
                for attribute, names in sensitive.items()
            },
            _scale=scale,
            _shared=shared,
            _owner=object(),
        )

    def anew(self) -> Task:
        """The same task for the weights as they are now."""
        return Task(
            self.backend, self.targets, self.sensitive, self.templates, self._scale, self._shared,
            self.cache,
        )  # fmt: skip

    @property
    @made_once
    def scale(self) -> float:
        """Inverse temperature of the softmax."""
        try:
            return float(self.backend.scale if self._scale is None else self._scale)
        except OverflowError as error:
            raise ModelError(
                f"the logit scale of {self.backend.name} is too large for a number, so its weights "
                "may be damaged: get it again, or pass `scale`."
            ) from error

    @property
    @made_once
    def context(self) -> Tensor:
        """The initial context, ``[vectors, width]``: the embeddings of the template's words."""
        with borrowed(self.backend):
            ids = torch.tensor(self._shared.token_ids, device=self.backend.device)
            return self.backend.embed_tokens(ids[None])[0]

    @property
    @made_once
    def target_features(self) -> Tensor:
        """Unit features of the target prompts, ``[targets, dim]``."""
        return self.own_features(self.target_prompts)

    @property
    @made_once
    def sensitive_features(self) -> dict[str, Tensor]:
        """Unit features of the sensitive prompts, ``{attribute: [values, dim]}``."""
        return {name: self.own_features(p) for name, p in self.sensitive_prompts.items()}

    def joint_prompts(self, attribute: str) -> PromptSet:
        """Prompts of all pairs of a target and an attribute value, target by target."""
        names = self.sensitive[attribute]
        return self.remember(
            ("joint", attribute),
            lambda: self._shared.place(self.templates.joint_prompts(self.targets, names)),
        )

    def sentence_prompts(self, sentences: Sequence[str]) -> PromptSet:
        """Whole sentences, which hold none of the context."""
        tokens = self.backend.tokenize(list(sentences))
        return PromptSet(tuple(sentences), tokens, torch.full_like(tokens.ids, -1))

    @property
    def product(self) -> Task:
        """The same task with one sensitive attribute: all combinations of attribute values.

        The phrases of a combination follow one another in the sensitive slot. The context is
        this task's, so its vectors have the same numbers.
        """
        return self if len(self.sensitive) < 2 else self._product

    @property
    @made_once
    def _product(self) -> Task:
        combinations = product(*(names.items() for names in self.sensitive.values()))
        names = {
            " x ".join(label for label, _ in values): " ".join(phrase for _, phrase in values)
            for values in combinations
        }
        return Task(
            self.backend, self.targets, {" x ".join(self.sensitive): names}, self.templates,
            self._scale, self._shared, self.cache,
        )  # fmt: skip

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """``scale * cosine``: ``[..., n, dim], [..., k, dim] -> [..., n, k]``."""
        return self.scale * images @ texts.transpose(-1, -2)

    def log_probabilities(self, images: Tensor, texts: Tensor) -> Tensor:
        """``log softmax(scale * cosine)``: ``[..., n, dim], [..., k, dim] -> [..., n, k]``."""
        return self.logits(images, texts).log_softmax(-1)


class CurrentTask:
    """A task, exchanged for a new one when the weights have changed.

    Classifiers that are made of one another hold the same one.

    Args:
        task: the first.

    Attributes:
        task: the latest.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        with borrowed(task.backend) as model:
            self._weights = fingerprint(model)

    @contextmanager
    def borrow(self) -> Iterator[Task]:
        """Hold the model for a while; nothing in the task or its cache is older than it."""
        with borrowed(self.task.backend) as model:
            weights = fingerprint(model)
            if weights != self._weights:
                self.renew()
                self._weights = weights
            yield self.task

    def renew(self) -> None:
        """Exchange the task and clear the cache, once no thread is at work that would refill it."""
        with borrowed(self.task.backend):
            self.task.cache.clear()
            self.task = self.task.anew()
