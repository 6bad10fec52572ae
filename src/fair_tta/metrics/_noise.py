"""Rates of all groups in all runs, with draws of how uncertain they are together.

Each class of each group is a cell; images are taken as drawn within cells. To each cell one image
that turns from right to wrong and one that turns from wrong to right are added, the first run being
on one side and all others on the other: so the change of one rate has the interval of Bonett and
Price (2012), and the difference of two cells that of Agresti and Caffo (2000). Noise is Gaussian
with the covariance of the smoothed cells: each image has a random weight, the same in all runs.
Images of one cluster, such as a person, share a weight, whichever cells they are in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fair_tta.metrics._columns import Columns, Floats, Ints

DRAWS = 1000  # and as many mirrored
_AT_ONCE = 20_000_000  # weights
_DISCRETE = 2  # images: rates of few vary in steps, so noise of one run is wider by 2 / n


@dataclass(frozen=True, eq=False)
class Rates:
    """Rates that are linear in the shares of answers of each cell; 0 where there are no images.

    Attributes:
        right: accuracy of each class in each group, ``[..., groups, classes]``.
        answered: how often each answer is given in each group, ``[..., groups, classes]``.
        of_group: accuracy of each group, ``[..., groups]``.
        n: images of each class in each group, ``[groups, classes]``.
    """

    right: Floats
    answered: Floats
    of_group: Floats
    n: Floats

    @property
    def overall(self) -> Floats:
        """Accuracy: ``[...]``."""
        share: Floats = (self.of_group * self.n.sum(1)).sum(-1) / self.n.sum()
        return share

    @property
    def false_alarms(self) -> Floats:
        """How often images of other classes get an answer: ``[..., groups, classes]``."""
        all_of_group = self.n.sum(-1, keepdims=True)
        alarms: Floats = self.answered * all_of_group - self.right * self.n
        alarms /= np.maximum(1, all_of_group - self.n)
        return alarms


@dataclass(frozen=True, eq=False)
class Noise:
    """What was counted of several runs on the same images, and how uncertain it is.

    Attributes:
        n: images of each class in each group, ``[groups, classes]``.
        seen: rates as counted, for each run.
        smoothed: rates with the added images, for each run.
        draws: Gaussian noise of the smoothed rates, for each run, draws in front.
    """

    n: Floats
    seen: list[Rates]
    smoothed: list[Rates]
    draws: list[Rates]


@lru_cache(maxsize=4)
def noise_of(columns: Columns, runs: tuple[int, ...]) -> Noise:
    """Count runs of these columns; the first is the one that the others are compared with."""
    groups, classes = len(columns.groups), len(columns.targets)
    cell, unit, answers, weight = _units(columns, runs)
    units = int(unit.max()) + 1
    of_cells = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[of_cells], np.arange(groups * classes + 1))
    some = np.flatnonzero(np.diff(starts))
    n = np.zeros((groups, classes))
    shape = (groups, classes, len(runs), classes)
    seen, smoothed = np.zeros(shape), np.zeros(shape)
    parts = []
    for k, place in enumerate(some):
        g, c = divmod(int(place), classes)
        rows = of_cells[starts[place] : starts[place + 1]]
        one_hot = np.eye(classes)[answers[:, rows].T]
        counts = weight[rows] ** 2
        size = counts.sum()
        is_right = np.eye(classes)[c]
        wrong = (1 - is_right) / max(1, classes - 1)
        rest = len(runs) - 1
        added = np.array([[is_right, *[wrong] * rest], [wrong, *[is_right] * rest]])
        total = np.tensordot(counts, one_hot, 1)
        n[g, c], seen[g, c] = size, total / size
        smoothed[g, c] = (total + added.sum(0)) / (size + 2)
        residuals = np.concatenate([one_hot * weight[rows, None, None], added])
        residuals -= np.concatenate([weight[rows], [1, 1]])[:, None, None] * smoothed[g, c]
        if columns.clusters is not None:
            residuals *= np.sqrt(units / max(1, units - 1))
        members = np.concatenate([unit[rows], [units + 2 * k, units + 2 * k + 1]])
        if not rest:
            residuals *= 1 + _DISCRETE / size
        parts.append((g, c, members, residuals / (size + 2)))
    width = units + 2 * len(some)
    right: Any = np.zeros((2 * DRAWS, len(runs), groups, classes), np.float32)  # for speed
    answered = np.zeros_like(right)
    of_group = np.maximum(1, n.sum(1))
    generator = np.random.default_rng(0)
    block = max(1, _AT_ONCE // width)
    for first in range(0, DRAWS, block):
        weights = generator.standard_normal((min(block, DRAWS - first), width), np.float32)
        here = slice(first, first + len(weights))
        for g, c, members, residuals in parts:
            flat = residuals.reshape(len(members), -1).astype(np.float32)
            z = (weights[:, members] @ flat).reshape(-1, len(runs), classes)
            right[here, :, g, c] = z[..., c]
            answered[here, :, g] += z * np.float32(n[g, c] / of_group[g])
    for array in (right, answered):
        array[DRAWS:] = -array[:DRAWS]

    def rates(shares: Floats, added: int) -> list[Rates]:
        own = np.einsum("gcrc->rgc", shares)
        given = np.einsum("gc,gcra->rga", n, shares) / of_group[:, None]
        hits = np.einsum("gc,gcrc->rg", n, seen)
        groups = (hits + added) / (of_group + 2 * added)  # cells would be smoothed too often
        return [Rates(own[r], given[r], groups[r], n) for r in range(len(runs))]

    return Noise(
        n,
        rates(seen, 0),
        rates(smoothed, 1),
        [
            Rates(right[:, r], answered[:, r], (right[:, r] * n).sum(-1) / of_group, n)
            for r in range(len(runs))
        ],
    )


def _units(columns: Columns, runs: tuple[int, ...]) -> tuple[Ints, Ints, Ints, Floats]:
    """Cell, unit, answers and weight of each row of what is drawn.

    Independent images with the same answers in all runs are one row, so that the order of images
    does not matter and many images cost no more than few.
    """
    answers = np.stack([columns.answers[run] for run in runs])
    cell = columns.group * len(columns.targets) + columns.truth
    if columns.clusters is not None:
        return cell, columns.clusters, answers, np.ones(len(cell))
    code = cell
    for given in answers:
        _, code = np.unique(code * len(columns.targets) + given, return_inverse=True)
    _, first, counts = np.unique(code, return_index=True, return_counts=True)
    return cell[first], np.arange(len(first)), answers[:, first], np.sqrt(counts)
