"""Rates of classes and groups in several runs, and Gaussian noise of all of them together.

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
from typing import Any, TypeAlias

import numpy as np

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import GroupBy
from fair_tta.metrics._types import Floats, Ints

DRAWS = 1000  # and as many mirrored
_AT_ONCE = 20_000_000  # weights
_DISCRETE = (
    2  # images: rates of few vary in steps, so noise of one run is wider by 2 / n
)


@dataclass(frozen=True, eq=False)
class CellRates:
    """Rates that are linear in the shares of answers of each cell; 0 where there are no images.

    Attributes:
        right: accuracy of each class in each group, ``[groups, classes, draws]``.
        answered: how often each answer is given in each group, ``[groups, classes, draws]``.
        of_group: accuracy of each group, ``[groups, draws]``.
        n: images of each class in each group, ``[groups, classes]``.
    """

    right: Floats
    answered: Floats
    of_group: Floats
    n: Floats

    @property
    def overall(self) -> Floats:
        """Accuracy: ``[draws]``."""
        share: Floats = (self.n.sum(1) @ self.of_group) / self.n.sum()
        return share


Noise: TypeAlias = tuple[tuple[CellRates, CellRates, CellRates], ...]
"""For each run its rates as counted, with the added images, and Gaussian noise of the latter."""


@lru_cache(maxsize=4)
def rates_with_noise(columns: AnswerTable, runs: tuple[int, ...]) -> Noise:
    """Count runs of these columns; the first is the one that the others are compared with."""
    groups, classes = len(columns.groups), len(columns.targets)
    cell, unit, answers, weight = _units(columns, runs)
    units = int(unit.max()) + 1
    of_cluster = (
        1.0 if columns.clusters is None else len(columns.truth) / units
    )  # images
    starts = np.searchsorted(cell, np.arange(groups * classes + 1))
    some = np.flatnonzero(np.diff(starts))
    n = np.zeros((groups, classes))
    # What is added is repeated as often as the images are: repeating them changes no figure.
    repeats = columns.repeats_per_image(GroupBy.TARGET_AND_SENSITIVE)
    shape = (groups, classes, len(runs), classes)
    seen, smoothed = np.zeros(shape), np.zeros(shape)
    parts = []
    for k, place in enumerate(some):
        g, c = divmod(int(place), classes)
        rows = slice(starts[place], starts[place + 1])
        one_hot = np.eye(classes)[answers[:, rows].T]
        counts = weight[rows] ** 2
        size, often = counts.sum(), repeats[place]
        is_right = np.eye(classes)[c]
        wrong = (1 - is_right) / max(1, classes - 1)
        rest = len(runs) - 1
        added = often * np.array(
            [[is_right, *[wrong] * rest], [wrong, *[is_right] * rest]]
        )
        total = np.tensordot(counts, one_hot, 1)
        n[g, c], seen[g, c] = size, total / size
        smoothed[g, c] = (total + added.sum(0)) / (size + 2 * often)
        residuals = np.concatenate([one_hot * weight[rows, None, None], added])
        residuals -= (
            np.concatenate([weight[rows], [often, often]])[:, None, None]
            * smoothed[g, c]
        )
        if columns.clusters is not None:
            residuals *= np.sqrt(units / max(1, units - 1))
        if not rest:
            residuals *= 1 + _DISCRETE * of_cluster / size
        flat = (
            (residuals / (size + 2 * often))
            .reshape(len(residuals), -1)
            .astype(np.float32)
        )
        members: Any = (
            rows if columns.clusters is None else unit[rows]
        )  # views are faster
        parts.append(
            (
                g,
                c,
                (members, flat[:-2]),
                (slice(units + 2 * k, units + 2 * k + 2), flat[-2:]),
            )
        )
    width = units + 2 * len(some)
    right: Any = np.zeros(
        (len(runs), groups, classes, 2 * DRAWS), np.float32
    )  # for speed
    answered = np.zeros_like(right)
    of_group = np.maximum(1, n.sum(1))
    generator = np.random.default_rng(0)
    block = max(1, _AT_ONCE // width)
    for first in range(0, DRAWS, block):
        weights = generator.standard_normal(
            (min(block, DRAWS - first), width), np.float32
        ).T
        here = slice(first, first + weights.shape[1])
        for g, c, *pairs in parts:
            z = sum(flat.T @ weights[members] for members, flat in pairs)
            z = z.reshape(len(runs), classes, -1)
            right[:, g, c, here] = z[:, c]
            answered[:, g, :, here] += z * np.float32(n[g, c] / of_group[g])
    for array in (right, answered):
        array[..., DRAWS:] = -array[..., :DRAWS]

    def rates(shares: Floats, added: Floats) -> list[CellRates]:
        own = np.einsum("gcrc->rgc", shares)
        given = np.einsum("gc,gcra->rga", n, shares) / of_group[:, None]
        hits = np.einsum("gc,gcrc->rg", n, seen)
        groups = (hits + added) / (
            of_group + 2 * added
        )  # cells would be smoothed too often
        own, given, groups = (part[..., None] for part in (own, given, groups))
        return [CellRates(*each, n) for each in zip(own, given, groups, strict=True)]

    share = (n / of_group[:, None]).astype(np.float32)
    groups_right = np.einsum("gc,rgcd->rgd", share, right)
    draws = [
        CellRates(*each, n) for each in zip(right, answered, groups_right, strict=True)
    ]
    of_groups = columns.repeats_per_image(GroupBy.SENSITIVE)
    nothing = np.zeros(groups)
    return tuple(
        zip(rates(seen, nothing), rates(smoothed, of_groups), draws, strict=True)
    )


def _units(
    columns: AnswerTable, runs: tuple[int, ...]
) -> tuple[Ints, Ints, Ints, Floats]:
    """Cell, unit, answers and weight of each row of what is drawn, cell by cell.

    Independent images with the same answers in all runs are one row, so that the order of images
    does not matter and many images cost no more than few.
    """
    answers = np.stack([columns.answers[run] for run in runs])
    cell = columns.cell_codes
    if columns.clusters is not None:
        order = np.argsort(cell, kind="stable")
        return (
            cell[order],
            columns.clusters[order],
            answers[:, order],
            np.ones(len(cell)),
        )
    code = cell
    for given in answers:
        _, code = np.unique(code * len(columns.targets) + given, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    counts = np.bincount(code, columns.times)
    return cell[first], np.arange(len(first)), answers[:, first], np.sqrt(counts)
