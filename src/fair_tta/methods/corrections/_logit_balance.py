"""LogitBalance: subtracts the mean logit shift of the group the model perceives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from fair_tta.errors import check_number
from fair_tta.methods._base import Needs, Outcome, check_non_negative, softmax
from fair_tta.methods._fitting import FittedMethod, ReferenceBatch
from fair_tta.methods._reference import Reference
from fair_tta.methods.corrections._offsets import (
    balancing_offsets,
    group_logits,
    mean_logits,
    subtract,
)
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class LogitBalance(FittedMethod):
    """Subtract the mean logit shift of the group that the model perceives.

    The shift is estimated on unlabelled reference images. With w = p(s | image), q = p(y | image)
    and u the logits of the classes minus their mean, ``m[s, y'] = sum w_s q_y' u / sum w_s q_y'``,
    ``b_s`` is its mean over y' and pi the mean of w. Then ``logits = u - sum_s p_s strength (b_s -
    keep_prior sum_t pi_t b_t)``. The mean over perceived classes y' limits the effect of base
    rates; `keep_prior` keeps the model's overall preference for a class. The offsets of several
    attributes are added.

    A method of this library, with relatives: UMFC (Liang et al., 2024) subtracts the mean logits of
    an image's cluster, DRC (Seol et al.) has soft groups and a strength, and TTLSA (Sun et al.,
    2023) is the probabilistic relative, which adapts *to* the correlation of the test images. Here
    groups are named by prompts, pseudo-classes are averaged and the population's mean is kept.

    Differences from the reference implementation: none, this is it.

    Args:
        strength: the share of the shift that is subtracted; 0 is the zero-shot answer.
        keep_prior: the share of the overall preference for a class that is kept, in [0, 1].
        reference: what `FairTPTClassifier.fit` learned; without it images are refused.

    Example:
        >>> LogitBalance(strength=1.0)
        LogitBalance(strength=1.0, keep_prior=1.0, reference=None)
    """

    strength: float = 1.5
    keep_prior: float = 1.0
    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True)

    def __post_init__(self) -> None:
        check_non_negative(self, "strength")
        check_number(
            "keep_prior", self.keep_prior, "lie in [0, 1]", lambda x: 0 <= x <= 1
        )

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """Return ``means.ATTRIBUTE``, b as ``[values, targets]``, and ``shares.ATTRIBUTE``, pi."""
        return mean_logits(group_logits(task, batch.features) for batch in batches)

    def _prepare(
        self, task: Task, learned: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """Return the offset of each perceived value, ``{attribute: [values, targets]}``."""
        return {
            attribute: balancing_offsets(
                learned, attribute, self.strength, self.keep_prior
            )
            for attribute in task.sensitive
        }

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        image_logits = group_logits(task, features[:, :1])
        return Outcome(softmax(subtract(image_logits, self._prepared(task))))
