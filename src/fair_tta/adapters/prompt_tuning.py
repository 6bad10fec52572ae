"""What TPT, FairTPT and FairTPT-MO have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fair_tta.adapters.base import Outcome, probabilities
from fair_tta.adapters.orthcali import OrthCali
from fair_tta.adapters.zero import check_rho
from fair_tta.context import concatenate
from fair_tta.directions import Direction
from fair_tta.errors import FairTTAError
from fair_tta.learning_rate import RatePolicy
from fair_tta.objectives import Loss, own_context
from fair_tta.task import Task
from fair_tta.tuning import Tuned, tune


class PromptTuning:
    """A method that fits the context and then classifies view 0 with it.

    A subclass is a frozen dataclass with `rate`, `rho` and `steps`; it says its loss and direction.
    """

    needs_prompt_gradient: ClassVar[bool] = True
    needs_views: ClassVar[bool] = True
    rate: RatePolicy
    rho: float
    steps: int

    def __post_init__(self) -> None:
        check_rho(self.rho)
        if not isinstance(self.steps, int) or self.steps < 0:
            raise FairTTAError(f"`steps` should be 0 or more (got {self.steps!r}).")
        if not hasattr(self.rate, "start"):
            raise FairTTAError(
                f"`rate` should be a policy such as ELRA() or FixedRate(5e-3) (got {self.rate!r})."
            )

    def recipe(self) -> tuple[Loss, Direction]:
        """What is minimised, and how several gradients become one."""
        raise TypeError(f"{type(self).__name__} does not say what it minimises")

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """See `Adapter.adapt`."""
        return self._adapt(task, features, None)

    def __rshift__(self, then: OrthCali) -> Projected:
        if not isinstance(then, OrthCali):
            raise FairTTAError(f"after tuning comes OrthCali or nothing (got {then!r}).")
        return Projected(self, then)

    def _adapt(self, task: Task, features: Tensor, then: OrthCali | None) -> Outcome:
        loss, direction = self.recipe()
        tuned = tune(
            task, features, loss=loss, direction=direction, rate=self.rate, rho=self.rho,
            steps=self.steps,
        )  # fmt: skip
        target, sensitive = _features(task, tuned, features)
        if then is not None:
            target = then.project_tuned(
                task, tuned.context, tuned.copies, target, list(sensitive.values())
            )
        return Outcome(
            probabilities(task, features, target),
            {a: probabilities(task, features, texts) for a, texts in sensitive.items()},
            learning_rate=tuned.learning_rate,
            relative_step=tuned.relative_step,
            views_kept=tuned.kept,
            warnings=tuple(tuned.notes),
        )


@dataclass(frozen=True)
class Projected:
    """Tune the prompt, then project: ``FairTPT() >> OrthCali(lam=0)`` is the paper's combination.

    The sensitive (and joint) features that define the projection are those after tuning.
    """

    first: PromptTuning
    then: OrthCali
    needs_sensitive: ClassVar[bool] = True
    needs_prompt_gradient: ClassVar[bool] = True
    needs_views: ClassVar[bool] = True

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """See `Adapter.adapt`."""
        return self.first._adapt(task, features, self.then)


def _features(task: Task, tuned: Tuned, features: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Target and sensitive features under tuned contexts, ``[images, k, dim]``.

    With a context per target, each target is scored with its own, and the sensitive attribute
    with that of the answer.
    """
    vectors, context = len(task.context), tuned.context
    names, sets = list(task.sensitive_prompts), list(task.sensitive_prompts.values())
    if tuned.copies == 1:
        prompts = task.remember("all", lambda: concatenate([task.target_prompts, *sets]))
        every = task.encode_many(prompts, context)
        target, *sensitive = every.split([len(task.targets), *map(len, sets)], dim=1)
        return target, dict(zip(names, sensitive, strict=True))
    own = task.remember("own", lambda: own_context(task.target_prompts, tuned.copies, vectors))
    target = task.encode_many(own, context)
    answer = probabilities(task, features, target).nan_to_num().argmax(-1)
    copies = context.unflatten(1, (tuned.copies, vectors))
    context = copies[torch.arange(len(answer), device=answer.device), answer]
    return target, {a: task.encode_many(p, context) for a, p in zip(names, sets, strict=True)}
