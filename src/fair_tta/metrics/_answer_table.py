"""Labels, answers and sensitive values as numbers, and the counts that all metrics rest on."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain, product
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri, stdtrit

from fair_tta._spelling import escape_invisible, guess_labels, lookalikes
from fair_tta.errors import FairTTAError, UnknownAnswerWarning
from fair_tta.metrics._estimates import GroupBy, group_label, list_names
from fair_tta.metrics._types import Column, Floats, Ints, Mask, Sensitive, Values

if TYPE_CHECKING:
    from fair_tta.metrics._scores import Scores

MIN_CLUSTERS = 10
"""Persons or sources that intervals take."""

_SAME_VALUES = 1e-12
"""Variance of values that differ by rounding only."""

ONE_ATTRIBUTE = "sensitive"
"""The name of an attribute that has none."""

_MISSING_TEXTS = frozenset({"nan", "NaN", "<NA>", "NaT"})
"""What pandas and numpy write for a missing value where a column is turned into text."""

NO_CLASS = "(no class)"
"""Stands in `AnswerTable.targets`, as the last, for all answers that are none of the classes."""


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """Images as numbers, one entry per image: class, group, answers and scores of each run.

    Attributes:
        targets: names of the classes, then `NO_CLASS` if some answers are none of them.
        values: ``{attribute: names of its values}``.
        truth: ``[images]`` positions in `targets`.
        group_codes: ``[images]`` positions in `groups`.
        answers: for each run ``[images]`` positions in `targets`.
        scores: for each run what it reports besides its answers, checked; may be left out.
        clusters: ``[images]`` numbers of the persons or sources that images come from, where rows
            of the same image are one source too; None if images are independent.
        contents: ``[images]`` numbers of what is on them: rows of the same image share one. None if
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

    @property
    def n(self) -> int:
        """How many images there are."""
        return len(self.truth) if self.times is None else int(self.times.sum())

    @cached_property
    def cell_codes(self) -> Ints:
        """``[images]`` class and group as one number: positions in `cells` of both."""
        return self.group_codes * len(self.targets) + self.truth

    def sum_by_cell(self, of: Mask | Floats | None = None) -> Floats:
        """Images of each class in each group, or the sum `of` a number of each: ``[cells]``."""
        each = np.ones(len(self.truth)) if of is None else of
        worth = each if self.times is None else each * self.times
        sums = np.bincount(self.cell_codes, worth, len(self.groups) * len(self.targets))
        return sums.astype(np.float64)

    @property
    def groups(self) -> list[tuple[Hashable, ...]]:
        """All combinations of values, one value per attribute, whether they occur or not."""
        return list(product(*self.values.values()))

    def names(self, codes: Ints) -> list[Hashable]:
        """The classes of `truth` or of one of the `answers`."""
        return [self.targets[i] for i in codes]

    @property
    def sensitive(self) -> dict[str, list[Hashable]]:
        """``{attribute: value of each image}``"""
        groups = self.groups
        return {
            a: [groups[i][k] for i in self.group_codes]
            for k, a in enumerate(self.values)
        }

    def counts(self, run: int = 0) -> Ints:
        """Confusion counts ``[groups, true, predicted]``."""
        return self._counts[run]

    @cached_property
    def _counts(self) -> list[Ints]:
        shape = (len(self.groups), len(self.targets), len(self.targets))
        flat = [
            np.ravel_multi_index((self.group_codes, self.truth, run), shape)
            for run in self.answers
        ]
        counts = [np.bincount(each, self.times, math.prod(shape)) for each in flat]
        return [each.reshape(shape).astype(np.int64) for each in counts]

    def cells(self, over: GroupBy) -> list[tuple[Hashable, ...]]:
        """All groups: ``(*values)``, or ``(target, *values)`` group by group."""
        if over is GroupBy.SENSITIVE:
            return self.groups
        return [(target, *group) for group in self.groups for target in self.targets]

    def correct_and_total(self, run: int, over: GroupBy) -> tuple[Ints, Ints]:
        """Right answers and images of each of `cells`."""
        counts = self.counts(run)
        right, n = np.einsum("gcc->gc", counts), counts.sum(2)
        if over is GroupBy.SENSITIVE:
            return right.sum(1), n.sum(1)
        return right.ravel(), n.ravel()

    @cached_property
    def without_clusters(self) -> AnswerTable:
        """The same as if all images were different and independent."""
        return replace(self, clusters=None, contents=None)

    @property
    def cluster_count(self) -> int | None:
        """How many clusters there are; None if images are independent."""
        return None if self.clusters is None else int(self.clusters.max()) + 1

    @property
    def different_images(self) -> int | None:
        """How many images differ in content; None if that is not known."""
        return None if self.contents is None else int(self.contents.max()) + 1

    @property
    def image_count(self) -> int:
        """How many images there are; rows of the same image, if that is known, count once."""
        return self.n if self.different_images is None else self.different_images

    @property
    def cluster_noun(self) -> str:
        """The word for clusters in messages."""
        are_images = self.cluster_count == self.different_images
        return "different images" if are_images else "clusters"

    @property
    def few_clusters_reason(self) -> str | None:
        """Why there are too few clusters for any interval; None if there are enough."""
        count = self.cluster_count
        if count is None or count >= MIN_CLUSTERS:
            return None
        return f"no interval, as there are only {count} {self.cluster_noun}"

    def with_contents(self, digests: Column) -> AnswerTable:
        """The same, with rows of equal digests as one image, and so in one cluster."""
        numbers: dict[Hashable, int] = {}
        column = read_column("digests", digests, len(self.truth))
        contents = np.array(
            [numbers.setdefault(key, len(numbers)) for key in column], np.int64
        )
        joined = join_clusters(self.clusters, contents)
        in_order = sha256("\n".join(map(repr, column)).encode()).hexdigest()
        hashes = {"digests": in_order}
        return replace(self, clusters=joined, contents=contents, image_hashes=hashes)

    def effective_weight(
        self, some: Mask, values: Mask | Floats, level: float | None = None
    ) -> float:
        """What one of some images counts for where the mean of their values is estimated.

        1 if images are independent. With clusters one over the design effect: how many times as
        large the variance of the mean is. Where all values are equal, images of a cluster are taken
        to agree. (Korn and Graubard, 1998.) With a level it is less, as the variance is estimated
        from the clusters: so much that a normal interval of that level is as wide as Student's.
        """
        n = int(some.sum())
        if self.clusters is None or not n:
            return 1.0
        figures = values[some].astype(np.float64)
        _, unit = np.unique(self.clusters[some], return_inverse=True)
        sizes, variance = np.bincount(unit), float(figures.var())
        clusters = len(sizes)
        effect = float((sizes**2).sum()) / n
        if variance > _SAME_VALUES and clusters > 1:
            totals = np.bincount(unit, figures - figures.mean())
            effect = (
                float((totals**2).sum()) * clusters / (clusters - 1) / (n * variance)
            )
        weight = 1 / max(1.0, effect)
        if level is None:
            return weight
        tail = (1 + level) / 2
        return weight * float(ndtri(tail) / stdtrit(max(1, clusters - 1), tail)) ** 2

    def effective_weights(self, run: int, over: GroupBy) -> Floats:
        """`weight` of each of `cells`, of right answers."""
        cells, right = len(self.cells(over)), self.answers[run] == self.truth
        if self.clusters is None:
            return np.ones(cells)
        cell = self.group_codes if over is GroupBy.SENSITIVE else self.cell_codes
        return np.array([self.effective_weight(cell == k, right) for k in range(cells)])

    def sizes_by_name(self, over: GroupBy) -> dict[str, int]:
        """Return images in each of `cells`, by the name that messages use.

        Repeated images count once, and no image is of `NO_CLASS`.
        """
        sizes = {}
        for cell, size in zip(
            self.cells(over), self.different_images_of(over).tolist(), strict=True
        ):
            if over is GroupBy.SENSITIVE or cell[0] != NO_CLASS:
                sizes[group_label(*cell)] = size
        return sizes

    def repeats_per_image(self, over: GroupBy) -> Floats:
        """How often an image comes in each of `cells`, on average: 1 if all are different."""
        n = self.correct_and_total(0, over)[1]
        repeats: Floats = np.maximum(1, n) / np.maximum(
            1, self.different_images_of(over)
        )
        return repeats

    def different_images_of(self, over: GroupBy) -> Ints:
        """Return the images of each of `cells`, of which repeated ones count once."""
        n = self.correct_and_total(0, over)[1]
        images = self.different_images
        if self.contents is None or images is None:
            return n
        cell = self.group_codes if over is GroupBy.SENSITIVE else self.cell_codes
        different = np.unique(cell * images + self.contents)
        return np.bincount(different // images, minlength=len(n))

    def worst_cell(self, run: int, over: GroupBy) -> int:
        """Position in `cells` of the worst group; of equal ones that with the most images."""
        right, n = self.correct_and_total(run, over)
        present: list[int] = np.flatnonzero(n).tolist()
        return min(present, key=lambda i: (right[i] / n[i], -n[i]))


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
    are none of the labels are wrong; `truth_has_classes` is False if labels say nothing about that,
    as where they are other answers, or some of all rows.

    Raises:
        FairTTAError: no answer is one of the labels, and `targets` are not given.
    """
    truth = read_column("y_true", y_true)
    if not truth:
        raise FairTTAError(
            "`y_true` should have at least one row (got none).", argument="y_true"
        )
    given = [read_column("y_pred", column, len(truth)) for column in answers]
    for column in given:
        if targets is None and _are_text(truth).isdisjoint(_are_text(column)):
            raise FairTTAError(
                "`y_true` and `y_pred` should both be text, or neither "
                f"(got {truth[0]!r} and {column[0]!r}).",
                argument="y_true",
            )
    names = unique_names("targets", targets, chain(truth, *given))
    for column in given:
        if targets is None and truth_has_classes:
            _check_answers(truth, column)
    columns = read_sensitive(sensitive, len(truth))
    if values is not None and not isinstance(values, Mapping):
        if len(columns) != 1:
            raise FairTTAError(
                "`values` should be {attribute: names} as there is not one attribute.",
                argument="values",
            )
        values = {next(iter(columns)): values}
    listed_values = values or {}
    unknown = [attribute for attribute in listed_values if attribute not in columns]
    if unknown:
        raise FairTTAError(
            f"`values` should have the attributes of `sensitive`, {list(columns)} (got {unknown}).",
            argument="values",
        )
    all_values = {}
    group = np.zeros(len(truth), np.int64)
    for attribute, column in columns.items():
        known = unique_names("values", listed_values.get(attribute), column)
        all_values[attribute] = known
        codes = _codes(f"`sensitive` ({attribute})", "values", column, known)
        group = group * len(known) + codes
    return AnswerTable(
        names,
        all_values,
        _codes("`y_true`", "targets", truth, names),
        group,
        tuple(_codes("`y_pred`", "targets", column, names) for column in given),
        clusters=None if clusters is None else read_clusters(clusters, len(truth)),
    )


def _check_answers(truth: list[Hashable], answers: list[Hashable]) -> None:
    """Warn if some answers are none of the labels, and raise an error if all are.

    Images of one class alone do not show what the other classes are: an answer is then unknown only
    if it reads like the label.
    """
    labels = set(truth)
    unknown = list(dict.fromkeys(answer for answer in answers if answer not in labels))
    if not unknown:
        return
    meant = guess_labels([*map(str, unknown)], [*map(str, labels)])
    if len(labels) < 2 and not meant:
        return
    classes = list_names([*map(repr, unique_names("targets", None, truth))])
    named = list_names([*map(repr, unknown)])
    if len(unknown) == len(set(answers)):
        translate = f"translate them, such as by {meant}, or " if meant else ""
        raise FairTTAError(
            f"`y_pred` should be among the classes, {classes}, but no answer is (got {named}): "
            f"{translate}name all classes with `targets`.",
            argument="y_pred",
        )
    warnings.warn(
        f"some answers in `y_pred` are none of the labels, {classes}, and count as wrong: {named}. "
        "Translate them, or name all classes with `targets`.",
        UnknownAnswerWarning,
        stacklevel=4,
    )


def read_column(
    argument: str, values: Column, length: int | None = None
) -> list[Hashable]:
    """A column as plain Python values; nothing may be missing."""
    if hasattr(
        values, "columns"
    ):  # a table, which would be read as the names of its columns
        columns = list(getattr(values, "column_names", values.columns))
        example = f"frame[{columns[0]!r}]" if columns else "frame['label']"
        raise FairTTAError(
            f"`{argument}` should be one column (got a {type(values).__name__} of {len(columns)}): "
            f"pass a column of it, such as {example}.",
            argument=argument,
        )
    if isinstance(values, set | frozenset):
        raise FairTTAError(
            f"`{argument}` should be a sequence, in the order of the images (got a "
            f"{type(values).__name__}, which has no order): pass a list.",
            argument=argument,
        )
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, str | bytes | Mapping) or not isinstance(plain, Iterable):
        raise FairTTAError(
            f"`{argument}` should be a sequence with a value per image.",
            argument=argument,
        )
    column = [value.tolist() if hasattr(value, "tolist") else value for value in plain]
    try:
        is_fine = not any(map(_is_missing, set(column)))  # fast where few differ
    except TypeError:  # not hashable
        is_fine = False
    for row, value in enumerate([] if is_fine else column):
        if not isinstance(value, Hashable):
            raise FairTTAError(
                f"`{argument}` should have one dimension (row {row} is a {type(value).__name__}).",
                argument=argument,
            )
        if _is_missing(value):
            raise FairTTAError(
                f"`{argument}` should have no missing values (row {row}): "
                "give them a name of their own, such as 'unknown'.",
                argument=argument,
            )
    if length is not None:
        check_length(argument, column, length)
    return column


def read_clusters(clusters: Column, length: int) -> Ints | None:
    """Numbers of the clusters, in the order they come; without a value an image is its own.

    None if all are.
    """
    numbers: dict[Hashable, int] = {}
    plain = clusters.tolist() if hasattr(clusters, "tolist") else clusters
    if isinstance(plain, list | tuple):
        plain = [
            object() if _is_missing(value) or value == "" else value for value in plain
        ]
    column = read_column("clusters", plain, length)
    check_lookalikes("clusters", column)
    codes = np.array(
        [numbers.setdefault(key, len(numbers)) for key in column], np.int64
    )
    return codes if len(numbers) < length else None


def check_clusters(clusters: Ints | None) -> None:
    """Raise an error if there are too few clusters for any interval."""
    count = None if clusters is None else int(clusters.max()) + 1
    if count is not None and count < MIN_CLUSTERS:
        raise FairTTAError(
            f"`clusters` should be {MIN_CLUSTERS} or more persons or sources (got {count}): "
            "fewer show nothing about others. Without `clusters` figures are about images of "
            "these alone.",
            argument="clusters",
        )


def same_clusters(first: Ints | None, second: Ints | None) -> bool:
    """Both columns are None, or have the same numbers."""
    if first is None or second is None:
        return first is second
    return np.array_equal(first, second)


def join_clusters(first: Ints | None, second: Ints | None) -> Ints | None:
    """Number the smallest clusters of images that keep those of both together.

    None if every image is a cluster of its own.
    """
    if first is None or second is None or same_clusters(first, second):
        joined = second if first is None else first
    else:
        # Clusters of either kind are nodes, and each image is an edge between its two clusters.
        nodes = int(first.max()) + 1
        both = nodes + int(second.max()) + 1
        edges = coo_array(
            (np.ones(len(first)), (first, nodes + second)), shape=(both, both)
        )
        joined = connected_components(edges, directed=False)[1][first].astype(np.int64)
    if joined is None or len(np.unique(joined)) == len(joined):
        return None
    return joined


def check_length(argument: str, column: Sized, length: int) -> None:
    """An error unless there is a value per image."""
    if len(column) != length:
        raise FairTTAError(
            f"`{argument}` should be as long as `y_true`, {length} (got {len(column)}).",
            argument=argument,
        )


def read_sensitive(
    sensitive: Sensitive | None, length: int
) -> dict[str, list[Hashable]]:
    """Sensitive columns by attribute; none at all is one group of everybody."""
    if sensitive is None:
        return {}
    if hasattr(sensitive, "columns"):  # a pandas DataFrame
        attributes = [str(name) for name in sensitive.columns]
        twice = [
            name for name in dict.fromkeys(attributes) if attributes.count(name) > 1
        ]
        if twice:
            raise FairTTAError(
                "columns of `sensitive` should have distinct names as text (got several named "
                f"{twice[0]!r}): rename them.",
                argument="sensitive",
            )
        sensitive = {str(name): sensitive[name] for name in sensitive.columns}
    if not isinstance(sensitive, Mapping):
        sensitive = {ONE_ATTRIBUTE: sensitive}
    if not sensitive:
        raise FairTTAError(
            "`sensitive` should have at least one attribute (got {}).",
            argument="sensitive",
        )
    columns = {}
    for attribute, column in sensitive.items():
        if not isinstance(attribute, str):
            raise FairTTAError(
                f"attributes of `sensitive` should be strings (got {attribute!r}).",
                argument="sensitive",
            )
        columns[attribute] = read_column(f"sensitive[{attribute!r}]", column, length)
    return columns


def _are_text(column: list[Hashable]) -> set[bool]:
    return {isinstance(name, str) for name in column}


def unique_names(
    argument: str, given: Sequence[Hashable] | None, found: Iterable[Hashable]
) -> tuple[Hashable, ...]:
    """The names given, or those found, sorted.

    Raises:
        FairTTAError: they are not distinct, or two of them look alike.
    """
    if given is None:
        distinct = set(found)
        check_lookalikes(argument, distinct)
        try:
            return tuple(sorted(distinct))  # type: ignore[type-var]
        except TypeError:  # names and numbers
            return tuple(
                sorted(distinct, key=lambda name: (type(name).__name__, str(name)))
            )
    names = tuple(read_column(argument, given))
    if not names or len(set(names)) < len(names):
        raise FairTTAError(
            f"`{argument}` should list distinct names (got {list(names)}).",
            argument=argument,
        )
    check_lookalikes(argument, names)
    return names


def check_lookalikes(argument: str, names: Iterable[Hashable]) -> None:
    """Raise an error if two different names look alike: they would be two groups of one name."""
    distinct = dict.fromkeys(names)
    by_text: defaultdict[str, list[Hashable]] = defaultdict(list)
    for name in distinct:
        by_text[str(name)].append(name)
    for alike in by_text.values():
        if len(alike) > 1:
            shown = " and ".join(f"{name!r} ({type(name).__name__})" for name in alike)
            raise FairTTAError(
                f"names of {argument} should differ in what can be seen (got {shown}): write them "
                "in one way, all as text or all as numbers."
            )
    twins = lookalikes(sorted(name for name in distinct if isinstance(name, str)))
    if twins:
        shown = " and ".join(f"'{escape_invisible(name)}'" for name in twins[0])
        raise FairTTAError(
            f"names of {argument} should differ in what can be seen (got {shown}, which look "
            "alike): write them in one way."
        )


def _codes(
    what: str, argument: str, column: list[Hashable], names: tuple[Hashable, ...]
) -> Ints:
    """Positions in the names."""
    position = {name: index for index, name in enumerate(names)}
    try:
        return np.array([position[name] for name in column], np.int64)
    except KeyError as error:
        raise FairTTAError(
            f"{what} holds {error.args[0]!r}, which is not in `{argument}`: {list(names)}."
        ) from None


def _is_missing(value: Hashable) -> bool:
    if value is None or (isinstance(value, str) and value in _MISSING_TEXTS):
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA answers neither yes nor no
        return True
