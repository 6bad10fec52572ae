"""Zero: a majority vote of confident views."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fair_tta.methods._base import Adapter, Needs, Outcome
from fair_tta.methods.tuning._entropy import check_rho, count_kept, most_confident
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class Zero(Adapter):
    """Majority vote of the most confident views, each at zero temperature.

    ``argmax_y sum_i [y = argmax_y' p(y' | view i)]`` over the ``max(1, floor(rho N))`` views with
    the lowest target entropy. `Prediction.probabilities` are the shares of the votes. Of classes
    with equally many votes, those that lose the tie get the next smaller float, so the answer is
    the most probable class here too. Nothing is tuned, so the sensitive probabilities are
    zero-shot's.

    Farina et al., *Frustratingly Easy Test-Time Adaptation of Vision-Language Models*, 2024.

    Differences from the reference implementation: votes are counted exactly, where the public code
    sums softmaxes at a temperature of machine epsilon, soft in half precision; ties go to the class
    with the larger sum of probabilities over the kept views, where the public code asks the
    discarded views; rho is 0.1 as in the fairness paper, not 0.3.

    Args:
        rho: the fraction of views that vote.

    Example:
        >>> Zero(rho=0.3)
        Zero(rho=0.3)
    """

    rho: float = 0.1
    needs = Needs(views=True)

    def __post_init__(self) -> None:
        check_rho(self.rho)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        log_p = task.log_probabilities(features, task.target_features)
        kept = most_confident(log_p, self.rho)
        p = log_p.take_along_dim(
            kept.unsqueeze(-1), 1
        ).exp()  # [images, views, targets]
        n_views = p.shape[1]
        n_targets = p.shape[2]
        votes = one_hot(p.argmax(-1), n_targets).sum(1)

        # Of the classes with most votes the one with the largest sum of probabilities wins.
        has_most = votes == votes.amax(-1, keepdim=True)
        winner = p.sum(1).masked_fill(~has_most, -1).argmax(-1)
        loses_tie = has_most & (one_hot(winner, n_targets) == 0)

        shares = votes / p.new_tensor(n_views)
        just_below = shares.nextafter(torch.zeros_like(shares))
        return Outcome(
            torch.where(loses_tie, just_below, shares),
            views_kept=count_kept(features.shape[1], self.rho),
        )
