"""The table that all metrics rest on: labels, answers and sensitive values as numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import numpy as np

from fair_tta._spelling import guess_labels
from fair_tta.errors import FairTTAError, UnknownAnswerWarning
from fair_tta.metrics._clusters import (
    MIN_CLUSTERS,
    design_effect,
    join_clusters,
    read_clusters,
    student_factor,
)
from fair_tta.metrics._columns import (
    assign_codes,
    look_up_codes,
    read_column,
    read_sensitive,
    sensitive_argument,
    unique_names,
)
from fair_tta.metrics._estimates import GroupBy, group_label, list_names
from fair_tta.metrics._types import Column, Floats, Ints, Mask, Sensitive, Values

if TYPE_CHECKING:
    from fair_tta.metrics._scores import Scores

NO_CLASS = "(no class)"
"""Stands in `AnswerTable.targets`, as the last, for all answers that are none of the classes."""


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """Class, group, answers and scores of each image, with names as numbers.

    A *group* has one combination of sensitive values, a *cell* one class of one group.

    Attributes:
        targets: names of the classes, then `NO_CLASS` if some answers are none of them.
        values: ``{attribute: names of its values}``.
        truth: ``[images]`` positions in `targets`.
        group_codes: ``[images]`` positions in `groups`.
        answers: for each run ``[images]`` positions in `targets`.
        scores: for each run what it reports besides its answers, checked; may be left out.
        clusters: ``[images]`` numbers of the persons or sources that images come from, where rows
            of the same image are one source too; None if images are independent.
        contents: ``[images]`` numbers of distinct images: rows of the same image share one. None if
            that is not known.
        times: how many images each entry stands for; None if one. Not together with clusters.
        image_hashes: ``{what digests are of: hash of the digests of all images, in order}``, by
            which tables of other images are recognised; empty if no digests are known.
    """

    targets: tuple[Hashable, ...]
    values: dict[str, tuple[Hashable, ...]]
    truth: Ints
    group_codes: Ints
    answers: tuple[Ints, ...]
    scores: tuple[Scores, ...] = ()
    clusters: Ints | None = None
    contents: Ints | None = None
    times: Ints | None = None
    image_hashes: Mapping[str, str] = field(default_factory=dict)

    # Names

    @property
    def groups(self) -> list[tuple[Hashable, ...]]:
        """All combinations of values, one value per attribute, whether they occur or not."""
        return list(product(*self.values.values()))

    def cells(self, group_by: GroupBy) -> list[tuple[Hashable, ...]]:
        """Return all groups: ``(*values)``, or ``(target, *values)`` group by group."""
        if group_by is GroupBy.SENSITIVE:
            return self.groups
        return [(target, *group) for group in self.groups for target in self.targets]

    @cached_property
    def cell_codes(self) -> Ints:
        """``[images]`` positions in `cells` of classes and values."""
        return self.group_codes * len(self.targets) + self.truth

    def _codes(self, group_by: GroupBy) -> Ints:
        """Return ``[images]`` positions in `cells`."""
        return self.group_codes if group_by is GroupBy.SENSITIVE else self.cell_codes

    def names(self, codes: Ints) -> list[Hashable]:
        """Return the classes of `truth` or of one of the `answers`."""
        return [self.targets[code] for code in codes]

    @property
    def sensitive(self) -> dict[str, list[Hashable]]:
        """``{attribute: value of each image}``."""
        groups = self.groups
        columns = {}
        for index, attribute in enumerate(self.values):
            columns[attribute] = [groups[code][index] for code in self.group_codes]
        return columns

    # Counts

    @property
    def n(self) -> int:
        """Number of images."""
        return len(self.truth) if self.times is None else int(self.times.sum())

    def counts(self, run: int = 0) -> Ints:
        """Return confusion counts ``[groups, true, predicted]``."""
        return self._counts[run]

    @cached_property
    def _counts(self) -> list[Ints]:
        shape = (len(self.groups), len(self.targets), len(self.targets))
        all_counts = []
        for answers in self.answers:
            # One number for each combination of group, class and answer.
            flat = np.ravel_multi_index((self.group_codes, self.truth, answers), shape)
            counts = np.bincount(flat, self.times, math.prod(shape))
            all_counts.append(counts.reshape(shape).astype(np.int64))
        return all_counts

    def sum_by_cell(self, numbers: Mask | Floats | None = None) -> Floats:
        """Return the sum of a number of each image in each cell, or the images: ``[cells]``."""
        weights: Any = np.ones(len(self.truth)) if numbers is None else numbers
        if self.times is not None:
            weights = weights * self.times
        cells = len(self.groups) * len(self.targets)
        return np.bincount(self.cell_codes, weights, cells).astype(np.float64)

    def correct_and_total(self, run: int, group_by: GroupBy) -> tuple[Ints, Ints]:
        """Return the correct answers and the images of each of `cells`."""
        counts = self.counts(run)
        correct = np.einsum("gcc->gc", counts)
        total = counts.sum(2)
        if group_by is GroupBy.SENSITIVE:
            return correct.sum(1), total.sum(1)
        return correct.ravel(), total.ravel()

    def worst_cell(self, run: int, group_by: GroupBy) -> int:
        """Return the position of the worst of `cells`; of equal ones that with the most images."""
        correct, total = self.correct_and_total(run, group_by)
        present: list[int] = np.flatnonzero(total).tolist()
        return min(
            present, key=lambda cell: (correct[cell] / total[cell], -total[cell])
        )

    # Repeated images

    @property
    def different_images(self) -> int | None:
        """Number of distinct images; None if that is not known."""
        return None if self.contents is None else int(self.contents.max()) + 1

    @property
    def image_count(self) -> int:
        """Number of images; rows of the same image, if that is known, count once."""
        return self.n if self.different_images is None else self.different_images

    def different_images_of(self, group_by: GroupBy) -> Ints:
        """Return the images of each of `cells`, of which repeated ones count once."""
        _, total = self.correct_and_total(0, group_by)
        images = self.different_images
        if self.contents is None or images is None:
            return total
        # One number for each pair of a cell and an image.
        distinct = np.unique(self._codes(group_by) * images + self.contents)
        return np.bincount(distinct // images, minlength=len(total))

    def repeats_per_image(self, group_by: GroupBy) -> Floats:
        """Return the rows per distinct image in each of `cells`: 1 if all are different."""
        _, total = self.correct_and_total(0, group_by)
        distinct = self.different_images_of(group_by)
        repeats: Floats = np.maximum(1, total) / np.maximum(1, distinct)
        return repeats

    def sizes_by_name(self, group_by: GroupBy) -> dict[str, int]:
        """Return the distinct images of each of `cells` that can have some, by its label."""
        sizes = {}
        distinct = self.different_images_of(group_by).tolist()
        for cell, size in zip(self.cells(group_by), distinct, strict=True):
            if group_by is GroupBy.SENSITIVE or cell[0] != NO_CLASS:
                sizes[group_label(*cell)] = size
        return sizes

    def with_contents(self, digests: Column) -> AnswerTable:
        """Return a table in which rows of equal digests are one image, and so in one cluster."""
        column = read_column("digests", digests, len(self.truth))
        contents = assign_codes(column)
        digests_in_order = "\n".join(repr(digest) for digest in column)
        return replace(
            self,
            clusters=join_clusters(self.clusters, contents),
            contents=contents,
            image_hashes={"digests": sha256(digests_in_order.encode()).hexdigest()},
        )

    # Clusters

    @cached_property
    def without_clusters(self) -> AnswerTable:
        """The same table as if all images were distinct and independent."""
        return replace(self, clusters=None, contents=None)

    @property
    def cluster_count(self) -> int | None:
        """Number of clusters; None if images are independent."""
        return None if self.clusters is None else int(self.clusters.max()) + 1

    @property
    def cluster_noun(self) -> str:
        """The word for clusters in messages."""
        are_images = self.cluster_count == self.different_images
        return "different images" if are_images else "clusters"

    @property
    def few_clusters_reason(self) -> str | None:
        """The reason not to compute any interval; None if there are enough clusters."""
        count = self.cluster_count
        if count is None or count >= MIN_CLUSTERS:
            return None
        return f"no interval, as there are only {count} {self.cluster_noun}"

    def effective_weight(
        self, mask: Mask, values: Mask | Floats, level: float | None = None
    ) -> float:
        """Return how many independent images one image counts for in a mean; at most 1.

        One over the design effect if there are clusters, see `design_effect`.

        Args:
            mask: ``[images]`` those whose mean is estimated.
            values: ``[images]`` numbers.
            level: of a normal interval that should be as wide as Student's, because the variance is
                estimated from the clusters.
        """
        if self.clusters is None or not mask.any():
            return 1.0
        # The effect depends on how much images of a cluster agree in these values.
        clusters = self.clusters[mask]
        effect = design_effect(values[mask].astype(np.float64), clusters)
        weight = 1 / max(1.0, effect)
        if level is None:
            return weight
        return weight * student_factor(len(np.unique(clusters)), level)

    def effective_weights(self, run: int, group_by: GroupBy) -> Floats:
        """Return the `effective_weight` of correct answers in each of `cells`."""
        cells = len(self.cells(group_by))
        if self.clusters is None:
            return np.ones(cells)
        is_correct = self.answers[run] == self.truth
        codes = self._codes(group_by)
        weights = [
            self.effective_weight(codes == cell, is_correct) for cell in range(cells)
        ]
        return np.array(weights)


def read_answer_table(
    y_true: Column,
    answers: Sequence[Column],
    sensitive: Sensitive | None,
    targets: Sequence[Hashable] | None,
    values: Values | None,
    clusters: Column | None = None,
    *,
    truth_has_classes: bool = True,
) -> AnswerTable:
    """Check the columns and number their names.

    Names that are not listed in `targets` or `values` are taken from the data, sorted. Answers that
    are none of the labels are wrong; `truth_has_classes` is False if labels do not show which
    classes there are, because they are other answers or only some of all rows.

    Raises:
        FairTTAError: no answer is one of the labels, and `targets` are not given.
    """
    truth = read_column("y_true", y_true)
    if not truth:
        raise FairTTAError(
            "`y_true` should have at least one row (got none).", argument="y_true"
        )
    runs = [read_column("y_pred", column, len(truth)) for column in answers]

    # Classes
    if targets is None:
        for answers_of_run in runs:
            _check_same_type(truth, answers_of_run)
    names = unique_names("targets", targets, chain(truth, *runs))
    if targets is None and truth_has_classes:
        for answers_of_run in runs:
            _check_answers(truth, answers_of_run)

    # Groups: positions in the product of the values of all attributes
    columns = read_sensitive(sensitive, len(truth))
    listed_values = _listed_values_by_attribute(values, list(columns))
    all_values = {}
    group_codes = np.zeros(len(truth), np.int64)
    for attribute, column in columns.items():
        value_names = unique_names("values", listed_values.get(attribute), column)
        all_values[attribute] = value_names
        codes = look_up_codes(
            sensitive_argument(attribute), column, "values", value_names
        )
        group_codes = group_codes * len(value_names) + codes

    return AnswerTable(
        names,
        all_values,
        look_up_codes("y_true", truth, "targets", names),
        group_codes,
        tuple(look_up_codes("y_pred", run, "targets", names) for run in runs),
        clusters=None if clusters is None else read_clusters(clusters, len(truth)),
    )


def _check_same_type(truth: list[Hashable], answers: list[Hashable]) -> None:
    """Raise if one column is text and the other is not."""
    types_of_truth = {isinstance(name, str) for name in truth}
    types_of_answers = {isinstance(name, str) for name in answers}
    if types_of_truth.isdisjoint(types_of_answers):
        raise FairTTAError(
            "`y_true` and `y_pred` should both be text, or neither "
            f"(got {truth[0]!r} and {answers[0]!r}).",
            argument="y_true",
        )


def _listed_values_by_attribute(
    values: Values | None, attributes: Sequence[str]
) -> Mapping[str, Sequence[Hashable]]:
    """Return the listed values by attribute; empty if none are listed.

    `unique_names` checks the lists themselves later, and refuses a text.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        if len(attributes) != 1:
            raise FairTTAError(
                "`values` should be {attribute: names} unless there is one attribute (got "
                f"{len(attributes)} attributes).",
                argument="values",
            )
        return {attributes[0]: values}
    unknown = [attribute for attribute in values if attribute not in attributes]
    if unknown:
        raise FairTTAError(
            f"`values` should have the attributes of `sensitive`, {attributes} (got {unknown}).",
            argument="values",
        )
    return values


def _check_answers(truth: list[Hashable], answers: list[Hashable]) -> None:
    """Warn if some answers are none of the labels, and raise if all are.

    Images of one class alone do not show what the other classes are: an answer is then unknown only
    if it reads like the label.
    """
    # Answers that are no label, in the order they first occur.
    labels = set(truth)
    unknown = list(dict.fromkeys(answer for answer in answers if answer not in labels))
    if not unknown:
        return
    guesses = guess_labels(
        [str(answer) for answer in unknown], [str(label) for label in labels]
    )
    if len(labels) < 2 and not guesses:
        return
    # If no answer is a label, a translation or a list of classes is missing.
    sorted_labels = unique_names("targets", None, labels)
    classes = list_names([repr(label) for label in sorted_labels])
    unknown_names = list_names([repr(answer) for answer in unknown])
    if len(unknown) == len(set(answers)):
        translate = f"translate them, such as by {guesses}, or " if guesses else ""
        raise FairTTAError(
            f"`y_pred` should be among the classes, {classes}, but no answer is (got "
            f"{unknown_names}): {translate}name all classes with `targets`.",
            argument="y_pred",
        )
    warnings.warn(
        f"some answers in `y_pred` are none of the labels, {classes}, and count as wrong: "
        f"{unknown_names}. Translate them, or name all classes with `targets`.",
        UnknownAnswerWarning,
        stacklevel=4,
    )
