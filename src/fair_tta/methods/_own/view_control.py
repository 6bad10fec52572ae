"""ViewControl: the views of an image are its control group."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta._linalg import centred
from fair_tta._prompts.task import Task
from fair_tta.errors import check_number
from fair_tta.methods._base import Needs, Outcome, Texts, UsesTexts, softmax

_LEAST_VARIANCE = 1e-6  # of logits over views; what varies less is rounding


@dataclass(frozen=True)
class ViewControl(UsesTexts):
    """Takes from each image what its perceived sensitive values add to the classes over its views.

    Views show the same target with varying x, the perceived probabilities of the sensitive values,
    and u, the logits of the classes, each minus their mean. A ridge regression of u on x over the
    views, shrunk towards the association of the prompts, estimates what x adds:
    ``B = (C_xx + r I)^-1 (C_xu + r g tau (z - mean z)(T - mean T)')``. C are covariances, r is
    ``ridge`` times the variance of u, and g is that of `AssociationCorrection`. With ``a`` for
    `mean_share` the logits are ``(1-a) u_0 + a mean u - ((1-a) x_0 + a mean x - 1/S) B``. What
    several attributes add is added up. With one view it is ``AssociationCorrection(strength=1)``.

    A method of this library. It can come second, as in ``TPT() >> ViewControl()``.

    Differences from the reference implementation: none, this is it.

    Args:
        ridge: how much the prompts' association counts against that of the views.
        mean_share: how much the mean of the views counts against the image itself.

    Example:
        >>> ViewControl(ridge=0.5)
        ViewControl(ridge=0.5, mean_share=0.25)
    """

    ridge: float = 1 / 7.2
    mean_share: float = 0.25
    needs = Needs(sensitive=True, views=True)

    def __post_init__(self) -> None:
        check_number("ridge", self.ridge, "be a positive number", lambda x: 0 < x < math.inf)
        check_number("mean_share", self.mean_share, "lie in [0, 1]", lambda x: 0 <= x <= 1)

    def adapt_texts(self, task: Task, features: Tensor, texts: Texts) -> Outcome:
        u = centred(task.logits(features, texts.target), -1)
        logits = self._blend(u)
        for values in texts.sensitive.values():
            x = task.logits(features, values).softmax(-1)
            slope = self._slope(x, u, prior_slope(task, features[:, :1], texts.target, values))
            logits = logits - (self._blend(x) - 1 / x.shape[-1]) @ slope
        return Outcome(softmax(logits), views_kept=features.shape[1])

    def _blend(self, of_views: Tensor) -> Tensor:
        """The image and the mean of its views: ``[images, views, k] -> [images, 1, k]``."""
        return of_views[:, :1].lerp(of_views.mean(1, keepdim=True), self.mean_share)

    def _slope(self, x: Tensor, u: Tensor, prior: Tensor) -> Tensor:
        """``B`` of ``[images, views, values]`` and ``[images, views, targets]``: ``[images, values,
        targets]``. All is divided by the variance of u, so that no system is singular.
        """
        x, u = centred(x, 1), centred(u, 1)
        views, targets = u.shape[1:]
        variance = u.square().mean((1, 2), keepdim=True) * targets / (targets - 1)
        weights = x.mT / (views * variance.clamp(min=_LEAST_VARIANCE))
        ridge = self.ridge * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        slope: Tensor = torch.linalg.solve_ex(
            weights @ x + ridge, weights @ u + self.ridge * prior
        ).result
        return slope


def prior_slope(task: Task, image: Tensor, target: Tensor, values: Tensor) -> Tensor:
    """The slope by the prompts alone: ``g tau (z - mean z)(T - mean T)'``."""
    direction = task.logits(image, values).softmax(-1) @ centred(values, -2)
    return contained_share(image, direction) * task.logits(centred(values, -2), centred(target, -2))


def contained_share(image: Tensor, direction: Tensor) -> Tensor:
    """How much of a direction an image contains, from 0 to 1: ``[images, 1, 1]``."""
    length = direction.square().sum(-1, keepdim=True).clamp(min=torch.finfo(image.dtype).tiny)
    return ((image * direction).sum(-1, keepdim=True) / length).clamp(0, 1)
