"""Which losses a prompt is tuned with: the target's entropy and the sensitive attribute's.

Both are entropies of mean predictions over views, divided by their largest value. The target's
should fall, the sensitive attribute's should rise, so it enters with a minus sign.
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
        """The loss of each image, ``[images]``.

        Args:
            task: for the temperature.
            views: ``[images, kept, dim]``
            features: of the prompts, ``[images or 1, prompts, dim]``
        """
        entropies = []
        parts = features.split(
            [groups * classes for groups, classes in self.groups], dim=1
        )
        for part, (groups, _) in zip(parts, self.groups, strict=True):
            texts = part.unflatten(1, (groups, -1))  # [images, groups, classes, dim]
            log_p = task.log_probabilities(views.unsqueeze(1), texts)
            entropies.append(normalised_entropy(marginal(log_p)).mean(1))
        return self.sign * torch.stack(entropies).sum(0)


@dataclass(frozen=True)
class Objective:
    """The terms (target first) and how many copies of the context they share."""

    terms: tuple[PromptLoss, ...]
    copies: int = 1


class Loss(Protocol):
    """Says what is minimised; hashable, so that its prompts are made once per task."""

    def objective(self, task: Task) -> Objective:
        """The terms for this task."""


def objective_of(loss: Loss, task: Task) -> Objective:
    """The objective of a loss for a task, made once; raise if it is not a loss."""
    should = "`loss` should be hashable and have a method `objective` that returns an Objective"
    if not isinstance(loss, Hashable) or not callable(getattr(loss, "objective", None)):
        raise FairTTAError(f"{should} (got {loss!r}).")
    found = task.remember((loss, "objective"), lambda: loss.objective(task))
    if not isinstance(found, Objective) or not found.terms:
        raise FairTTAError(
            f"{should} with terms (got {found!r} of {type(loss).__name__})."
        )
    return found


@dataclass(frozen=True)
class TargetLoss(Loss):
    """``l(Y)``, the target's entropy alone: TPT's loss, up to the constant ``log |Y|``."""

    def objective(self, task: Task) -> Objective:
        return Objective((_target(task),))


@dataclass(frozen=True)
class _SensitiveLoss(Loss):
    joint: bool = False
    separate: bool = False

    def _joint_prompts(self, task: Task) -> list[PromptSet]:
        task = task.product if self.joint else task
        return [task.joint_prompts(attribute) for attribute in task.sensitive]

    def _terms(self, sets: list[PromptSet], groups: int) -> list[Term]:
        """Sensitive terms, to be made larger: one of all attributes, or one of each."""
        shapes = [(groups, len(prompts) // groups) for prompts in sets]
        if not self.separate:
            return [Term(concatenate_prompts(sets), tuple(shapes), -1)]
        return [
            Term(prompts, (shape,), -1)
            for prompts, shape in zip(sets, shapes, strict=True)
        ]


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
        sets = list((task.product if self.joint else task).sensitive_prompts.values())
        return Objective((_target(task), *self._terms(sets, 1)))


@dataclass(frozen=True)
class TSLoss(_SensitiveLoss):
    """``(l(Y), -mean_y l(S | y))``: the sensitive prompts name the target too.

    Args:
        joint: as in `SLoss`.
        separate: as in `SLoss`.
    """

    def objective(self, task: Task) -> Objective:
        sets = self._joint_prompts(task)
        return Objective((_target(task), *self._terms(sets, len(task.targets))))


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
        copies, vectors = len(task.targets), len(task.context)
        targets = concatenate_prompts(
            [task.target_prompts.shift(y * vectors) for y in range(copies)]
        )
        own = [
            per_target_context(prompts, copies, vectors)
            for prompts in self._joint_prompts(task)
        ]
        target = Term(targets, ((copies, copies),), 1)
        return Objective((target, *self._terms(own, copies)), copies)


def per_target_context(prompts: PromptSet, copies: int, vectors: int) -> PromptSet:
    """Prompts that come target by target, those of target y with the y-th copy of the context."""
    if copies == 1:
        return prompts
    which = torch.arange(copies, device=prompts.slots.device)
    return prompts.shift(which.repeat_interleave(len(prompts) // copies) * vectors)


def _target(task: Task) -> Term:
    return Term(task.target_prompts, ((1, len(task.targets)),), 1)
