"""BalancedHead: a linear classifier, anchored at the prompts, from a few hundred class labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fair_tta.errors import FairTTAError, SmallReferenceWarning
from fair_tta.methods._base import Needs, Outcome, softmax
from fair_tta.methods._fitting import FittedMethod, ReferenceBatch
from fair_tta.methods._reference import Reference
from fair_tta.methods.corrections._offsets import (
    balancing_offsets,
    group_logits,
    mean_logits,
    subtract,
)
from fair_tta.prompts._task import Task

RIDGES = 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0
_SCALES = 1.0, 2.0, 3.0, 5.0, 8.0  # of the logits
_MIN_CELL_IMAGES = 4.0  # of a class with a perceived value: fewer count less
_FOLDS = 5
_LEAST, _FEW = 50, 200  # class labels


@dataclass(frozen=True)
class BalancedHead(FittedMethod):
    """Learns a linear correction of the logits from class labels, attribute values counting alike.

    With L the class logits, w = p(s | image), c0 the offsets of `LogitBalance` from all reference
    images and ``X = [(v - mean) / rms, w - mean w]`` of an image feature v,

        logits = scale (L - w c0) + X D

    where D minimises ``mean omega_n CE_n + ridge/2 |D|^2`` over the labelled images. The weights
    omega let perceived attribute values count alike within each class. The scale (1, 2, 3, 5 or 8)
    has the lowest loss at D = 0, the ridge (0.003 to 3) the lowest loss in five folds; where none
    is below that of D = 0, D is 0. Attribute labels are not needed.

    A method of this library, with relatives: DFR (Kirichenko et al., 2023) fits the last layer
    again on data whose groups are balanced by attribute labels; CLAP (Silva-Rodriguez et al., 2024)
    keeps a linear probe near the text features.

    Differences from the reference implementation: none, this is it.

    Args:
        reference: what `FairTPTClassifier.fit` has found; without it nothing can be answered.

    Example:
        >>> BalancedHead()
        BalancedHead(reference=None)
    """

    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True, reference_labels=True)
    _recommended_images = _FEW

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """``scale``, ``weights`` ``[dim, targets]``, ``bias`` and ``offsets.ATTRIBUTE``."""
        parts, known, features = [], [], []
        for batch in batches:
            parts.append(group_logits(task, batch.features))
            known.append(batch.classes)
            features.append(batch.features[batch.classes >= 0])
        classes, means = torch.cat(known), mean_logits(parts)
        some = classes >= 0
        y, v = classes[some], torch.cat(features)
        if len(y) < _LEAST:
            raise FairTTAError(
                f"BalancedHead needs the classes of {_LEAST} or more images, better {_FEW} (got "
                f"{len(y)}): pass `labels`, or choose LogitBalance(), which needs none."
            )
        if len(y) < _FEW:
            text = f"BalancedHead was fitted on {len(y)} class labels; with fewer than {_FEW} what "
            warnings.warn(
                f"{text}it has learnt is uncertain.",
                SmallReferenceWarning,
                stacklevel=6,
            )
        base = {name: balancing_offsets(means, name) for name in task.sensitive}
        anchor = torch.cat([subtract(part, base) for part in parts])[some]
        perceived = [
            torch.cat([of[a] for _, of in parts])[some].softmax(-1) for a in base
        ]
        omega = cell_weights(y, perceived)
        scale = min(_SCALES, key=lambda scale: log_loss(scale * anchor, y, omega))
        w = torch.cat(perceived, 1)
        mean, shares = v.mean(0), w.mean(0)
        rms = (v - mean).square().sum(1).mean().sqrt()
        if rms < task.image_floor:  # they are alike, and their differences are rounding
            rms = torch.full_like(rms, torch.inf)
        x = torch.cat([(v - mean) / rms, w - shares], 1)
        d = _cross_validated_head(x, scale * anchor, y, omega)
        of_image, of_values = d[: v.shape[1]] / rms, d[v.shape[1] :]
        sizes = [one.shape[1] for one in perceived]
        taken = zip(base.items(), of_values.split(sizes), strict=True)
        return {
            "scale": torch.tensor(scale, dtype=torch.float64, device="cpu"),
            "weights": of_image,
            "bias": -mean @ of_image - shares @ of_values,
            **{
                f"offsets.{name}": scale * offsets - own
                for (name, offsets), own in taken
            },
        }

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        image, learnt = features[:, :1], self._prepared(task)
        offsets = {name: learnt[f"offsets.{name}"] for name in task.sensitive}
        target, values = group_logits(task, image)
        logits = learnt["scale"] * target + image @ learnt["weights"] + learnt["bias"]
        return Outcome(softmax(subtract((logits, values), offsets)))


def cell_weights(classes: Tensor, attributes: Iterable[Tensor]) -> Tensor:
    """Return weights of images, mean 1, under which perceived values count alike in each class.

    Classes keep their shares, cells of fewer than 4 images count less, and the weights of several
    attributes are averaged.

    Args:
        classes: ``[images]``, indices of the classes.
        attributes: probabilities of the values of each attribute, ``[images, values]``.
    """
    one_hot = torch.nn.functional.one_hot(classes).double()
    class_sizes = one_hot.sum(0)
    weights_by_attribute = []
    for perceived in attributes:
        cell_sizes = (one_hot.T @ perceived).clamp(min=_MIN_CELL_IMAGES)
        weights = (perceived / cell_sizes[classes]).sum(1)
        class_weights = one_hot.T @ weights
        weights = weights * (class_sizes / class_weights)[classes]
        weights_by_attribute.append(weights / weights.mean())
    return torch.stack(weights_by_attribute).mean(0)


def log_loss(logits: Tensor, classes: Tensor, weights: Tensor) -> float:
    """Return the weighted mean of minus the log of the probability of the true class."""
    log_probabilities = logits.log_softmax(-1).gather(1, classes[:, None]).squeeze(1)
    return float(-(weights * log_probabilities).mean())


def _cross_validated_head(
    x: Tensor, anchor: Tensor, y: Tensor, omega: Tensor
) -> Tensor:
    """D, with the ridge that folds choose; zero if none has a lower loss."""
    folds = torch.from_numpy(np.random.default_rng(0).permutation(len(y)) % _FOLDS)
    losses: dict[float | None, float] = {None: log_loss(anchor, y, omega)}
    for ridge in RIDGES:
        held_out = anchor.clone()
        for fold in range(_FOLDS):
            own = folds != fold
            held_out[~own] += x[~own] @ anchored_head(
                x[own], anchor[own], y[own], omega[own], ridge
            )
        losses[ridge] = log_loss(held_out, y, omega)
    best = min(losses, key=losses.__getitem__)
    if best is None:
        return x.new_zeros(x.shape[1], anchor.shape[1])
    return anchored_head(x, anchor, y, omega, best)


def anchored_head(
    x: Tensor, anchor: Tensor, y: Tensor, omega: Tensor, ridge: float
) -> Tensor:
    """The D that minimises the weighted mean cross-entropy of ``anchor + x D`` plus ridge/2 |D|^2.

    By Boehning's bound of the Hessian: one inverse, and every step descends.
    """
    one_hot, weighted = (
        torch.nn.functional.one_hot(y, anchor.shape[1]),
        x.T * omega / len(x),
    )
    bound = 0.5 * weighted @ x + ridge * torch.eye(
        x.shape[1], dtype=x.dtype, device=x.device
    )
    inverse, d = torch.linalg.inv(bound), x.new_zeros(x.shape[1], anchor.shape[1])
    for _ in range(300):
        step = inverse @ (
            weighted @ (one_hot - (anchor + x @ d).softmax(-1)) - ridge * d
        )
        d = d + step
        if step.abs().max() < 1e-9:
            break
    return d
