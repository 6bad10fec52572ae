"""What methods that tune prompts have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from fair_tta._prompts.context import concatenate
from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError
from fair_tta.methods._base import FindsTexts, Needs, Outcome, Texts, probabilities
from fair_tta.methods._tuning.directions import Aggregated, Direction
from fair_tta.methods._tuning.entropy import check_rho
from fair_tta.methods._tuning.loop import Tuned, confident_views, tune
from fair_tta.methods._tuning.losses import Loss, objective_of, own_context
from fair_tta.methods._tuning.rates import RatePolicy


class PromptTuning(FindsTexts):
    """A method that fits the context and then classifies view 0 with it.

    A subclass is a frozen dataclass with `rate`, `rho` and `steps`; it defines `recipe`.
    """

    needs = Needs(prompt_gradient=True, views=True)
    rate: RatePolicy
    rho: float
    steps: int

    def __post_init__(self) -> None:
        check_rho(self.rho)
        check_tuning(self.rate, self.steps)

    @abstractmethod
    def recipe(self) -> tuple[Loss, Direction | Aggregated]:
        """What is minimised, and how several gradients become one."""

    def check_task(self, task: Task) -> None:
        objective_of(self.recipe()[0], task)

    def find_texts(self, task: Task, features: Tensor) -> tuple[Texts, Outcome]:
        loss, direction = self.recipe()
        views = confident_views(task, features, self.rho)
        tuned = tune(task, views, loss=loss, direction=direction, rate=self.rate, steps=self.steps)
        texts, outcome = tuned_answer(task, features, tuned)
        return texts, replace(outcome, views_kept=views.shape[1])


def check_tuning(rate: RatePolicy, steps: int) -> None:
    """Raise unless these are a policy and a number of steps."""
    if not isinstance(steps, int) or steps < 0:
        raise FairTTAError(f"`steps` should be 0 or more (got {steps!r}).")
    if not hasattr(rate, "start"):
        raise FairTTAError(
            f"`rate` should be a policy such as ELRA() or FixedRate(5e-3) (got {rate!r})."
        )


def tuned_answer(task: Task, features: Tensor, tuned: Tuned) -> tuple[Texts, Outcome]:
    """Features of prompts under tuned contexts, and the answer for view 0 with them.

    Args:
        task: the text side.
        features: ``[images, views, dim]``
        tuned: the contexts.
    """
    target, sensitive = _features(task, tuned, features)
    outcome = Outcome(
        probabilities(task, features, target),
        {a: probabilities(task, features, texts) for a, texts in sensitive.items()},
        learning_rate=tuned.learning_rate,
        relative_step=tuned.relative_step,
        flags=tuned.flags,
    )
    return Texts(target, sensitive, lambda attribute: _joint(task, tuned, attribute)), outcome


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


def _joint(task: Task, tuned: Tuned, attribute: str) -> Tensor:
    """Features of joint prompts under tuned contexts, ``[images, targets * values, dim]``."""
    prompts = task.remember(
        ("own", "joint", attribute, tuned.copies),
        lambda: own_context(task.joint_prompts(attribute), tuned.copies, len(task.context)),
    )
    return task.encode_many(prompts, tuned.context)
