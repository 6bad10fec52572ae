"""BendVLM: prompts equally near to the images of all groups."""

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
    """Bend each class's prompt until it is equally near to the images of all groups.

    First ``e0 = norm(P0 T_y)``, where P0 projects onto the complement of the sensitive prompts and
    of ``(z_i - z_j) / 2`` of all pairs of joint prompts of the class. Then, with mu_s the mean
    feature of the `neighbours` reference images of value s that are nearest to e0, the prompt is
    the e with the largest ``<e, e0>`` of those with ``|e| = 1`` and ``<e, mu_s - mu_1> = 0`` for
    all s. Closed form: ``e = norm((I - Q Q') e0)``, the columns of Q an orthonormal basis of the
    ``mu_s - mu_1``. Prompts and conditions of several attributes are combined. Image features are
    unchanged, so an image costs a plain zero-shot call. It needs joint prompts.

    Gerych et al., 2024; public code: waltergerych/bend_vlm.

    Differences from the reference implementation: the closed form instead of an iterative solver
    (SLSQP); a test compares it with a constrained optimiser. Joint prompts instead of sentences
    that a language model has rewritten; with three or more values the differences of pairs depend
    on one another and span fewer directions than there are rows, where the public code, which asks
    a truncated SVD for as many directions as rows, also removes arbitrary ones that belong to no
    prompt; where a value has fewer images than `neighbours`, all of them count; no rule chooses
    their number. Where a step leaves only rounding of a class's prompt, answers are zero-shot's.
    Features of all reference images are held in memory while it is fitted.

    Args:
        neighbours: images of each value; the paper uses 100 for gender and 10 for race.
        reference: what `FairTPTClassifier.fit` learned; without it images are refused.

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
        """Return ``texts``, the bent prompts, ``[targets, dim]``."""
        start = remove_sensitive(task)
        features, value_indices = gather_batches(batches)
        differences = []
        for attribute, indices in value_indices.items():
            means = []
            for value in range(len(task.sensitive[attribute])):
                group = features[indices == value]
                means.append(self._mean_nearest(start, group))
            mu = torch.stack(means, 1)  # [targets, values, dim]
            # Differences to the first value span all differences between values.
            differences.append(mu[:, 1:] - mu[:, :1])
        return {"texts": bend(start, torch.cat(differences, 1), task.text_floor)}

    def _mean_nearest(self, start: Tensor, group: Tensor) -> Tensor:
        """Return the mean of the images nearest to each prompt, ``[targets, dim]``."""
        # Stable, so that of equally near images the earlier ones count on every machine.
        order = (start @ group.mT).argsort(dim=-1, descending=True, stable=True)
        return torch.stack([group[row[: self.neighbours]].mean(0) for row in order])

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        texts = self._prepared(task)["texts"]
        is_lost = texts.square().sum(-1) == 0  # see `bend`
        return fall_back_to_zero_shot(
            task, features, probabilities(task, features, texts), {CLASS_LOST: is_lost}
        )


def remove_sensitive(task: Task) -> Tensor:
    """Return ``e0`` of each class, ``[targets, dim]``, in float64 and on the CPU."""
    target = task.target_features.to("cpu", torch.float64)
    sensitive = torch.cat([z.to(target) for z in task.sensitive_features.values()])
    # Each class has its own directions: the sensitive prompts, and the pairs of its joint prompts.
    directions = [sensitive.expand(len(target), -1, -1)]
    for attribute in task.sensitive:
        joint = task.own_features(task.joint_prompts(attribute)).to(target)
        by_target = joint.unflatten(0, (len(target), -1))
        directions.append(pair_differences(by_target) / 2)
    return bend(target, torch.cat(directions, 1), task.text_floor)


def bend(start: Tensor, differences: Tensor, floor: float) -> Tensor:
    """Return the unit vectors nearest to rows that are orthogonal to their differences.

    Args:
        start: ``[targets, dim]``
        differences: ``[targets, n, dim]``
        floor: a result shorter than this, relative to its row, is rounding and becomes zeros.
    """
    orthogonal = project_out(start.unsqueeze(1), differences).squeeze(1)
    is_lost = is_rounding(orthogonal, start, floor).unsqueeze(-1)
    return torch.where(is_lost, 0.0, unit_features(orthogonal))
