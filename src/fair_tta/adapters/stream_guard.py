"""When a method that learns from a stream had better not answer, from running sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fair_tta.adapters.association_correction import centred
from fair_tta.errors import FairTTAError, check_number
from fair_tta.text.task import Task
from fair_tta.tuning.entropy import normalised_entropy

_NO_CHANGE = 1e-6  # of a probability from image to image: the rounding of single precision


@dataclass(frozen=True)
class StreamGuard:
    """What has to be the case before a stream is balanced, for every attribute.

    - At least `least` images were seen.
    - The model perceives the attribute: the mean normalised entropy of what it perceives is at most
      `most_entropy`.
    - It can tell attribute and target apart: R^2 of the logits of the classes, minus their mean, on
      what is perceived is at most `most_r_squared`.
    - Nothing drifts: for no value is the mean probability over the last `window` images further
      than `drift` standard errors from that over all images before them. It is looked at once there
      are as many before. With 5, images that do not drift raise one alarm in thousands of windows;
      a change of a value's share from 0.5 to 0.7 raises one with 200 images.

    Args:
        least: number of images.
        window: number of images.
        drift: number of standard errors.
        most_entropy: from 0 to 1.
        most_r_squared: from 0 to 1.
    """

    least: int = 300
    window: int = 200
    drift: float = 5.0
    most_entropy: float = 0.8
    most_r_squared: float = 0.7

    def __post_init__(self) -> None:
        for name in ("least", "window"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise FairTTAError(f"`{name}` should be a number of images (got {value!r}).")
        for name in ("drift", "most_entropy", "most_r_squared"):
            check_number(name, getattr(self, name), "be 0 or more", lambda x: x >= 0)

    def objection(
        self, task: Task, images: int, sums: Mapping[str, Tensor], recent: Mapping[str, Tensor]
    ) -> str | None:
        """Why the next image should not be balanced, None if it may be.

        Args:
            task: the text side.
            images: how many were seen.
            sums: of `perception_sums` over them.
            recent: ``{attribute: [window, values]}``, what was perceived of the last of them.
        """
        if images < self.least:
            return f"{images} images were seen, {self.least} are needed"
        for attribute, names in task.sensitive.items():
            entropy = float(sums[f"entropy.{attribute}"]) / images
            if entropy > self.most_entropy:
                return f"the model does not perceive {attribute!r} (mean entropy {entropy:.2f})"
            explained = r_squared_of(sums, attribute, images)
            if explained > self.most_r_squared:
                return f"the model cannot tell {attribute!r} from the target (R^2 {explained:.2f})"
            last = recent[attribute][-self.window :]
            shifts = drift_of(sums, last, attribute, images)
            if len(last) == self.window and float(shifts.abs().max()) > self.drift:
                value = list(names)[int(shifts.argmax())]
                return (
                    f"what is perceived of {attribute!r} drifts ({value!r} is seen more often than "
                    "before): reset the stream if this is to stay"
                )
        return None


def perception_sums(task: Task, features: Tensor) -> dict[str, Tensor]:
    """What `StreamGuard` looks at, of images ``[images, dim]``; sums of several batches add up."""
    u = centred(task.logits(features, task.target_features.to(features)), -1)
    sums = {"u": u.sum(0), "uu": u.square().sum()}
    for name, values in task.sensitive_features.items():
        log_w = task.log_probabilities(features, values.to(features))
        w = log_w.exp()
        sums |= {
            f"entropy.{name}": normalised_entropy(log_w).sum(),
            f"w.{name}": w.sum(0),
            f"ww.{name}": w.T @ w,
            f"wu.{name}": w.T @ u,
        }
    return sums


def r_squared_of(sums: Mapping[str, Tensor], attribute: str, images: int) -> float:
    """`fair_tta.metrics.r_squared` from running sums; NaN where that is NaN."""
    w, u = sums[f"w.{attribute}"], sums["u"]
    total = float(sums["uu"] - u @ u / images)
    if images <= len(w) or total <= 1e-20 * images * len(u):
        return math.nan
    spread = sums[f"ww.{attribute}"] - torch.outer(w, w) / images
    common = sums[f"wu.{attribute}"] - torch.outer(w, u) / images
    sizes, basis = torch.linalg.eigh(spread)
    is_seen = sizes > max(_NO_CHANGE**2 * images, 1e-12 * float(sizes.max()))
    explained = (basis[:, is_seen].T @ common).square().sum(1) / sizes[is_seen]
    return min(1.0, float(explained.sum()) / total)


def drift_of(sums: Mapping[str, Tensor], recent: Tensor, attribute: str, images: int) -> Tensor:
    """How far recent means are from those before, in standard errors: ``[values]``.

    Zeros as long as there are fewer images before than recent ones.
    """
    w, last = sums[f"w.{attribute}"], len(recent)
    before = images - last
    if not last or before < last:
        return torch.zeros_like(w)
    mean = w / images
    variance = sums[f"ww.{attribute}"].diagonal() / images - mean.square()
    error = (variance.clamp(min=_NO_CHANGE**2) * (1 / last + 1 / before)).sqrt()
    return (recent.mean(0) - (w - recent.sum(0)) / before) / error
