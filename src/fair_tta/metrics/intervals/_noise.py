"""Rates of classes and groups in several runs, and Gaussian noise of all of them together.

A *cell* is the images of one class in one group. How cells are smoothed and how noise is drawn is
explained in docs/statistics.md, "Smoothed rates" and "Noise".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import GroupBy
from fair_tta.metrics._types import Floats, Ints

DRAWS = 1000
"""Gaussian draws of noise. Their mirror images follow, so that its mean is exactly 0."""

# Random weights in memory at a time: 80 MB in single precision.
_MAX_WEIGHTS = 20_000_000

# Noise of one run is wider by 2 / n: rates of few images vary in steps, and a normal does not.
_STEP_ALLOWANCE = 2


@dataclass(frozen=True, eq=False)
class CellRates:
    """Rates that are linear in the shares of answers of each cell; 0 where there are no images.

    Attributes:
        cell_accuracy: accuracy of each class in each group, ``[groups, classes, draws]``.
        answer_share: how often each answer is given in each group, ``[groups, classes, draws]``.
        group_accuracy: accuracy of each group, ``[groups, draws]``.
        n: images of each class in each group, ``[groups, classes]``.
    """

    cell_accuracy: Floats
    answer_share: Floats
    group_accuracy: Floats
    n: Floats

    @property
    def accuracy(self) -> Floats:
        """Accuracy of all images, ``[draws]``."""
        accuracy: Floats = (self.n.sum(1) @ self.group_accuracy) / self.n.sum()
        return accuracy


class RunRates(NamedTuple):
    """The rates of one run, and draws of their noise.

    Attributes:
        counted: the rates of the images, one draw.
        smoothed: the rates with the added images, one draw.
        noise: Gaussian noise of the smoothed rates, `DRAWS` draws and their mirror images.
    """

    counted: CellRates
    smoothed: CellRates
    noise: CellRates


class _DrawnImages(NamedTuple):
    """Images that are drawn together, in the order of their cells.

    Attributes:
        cell: ``[rows]``, ascending.
        unit: the random weight that a row shares, ``[rows]``.
        answers: ``[runs, rows]``.
        scale: square root of the number of images, ``[rows]``.
    """

    cell: Ints
    unit: Ints
    answers: Ints
    scale: Floats


class _CellShares(NamedTuple):
    """Shares of answers in a cell with images, and how random weights move them.

    Attributes:
        n: images.
        counted: shares of answers, ``[runs, classes]``.
        smoothed: the same with the added images.
        units: the random weights of its rows.
        row_moves: how the weight of each row moves the smoothed shares, ``[rows, runs * classes]``.
        added_moves: the same for the added images, ``[2, runs * classes]``.
    """

    group: int
    target: int
    n: float
    counted: Floats
    smoothed: Floats
    units: slice | Ints
    row_moves: Floats
    added_moves: Floats


@lru_cache(maxsize=4)
def rates_with_noise(table: AnswerTable, runs: tuple[int, ...]) -> tuple[RunRates, ...]:
    """Return the rates of some runs; the first is the one that the others are compared with."""
    groups = len(table.groups)
    classes = len(table.targets)
    rows = _group_rows(table, runs)
    cells = _cells_with_images(table, rows, len(runs))
    n = np.zeros((groups, classes))
    counted = np.zeros((groups, classes, len(runs), classes))
    smoothed = np.zeros_like(counted)
    for cell in cells:
        n[cell.group, cell.target] = cell.n
        counted[cell.group, cell.target] = cell.counted
        smoothed[cell.group, cell.target] = cell.smoothed

    # Groups are smoothed once: smoothing each of their cells would pull them too far.
    hits = np.einsum("gc,gcrc->rg", n, counted)
    n_of_group = np.maximum(1, n.sum(1))
    added = table.repeats_per_image(GroupBy.SENSITIVE)
    smoothed_groups = (hits + added) / (n_of_group + 2 * added)
    counted_rates = _rates_of_shares(counted, hits / n_of_group, n)
    smoothed_rates = _rates_of_shares(smoothed, smoothed_groups, n)
    noise = _draw_noise(rows, cells, n, len(runs))
    return tuple(map(RunRates, counted_rates, smoothed_rates, noise))


def _group_rows(table: AnswerTable, runs: tuple[int, ...]) -> _DrawnImages:
    """Return the rows that are drawn, cell by cell.

    Images of one cluster share a weight, whichever cells they are in. Independent images with the
    same answers in all runs are one row, so that the order of images does not matter and many
    images cost no more than few.
    """
    answers = np.stack([table.answers[run] for run in runs])
    cell = table.cell_codes
    if table.clusters is not None:
        order = np.argsort(cell, kind="stable")
        one_image_each = np.ones(len(cell))
        return _DrawnImages(
            cell[order], table.clusters[order], answers[:, order], one_image_each
        )
    code = cell
    for answers_of_run in answers:
        pair_codes = code * len(table.targets) + answers_of_run
        _, code = np.unique(pair_codes, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    images = np.bincount(code, table.times)
    return _DrawnImages(
        cell[first], np.arange(len(first)), answers[:, first], np.sqrt(images)
    )


def _cells_with_images(
    table: AnswerTable, rows: _DrawnImages, runs: int
) -> list[_CellShares]:
    """Return the cells that have images."""
    classes = len(table.targets)
    # The added images are repeated as often as the images of a cell are on average: an audit in
    # which every image is repeated has the same rates.
    repeats = table.repeats_per_image(GroupBy.TARGET_AND_SENSITIVE)
    starts = np.searchsorted(rows.cell, np.arange(len(repeats) + 1))
    unit_count = int(rows.unit.max()) + 1
    is_clustered = table.clusters is not None
    images_per_unit = len(table.truth) / unit_count if is_clustered else 1.0
    cells = []
    for index in np.flatnonzero(np.diff(starts)).tolist():
        group, target = divmod(index, classes)
        of_cell = slice(starts[index], starts[index + 1])
        scale = rows.scale[of_cell]
        images = scale**2
        n = images.sum()
        n_smoothed = n + 2 * repeats[index]

        answers = np.eye(classes)[rows.answers[:, of_cell].T]  # [rows, runs, classes]
        added_answers = _added_answers(target, runs, classes)
        total = np.tensordot(images, answers, 1)
        added_total = repeats[index] * added_answers.sum(0)
        smoothed = (total + added_total) / n_smoothed

        # Each row has a random weight of variance 1, and moves the shares by how far its answers
        # lie from them. So their covariance is that of the smoothed cell.
        weighted = np.concatenate([answers, added_answers])
        scales = np.concatenate([scale, [repeats[index]] * 2])[:, None, None]
        moves = weighted * scales - scales * smoothed
        if is_clustered:
            moves *= np.sqrt(unit_count / max(1, unit_count - 1))
        if runs == 1:
            moves *= 1 + _STEP_ALLOWANCE * images_per_unit / n
        moves = (moves / n_smoothed).reshape(len(moves), -1).astype(np.float32)
        # Without clusters each row has its own weight: a view, which is faster.
        units = rows.unit[of_cell] if is_clustered else of_cell
        cells.append(
            _CellShares(
                group, target, n, total / n, smoothed, units, moves[:-2], moves[-2:]
            )
        )
    return cells


def _added_answers(target: int, runs: int, classes: int) -> Floats:
    """Return the answers of the two images that are added to a cell: ``[2, runs, classes]``.

    One is right in the first run and wrong in all others; the other is the reverse. A wrong answer
    is spread evenly over the wrong classes.
    """
    right = np.eye(classes)[target]
    wrong = (1 - right) / max(1, classes - 1)
    answers = np.empty((2, runs, classes))
    answers[0] = wrong
    answers[0, 0] = right
    answers[1] = right
    answers[1, 0] = wrong
    return answers


def _draw_noise(
    rows: _DrawnImages, cells: list[_CellShares], n: Floats, runs: int
) -> list[CellRates]:
    """Return Gaussian noise of the smoothed rates of each run."""
    groups, classes = n.shape
    unit_count = int(rows.unit.max()) + 1
    weight_count = unit_count + 2 * len(cells)
    share_of_group = n / np.maximum(1, n.sum(1))[:, None]
    # Single precision, for speed.
    cell_accuracy: Any = np.zeros((runs, groups, classes, 2 * DRAWS), np.float32)
    answer_share = np.zeros_like(cell_accuracy)
    generator = np.random.default_rng(0)
    draws_at_once = max(1, _MAX_WEIGHTS // weight_count)
    for start in range(0, DRAWS, draws_at_once):
        draws = slice(start, min(start + draws_at_once, DRAWS))
        shape = (draws.stop - start, weight_count)
        weights = generator.standard_normal(shape, np.float32).T
        for k, cell in enumerate(cells):
            added_units = slice(unit_count + 2 * k, unit_count + 2 * k + 2)
            shares = cell.row_moves.T @ weights[cell.units]
            shares += cell.added_moves.T @ weights[added_units]
            shares = shares.reshape(runs, classes, -1)
            cell_accuracy[:, cell.group, cell.target, draws] = shares[:, cell.target]
            share = np.float32(share_of_group[cell.group, cell.target])
            answer_share[:, cell.group, :, draws] += shares * share
    for noise in (cell_accuracy, answer_share):
        noise[..., DRAWS:] = -noise[..., :DRAWS]
    group_accuracy = np.einsum(
        "gc,rgcd->rgd", share_of_group.astype(np.float32), cell_accuracy
    )
    return [
        CellRates(cell_accuracy[run], answer_share[run], group_accuracy[run], n)
        for run in range(runs)
    ]


def _rates_of_shares(
    shares: Floats, group_accuracy: Floats, n: Floats
) -> list[CellRates]:
    """Return the rates of each run from shares of answers, as one draw.

    Args:
        shares: ``[groups, classes, runs, answers]``.
        group_accuracy: ``[runs, groups]``.
    """
    cell_accuracy = np.einsum("gcrc->rgc", shares)
    n_of_group = np.maximum(1, n.sum(1))
    answer_share = np.einsum("gc,gcra->rga", n, shares) / n_of_group[:, None]
    return [
        CellRates(
            cell_accuracy[run, ..., None],
            answer_share[run, ..., None],
            group_accuracy[run, ..., None],
            n,
        )
        for run in range(shares.shape[2])
    ]
