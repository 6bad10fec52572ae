"""LogitBalance: what perceived groups add to the classes on unlabelled reference images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fair_tta.adapters.association_correction import check_strength
from fair_tta.adapters.balance_stream import BalanceStream
from fair_tta.adapters.contract import Outcome
from fair_tta.adapters.fitting import FitsImages
from fair_tta.adapters.group_sums import balanced_answers, group_sums, means_of
from fair_tta.adapters.reference import Reference
from fair_tta.adapters.reference_batches import EncodesImages, ReferenceBatch
from fair_tta.adapters.stream_guard import StreamGuard
from fair_tta.errors import check_number
from fair_tta.text.task import Task


@dataclass(frozen=True)
class LogitBalance(FitsImages):
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

    `online` is the same on a stream, without reference images; it is not episodic.

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
    reference: Reference | None = None
    needs_sensitive: ClassVar[bool] = True
    needs_prompt_gradient: ClassVar[bool] = False
    needs_views: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_strength(self.strength)
        check_number("keep_prior", self.keep_prior, "lie in [0, 1]", lambda x: 0 <= x <= 1)

    def learn(self, task: Task, batches: Iterator[ReferenceBatch]) -> Mapping[str, Tensor]:
        """``means.ATTRIBUTE`` is b, ``[values, targets]``, and ``shares.ATTRIBUTE`` pi."""
        sums: dict[str, Tensor] = {}
        for batch in batches:
            new = group_sums(task, batch.features)
            sums = {name: sums.get(name, 0) + value for name, value in new.items()}
        return means_of(sums)

    def prepare(self, task: Task, learnt: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What is taken for each perceived value: ``{attribute: [values, targets]}``."""
        taken = {}
        for name in task.sensitive:
            b, shares = learnt[f"means.{name}"], learnt[f"shares.{name}"]
            taken[name] = self.strength * (b - self.keep_prior * shares @ b)
        return taken

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """See `Adapter.adapt`.

        Raises:
            FairTTAError: it is not fitted, or with another model or other prompts.
        """
        return Outcome(balanced_answers(task, features, self.prepared(task)))

    def online(
        self,
        classifier: EncodesImages,
        *,
        state: Reference | None = None,
        guard: StreamGuard = StreamGuard(),
    ) -> BalanceStream:
        """The same method on a stream: each image is answered with what came before it.

        That is not episodic: answers depend on the order of the images. See `BalanceStream`.

        Args:
            classifier: whose model and prompts are used.
            state: of an earlier stream, to go on with; None to begin.
            guard: when to give the zero-shot answer instead.
        """
        return BalanceStream(self, classifier, state, guard)
