"""BendVLM: prompts as near to one group's images as to another's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fair_tta._linalg import is_rounding, pair_differences, project_out, unit_features
from fair_tta.errors import check_count
from fair_tta.methods._base import (
    CLASS_LOST,
    Needs,
    Outcome,
    fall_back_to_zero_shot,
    probabilities,
)
from fair_tta.methods._fitting import FittedMethod, ReferenceBatch, gather_batches
from fair_tta.methods._reference import Reference
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class BendVLM(FittedMethod):
    """Bends each class's prompt until it is as near to the images of one group as to another's.

    First ``e0 = norm(P0 T_y)``, where P0 projects onto the complement of the sensitive prompts and
    of ``(z_i - z_j) / 2`` of all pairs of joint prompts of the class. Then, with mu_s the mean
    feature of the `neighbours` reference images of value s that are nearest to e0, the prompt is
    the e with the largest ``<e, e0>`` of those with ``|e| = 1`` and ``<e, mu_s - mu_1> = 0`` for
    all s. Closed form: ``e = norm((I - Q Q') e0)``, the columns of Q an orthonormal basis of the
    ``mu_s - mu_1``. Prompts and conditions of several attributes are taken together. Images stay
    as they are, so it costs nothing per image. It needs joint prompts.

    Gerych et al., 2024; public code: waltergerych/bend_vlm.

    Differences from the reference implementation: the closed form in place of an iterative solver
    (SLSQP); a test compares it with a constrained optimiser. Joint prompts in place of sentences
    that a language model has rewritten; with three or more values the differences of pairs depend
    on one another: they span only what they span, where the public code, which asks a truncated SVD
    for as many directions as rows, also removes arbitrary directions that belong to no prompt;
    where a value has fewer images than `neighbours`, all of them count; no rule that chooses their
    number. Where a step leaves nothing of a class's prompt but rounding, answers are zero-shot's.
    Features of all reference images are held while it is fitted.

    Args:
        neighbours: how many images of each value; the paper takes 100 for gender and 10 for race.
        reference: what `FairTPTClassifier.fit` has found; without it nothing can be answered.

    Example:
        >>> BendVLM(neighbours=10)
        BendVLM(neighbours=10, reference=None)
    """

    neighbours: int = 100
    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True, reference_sensitive=True)
    _fit_settings: ClassVar[tuple[str, ...]] = ("neighbours",)

    def __post_init__(self) -> None:
        check_count("neighbours", self.neighbours)

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """``texts``, the bent prompts: ``[targets, dim]``."""
        start = debiased(task)
        features, values = gather_batches(batches)
        differences = []
        for attribute, place in values.items():
            groups = [
                features[place == value]
                for value in range(len(task.sensitive[attribute]))
            ]
            means = torch.stack(
                [self._mean_nearest(start, group) for group in groups], 1
            )
            differences.append(means[:, 1:] - means[:, :1])
        return {"texts": bend(start, torch.cat(differences, 1), task.text_floor)}

    def _mean_nearest(self, start: Tensor, group: Tensor) -> Tensor:
        """For each prompt the mean of the images that are nearest: ``[targets, dim]``."""
        order = (start @ group.mT).argsort(dim=-1, descending=True, stable=True)
        return torch.stack([group[row[: self.neighbours]].mean(0) for row in order])

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        texts = self._prepared(task)["texts"]
        found = probabilities(task, features, texts)
        is_nothing = texts.square().sum(-1) == 0
        return fall_back_to_zero_shot(task, features, found, {CLASS_LOST: is_nothing})


def debiased(task: Task) -> Tensor:
    """``e0`` of each class, in float64 and on the CPU: ``[targets, dim]``."""
    target = task.target_features.to("cpu", torch.float64)
    sensitive = [values.to(target) for values in task.sensitive_features.values()]
    joint = [
        task.own_features(task.joint_prompts(attribute))
        .to(target)
        .unflatten(0, (len(target), -1))
        for attribute in task.sensitive
    ]
    every = torch.cat(sensitive).expand(len(target), -1, -1)
    pairs = [pair_differences(z) / 2 for z in joint]
    return bend(target, torch.cat([every, *pairs], 1), task.text_floor)


def bend(start: Tensor, differences: Tensor, floor: float) -> Tensor:
    """Return the unit vectors nearest to rows that are orthogonal to their differences.

    Args:
        start: ``[targets, dim]``
        differences: ``[targets, n, dim]``
        floor: what is shorter, relative to its row, is rounding, and becomes zeros.
    """
    rest = project_out(start.unsqueeze(1), differences).squeeze(1)
    lost = is_rounding(rest, start, floor).unsqueeze(-1)
    return torch.where(lost, 0.0, unit_features(rest))
