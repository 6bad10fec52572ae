"""Losses that prompts are tuned with: the target's entropy and the sensitive attribute's.

Both are entropies of mean predictions over views, divided by their largest value. The target's
should fall. The sensitive attribute's should rise, so it enters with a minus sign.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fair_tta.errors import FairTTAError
from fair_tta.methods.tuning._entropy import marginal, normalised_entropy
from fair_tta.prompts._context import PromptSet, concatenate_prompts
from fair_tta.prompts._task import Task


class PromptLoss(Hashable, Protocol):
    """One loss of prompts; hashable, so that gradients of images are found again."""

    @property
    def prompts(self) -> PromptSet:
        """All prompts of the loss."""

    def loss(self, task: Task, views: Tensor, features: Tensor) -> Tensor:
        """Return the loss of each image, see `Term.loss`.

        `views` and `features` are in float64 where the device has it, unlike the task's own such as
        ``task.target_features``: ``task.log_probabilities`` takes both together.
        """


@dataclass(frozen=True)
class Term:
    """One loss: the entropy of groups of prompts, times a sign.

    Attributes:
        prompts: all prompts of the term.
        groups: ``((groups, classes), ...)``, how the prompts are to be read: each group is one
            softmax over its classes. Averaged within each entry; the entries are added.
        sign: 1 to make the entropy fall, -1 to make it rise.
    """

    prompts: PromptSet
    groups: tuple[tuple[int, int], ...]
    sign: float

    def loss(self, task: Task, views: Tensor, features: Tensor) -> Tensor:
        """Return the loss of each image, ``[images]``.

        Args:
            task: has the temperature.
            views: ``[images, kept, dim]``
            features: of the prompts, ``[images or 1, prompts, dim]``
        """
        sizes = [groups * classes for groups, classes in self.groups]
        entropies = []
        parts = features.split(sizes, dim=1)
        for part, shape in zip(parts, self.groups, strict=True):
            texts = part.unflatten(1, shape)  # [images, groups, classes, dim]
            log_p = task.log_probabilities(views.unsqueeze(1), texts)
            entropy_of_group = normalised_entropy(marginal(log_p))
            entropies.append(entropy_of_group.mean(1))
        return self.sign * torch.stack(entropies).sum(0)


@dataclass(frozen=True)
class Objective:
    """The terms (target first) and how many copies of the context they share."""

    terms: tuple[PromptLoss, ...]
    copies: int = 1


class Loss(Protocol):
    """An objective that is minimised; hashable, so that its prompts are made once per task."""

    def objective(self, task: Task) -> Objective:
        """Return the terms for this task."""


def objective_of(loss: Loss, task: Task) -> Objective:
    """Return the objective of a loss for a task, made once; raise if it is not a loss."""
    should = "`loss` should be hashable and have a method `objective` that returns an Objective"
    has_objective = callable(getattr(loss, "objective", None))
    if not isinstance(loss, Hashable) or not has_objective:
        raise FairTTAError(f"{should} (got {loss!r}).")
    objective = task.remember((loss, "objective"), lambda: loss.objective(task))
    if not isinstance(objective, Objective) or not objective.terms:
        raise FairTTAError(
            f"{should} with terms (got {objective!r} of {type(loss).__name__})."
        )
    return objective


@dataclass(frozen=True)
class TargetLoss(Loss):
    """``l(Y)``, the target's entropy alone: TPT's loss, up to the constant ``log |Y|``."""

    def objective(self, task: Task) -> Objective:
        return Objective((_target_term(task),))


@dataclass(frozen=True)
class _SensitiveLoss(Loss):
    """A loss with the target's term, and sensitive terms that should rise."""

    joint: bool = False
    separate: bool = False

    def _joint_prompts(self, task: Task) -> list[PromptSet]:
        """Return the prompts of all (target, value) pairs, a set for each attribute."""
        task = task.product if self.joint else task
        return [task.joint_prompts(attribute) for attribute in task.sensitive]

    def _sensitive_terms(self, prompt_sets: list[PromptSet], groups: int) -> list[Term]:
        """Return one term of all attributes, or one of each.

        Args:
            prompt_sets: prompts of each attribute.
            groups: how many softmaxes the prompts of an attribute are for.
        """
        shapes = [(groups, len(prompts) // groups) for prompts in prompt_sets]
        if not self.separate:
            return [Term(concatenate_prompts(prompt_sets), tuple(shapes), -1)]
        terms = []
        for prompts, shape in zip(prompt_sets, shapes, strict=True):
            terms.append(Term(prompts, (shape,), -1))
        return terms


@dataclass(frozen=True)
class SLoss(_SensitiveLoss):
    """``(l(Y), -l(S))``: the sensitive prompts stand for themselves.

    Args:
        joint: take several attributes as one, with all combinations of their values; otherwise
            each has an entropy of its own, and they are added.
        separate: make each attribute's entropy a term of its own, which the direction weighs;
            otherwise their sum is one term.
    """

    def objective(self, task: Task) -> Objective:
        attributes = task.product if self.joint else task
        prompt_sets = list(attributes.sensitive_prompts.values())
        sensitive_terms = self._sensitive_terms(prompt_sets, 1)
        return Objective((_target_term(task), *sensitive_terms))


@dataclass(frozen=True)
class TSLoss(_SensitiveLoss):
    """``(l(Y), -mean_y l(S | y))``: the sensitive prompts name the target too.

    Args:
        joint: as in `SLoss`.
        separate: as in `SLoss`.
    """

    def objective(self, task: Task) -> Objective:
        prompt_sets = self._joint_prompts(task)
        sensitive_terms = self._sensitive_terms(prompt_sets, len(task.targets))
        return Objective((_target_term(task), *sensitive_terms))


@dataclass(frozen=True)
class SuperTSLoss(_SensitiveLoss):
    """``(mean_y l(Y; t_y), -mean_y l(S | y; t_y))``: each target y has a context t_y of its own.

    The paper does not say how to predict then; here each target is scored with its own context, and
    the sensitive probabilities are those with the context of the answered target. `ELRA` takes one
    rate for all contexts together, where one for each would be an equal reading.

    Args:
        joint: as in `SLoss`.
        separate: as in `SLoss`.
    """

    def objective(self, task: Task) -> Objective:
        copies = len(task.targets)
        vectors = len(task.context)

        # All target prompts with each of the contexts: a softmax per context.
        shifted = [task.target_prompts.shift(y * vectors) for y in range(copies)]
        target_term = Term(concatenate_prompts(shifted), ((copies, copies),), 1)

        joint_sets = []
        for prompts in self._joint_prompts(task):
            joint_sets.append(per_target_context(prompts, copies, vectors))
        sensitive_terms = self._sensitive_terms(joint_sets, copies)
        return Objective((target_term, *sensitive_terms), copies)


def per_target_context(prompts: PromptSet, copies: int, vectors: int) -> PromptSet:
    """Let prompts that come target by target use a copy of the context for each target.

    Args:
        prompts: as many of each target, in the order of the targets.
        copies: how many contexts there are, 1 or as many as targets.
        vectors: length of a context.
    """
    if copies == 1:
        return prompts
    targets = torch.arange(copies, device=prompts.slots.device)
    target_of_prompt = targets.repeat_interleave(len(prompts) // copies)
    return prompts.shift(target_of_prompt * vectors)


def _target_term(task: Task) -> Term:
    shape = (1, len(task.targets))
    return Term(task.target_prompts, (shape,), 1)
