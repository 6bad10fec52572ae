"""LogitBalance: what perceived groups add to the classes on unlabelled reference images."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from fair_tta.adapters.association_correction import check_strength
from fair_tta.adapters.contract import Outcome, softmax
from fair_tta.adapters.reference_logits import EncodesImages, ReferenceLogits
from fair_tta.errors import FairTTAError, ImageError, PromptError, require
from fair_tta.text.task import Task
from fair_tta.vision.images import is_single_image

ENOUGH = 300
"""Fewer reference images warn."""


class SmallReferenceWarning(UserWarning):
    """A method was fitted on few images."""


@dataclass(frozen=True)
class LogitBalance:
    """Takes from each image what its perceived group adds to the classes on reference images.

    Over unlabelled reference images, with w = p(s | image), q = p(y | image) and u the logits of
    the classes minus their mean: ``m[s, y'] = sum w_s q_y' u / sum w_s q_y'``, ``b_s`` its mean
    over y' and pi the mean of w. Then ``logits = u - sum_s p_s strength (b_s - keep_prior sum_t
    pi_t b_t)``. The mean over perceived classes y' limits what base rates do; `keep_prior` keeps
    the model's overall preference for a class. What several attributes take is added up.

    A method of this library, with relatives: UMFC (Liang et al., 2024) subtracts the mean logits of
    an image's cluster, DRC (Seol et al.) has soft groups and a strength, and TTLSA (Sun et al.,
    2023) is the probabilistic relative, which adapts *to* the correlation of the test images. Here
    groups are named by prompts, pseudo-classes are averaged and the population's mean is kept.

    Differences from the reference implementation: none, this is it.

    Args:
        strength: how much of it; 0 is the zero-shot answer.
        keep_prior: how much of the overall preference for a class is kept, from 0 to 1.
        reference: what `fit` or `load` has found; without it nothing can be answered.

    Example:
        >>> LogitBalance(strength=1.0)
        LogitBalance(strength=1.0, keep_prior=1.0, reference=None)
    """

    strength: float = 1.5
    keep_prior: float = 1.0
    reference: ReferenceLogits | None = None
    needs_sensitive: ClassVar[bool] = True
    needs_prompt_gradient: ClassVar[bool] = False
    needs_views: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_strength(self.strength)
        if not 0 <= self.keep_prior <= 1:
            raise FairTTAError(f"`keep_prior` should lie in [0, 1] (got {self.keep_prior!r}).")

    def fit(
        self, classifier: EncodesImages, images: Iterable[Any], *, progress: bool = False
    ) -> LogitBalance:
        """The same method with what it has learnt of reference images; this one stays as it is.

        Args:
            classifier: whose model and prompts it is for; its adapter and views do not matter.
            images: 300 or more, without labels, of the groups that will be met, in about the shares
                in which they will be met. Read as `batch_size` says, and not kept.
            progress: show a progress bar.
        """
        if is_single_image(images) or not hasattr(images, "__iter__"):
            raise ImageError(
                f"`images` should be many reference images (got one {type(images).__name__}; "
                "features: `fit_encoded`)."
            )
        if progress:
            images = require("tqdm.auto", "progress").tqdm(images, unit="image")
        return self._fit(classifier, lambda: _batches(classifier, images))

    def fit_encoded(
        self, classifier: EncodesImages, features: Tensor | Iterable[Tensor]
    ) -> LogitBalance:
        """`fit` from the features of `FairTPTClassifier.encode`.

        Args:
            classifier: whose model and prompts it is for.
            features: ``[images, views, dim]``, of which the first view counts, or such batches.
        """
        return self._fit(
            classifier, lambda: [features] if isinstance(features, Tensor) else features
        )

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """See `Adapter.adapt`.

        Raises:
            FairTTAError: it is not fitted, or with another model or other prompts.
        """
        balance = task.remember(self, lambda: self._balance(task))
        image = features[:, :1]
        logits = task.logits(image, task.target_features)
        for name, values in task.sensitive_features.items():
            logits = logits - task.logits(image, values).softmax(-1) @ balance[name]
        return Outcome(softmax(logits))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write settings, reference, and which model and prompts it is for: a safetensors file."""
        settings = {"strength": self.strength, "keep_prior": self.keep_prior}
        Path(path).write_bytes(self._fitted().to_bytes(**settings))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LogitBalance:
        """What `save` has written. No code is run, and another model is refused when it is used."""
        reference, settings = ReferenceLogits.from_file(path)
        return cls(**settings, reference=reference)

    def _fit(self, classifier: EncodesImages, batches: Any) -> LogitBalance:
        if not isinstance(classifier, EncodesImages):
            raise FairTTAError(
                f"`classifier` should be a FairTPTClassifier (got a {type(classifier).__name__})."
            )
        if not classifier.task.sensitive:
            raise PromptError(
                "LogitBalance needs to know what should not matter: pass `sensitive` to the "
                "classifier."
            )
        reference = ReferenceLogits.of(classifier, batches())
        if reference.images < ENOUGH:
            warnings.warn(
                f"LogitBalance was fitted on {reference.images} images; with fewer than {ENOUGH} "
                "what it takes from an answer is uncertain.",
                SmallReferenceWarning,
                stacklevel=3,
            )
        return replace(self, reference=reference)

    def _fitted(self) -> ReferenceLogits:
        if self.reference is None:
            raise FairTTAError(
                "LogitBalance has seen no reference images yet: use what "
                "`LogitBalance().fit(classifier, images)` returns, for 300 or more images without "
                "labels, or `LogitBalance.load(path)`."
            )
        return self.reference

    def _balance(self, task: Task) -> Mapping[str, Tensor]:
        """What is taken for each perceived value: ``{attribute: [values, targets]}``."""
        reference = self._fitted()
        reference.identity.check(task, "this LogitBalance")
        taken = {
            name: self.strength * (b - self.keep_prior * reference.shares[name] @ b)
            for name, b in reference.means.items()
        }
        return {name: b.to(task.target_features) for name, b in taken.items()}


def _batches(classifier: EncodesImages, images: Iterable[Any]) -> Iterator[Tensor]:
    stream = iter(images)
    while batch := list(islice(stream, classifier.batch_size)):
        yield classifier.encode(batch, views=False)
