"""OrthCali: project sensitive directions out of the prompts' features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta._linalg import (
    is_rounding,
    orthonormal_basis,
    pair_differences,
    to_cpu_float64,
    unit_features,
)
from fair_tta.errors import check_number
from fair_tta.methods._base import (
    CLASS_LOST,
    IMAGE_LOST,
    Needs,
    Outcome,
    TextFeatures,
    UsesTexts,
    fall_back_to_zero_shot,
    original_text_features,
    probabilities,
)
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class OrthCali(UsesTexts):
    """Project sensitive directions out of the target prompts' features, after calibrating them.

    ``P* = argmin_P |P - P0|^2 + lam/|D| sum_(i,j) |P z_i - P z_j|^2``, where P0 projects onto the
    complement of the sensitive prompts' features and D holds the pairs of joint prompts with the
    same target and different sensitive values. Closed form: ``P* = P0 (I + lam M)^-1`` with
    ``M = 1/|D| sum (z_i - z_j)(z_i - z_j)'``. Target features become ``P* q``, normalised again;
    image features are unchanged. No image is used, so P* is computed once.

    Chuang et al., *Debiasing Vision-Language Models via Biased Prompts*, 2023.
    ``OrthCali(lam=0, renormalise=False)`` is PRISM-mini (arXiv 2507.08979): images lose their part
    in the span of the sensitive prompts, and nothing is normalised again, so a class that leans
    towards the attribute has lower scores for all images.

    Differences from the reference implementation: the sensitive prompts and the pairs come from
    the user's names, as in the fairness paper, instead of hand-written lists; dependent
    sensitive prompts span only the space they span.

    Args:
        lam: the strength of the calibration; 0 is the projection alone and needs no joint prompts.
        renormalise: whether projected target features have length one again.

    Example:
        >>> OrthCali(lam=0)
        OrthCali(lam=0, renormalise=True)
    """

    lam: float = 1000.0
    renormalise: bool = True
    needs = Needs(sensitive=True)

    def __post_init__(self) -> None:
        check_number(
            "lam", self.lam, "be a finite number >= 0", lambda x: 0 <= x < math.inf
        )

    def _check_task(self, task: Task) -> None:
        # Raises if the template has no joint prompts, before any image is classified.
        if self.lam > 0:
            for attribute in task.sensitive:
                task.joint_prompts(attribute)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        projected = task.remember(
            self, lambda: self._project(task, original_text_features(task))
        )
        return _project_and_compare(task, features, *projected)

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        return _project_and_compare(task, features, *self._project(task, texts))

    def _project(
        self, task: Task, texts: TextFeatures
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return projected target features, which of them are lost, and the projected-out basis.

        Lost are targets of which only rounding is left, ``[(images,) targets]``. The basis is
        orthonormal, ``[(images,) directions, dim]``.
        """
        # In float64: calibration solves a system that is badly conditioned for large lam.
        q = to_cpu_float64(texts.target)
        if self.lam > 0:
            differences = torch.cat(
                [self._pair_differences(task, texts, a) for a in task.sensitive], -2
            )
            q = calibrate(q, differences, self.lam)
        sensitive = torch.cat(list(texts.sensitive.values()), -2)
        basis = orthonormal_basis(sensitive)
        projected = q - q @ basis.mT @ basis
        is_lost = is_rounding(projected, texts.target, task.text_floor)
        if self.renormalise:
            projected = unit_features(projected)
        like = texts.target
        return projected.to(like), is_lost.to(like.device), basis.to(like)

    @staticmethod
    def _pair_differences(task: Task, texts: TextFeatures, attribute: str) -> Tensor:
        """Return ``z_i - z_j`` for the pairs of an attribute, ``[(images,) pairs, dim]``."""
        joint = to_cpu_float64(texts.joint(attribute))
        by_target = joint.unflatten(-2, (len(task.targets), -1))
        return pair_differences(by_target).flatten(-3, -2)


def _project_and_compare(
    task: Task, features: Tensor, texts: Tensor, is_class_lost: Tensor, basis: Tensor
) -> Outcome:
    """Return probabilities from projected texts, and zero-shot's where only rounding is left."""
    image = features[:, :1]
    # P0 is symmetric, so scores are those of the projected image: of an image within the span of
    # the basis nothing but rounding is left, and all its scores are noise.
    projected_image = image - image @ basis.mT @ basis
    is_image_lost = is_rounding(projected_image, image, task.image_floor)
    return fall_back_to_zero_shot(
        task,
        features,
        probabilities(task, features, texts),
        {CLASS_LOST: is_class_lost, IMAGE_LOST: is_image_lost},
    )


def calibrate(q: Tensor, differences: Tensor, lam: float) -> Tensor:
    """Return ``(I + lam M)^-1 q`` for each row q, with ``M`` the mean of ``d d'`` over the rows d.

    By the Woodbury identity only a system as large as the number of pairs is solved.
    """
    n_pairs = differences.shape[-2]
    s = differences / math.sqrt(n_pairs)  # M = s' s
    identity = s.new_ones(n_pairs).diag()
    coefficients = lam * torch.linalg.solve(identity + lam * (s @ s.mT), s @ q.mT)
    calibrated: Tensor = q - coefficients.mT @ s
    return calibrated
