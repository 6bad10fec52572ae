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
    Texts,
    UsesTexts,
    fall_back_to_zero_shot,
    original_texts,
    probabilities,
)
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class OrthCali(UsesTexts):
    """Orthogonal projection and calibration of the target prompts' features.

    ``P* = argmin_P |P - P0|^2 + lam/|D| sum_(i,j) |P z_i - P z_j|^2``, where P0 projects onto the
    complement of the sensitive prompts' features and D holds the pairs of joint prompts with the
    same target and different sensitive values. Closed form: ``P* = P0 (I + lam M)^-1`` with
    ``M = 1/|D| sum (z_i - z_j)(z_i - z_j)'``. Target features become ``P* q``, normalised again;
    image features stay as they are. No image is used, so P* is computed once.

    Chuang et al., *Debiasing Vision-Language Models via Biased Prompts*, 2023.
    ``OrthCali(lam=0, renormalise=False)`` is PRISM-mini (arXiv 2507.08979): images lose their part
    in the span of the sensitive prompts, and nothing is normalised again. A class that leans
    to the attribute then has lower scores on the whole.

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
        for attribute in task.sensitive if self.lam > 0 else ():
            task.joint_prompts(attribute)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        projected = task.remember(
            self, lambda: self._project(task, original_texts(task))
        )
        return _answer(task, features, *projected)

    def adapt_texts(self, task: Task, features: Tensor, texts: Texts) -> Outcome:
        return _answer(task, features, *self._project(task, texts))

    def _project(self, task: Task, texts: Texts) -> tuple[Tensor, Tensor, Tensor]:
        """Return projected classes, of which only rounding is left, and what is projected out.

        The last is an orthonormal basis, ``[(images,) values, dim]``.
        """
        q = to_cpu_float64(texts.target)
        if self.lam > 0:
            by_target = (
                to_cpu_float64(texts.joint(attribute)).unflatten(
                    -2, (len(task.targets), -1)
                )
                for attribute in task.sensitive
            )
            differences = [pair_differences(z).flatten(-3, -2) for z in by_target]
            q = calibrate(q, torch.cat(differences, -2), self.lam)
        basis = orthonormal_basis(torch.cat([*texts.sensitive.values()], -2))
        projected = q - q @ basis.mT @ basis
        lost = is_rounding(projected, texts.target, task.text_floor)
        found = unit_features(projected) if self.renormalise else projected
        like = texts.target
        return found.to(like), lost.to(like.device), basis.to(like)


def _answer(
    task: Task, features: Tensor, texts: Tensor, lost: Tensor, basis: Tensor
) -> Outcome:
    image = features[:, :1]
    # scores are those of the image's rest, as P0 is symmetric: of an image in the span all are 0
    # but for rounding; in the precision of the features, of which it is a small part
    rest = image - image @ basis.mT @ basis
    lost_image = is_rounding(rest, image, task.image_floor)
    found = probabilities(task, features, texts)
    return fall_back_to_zero_shot(
        task, features, found, {CLASS_LOST: lost, IMAGE_LOST: lost_image}
    )


def calibrate(q: Tensor, differences: Tensor, lam: float) -> Tensor:
    """``(I + lam M)^-1 q`` for each row q, with ``M`` the mean of ``d d'`` over the rows d.

    By the Woodbury identity only a system as large as the number of pairs is solved.
    """
    s = differences / math.sqrt(differences.shape[-2])
    itself = s.new_ones(s.shape[-2]).diag()
    amounts = lam * torch.linalg.solve(itself + lam * (s @ s.mT), s @ q.mT)
    calibrated: Tensor = q - amounts.mT @ s
    return calibrated
