"""Measure the answers of one run: `fair_tta.audit`."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from fair_tta._identity import ORIGIN, describe, describe_adapter, environment
from fair_tta._spelling import guess_labels
from fair_tta.auditing import _document as doc
from fair_tta.auditing._audit import Audit
from fair_tta.auditing._run import HarmSets, figures_of_run, parse_harmful
from fair_tta.errors import (
    FairTTAError,
    SmallGroupWarning,
    UnknownAnswerWarning,
    check_number,
)
from fair_tta.metrics._answer_table import NO_CLASS, AnswerTable, read_answer_table
from fair_tta.metrics._clusters import check_clusters
from fair_tta.metrics._columns import check_lookalikes, read_column, unique_names
from fair_tta.metrics._estimates import (
    SMALL_GROUP,
    GroupBy,
    list_names,
    parse_group_by,
    small_group_sentences,
    warn_small_groups,
)
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._types import Column, Sensitive, Values
from fair_tta.metrics.intervals._bootstrap import (
    DEFAULT,
    Bootstrap,
    Interval,
    read_interval,
)
from fair_tta.prediction import Predictions

# A document has a constant size: of more different answers that are no class the rarest are left
# out
_MAX_UNKNOWN_ANSWERS = 20


def audit(
    y_true: Column,
    y_pred: Column | Predictions,
    sensitive: Sensitive,
    *,
    name: str | None = None,
    targets: Sequence[Hashable] | None = None,
    values: Values | None = None,
    scores: Scores | None = None,
    seconds: float | None = None,
    harmful: HarmSets | None = None,
    clusters: Column | None = None,
    digests: Column | None = None,
    interval: Interval = DEFAULT,
    adapter: Any = None,
    provenance: Mapping[str, Any] | None = None,
) -> Audit:
    """Measure the answers of one run, group by group.

    Args:
        y_true: true labels, one per image: a list, array, tensor or series.
        y_pred: answers, or the `Predictions` of a classifier, which also say how certain they are.
            Those that are none of the classes count as wrong, are counted in the document and
            warned about; it is an error if all are.
        sensitive: sensitive values, or ``{attribute: values}``; groups are intersections.
        name: of the run; if None the method of `Predictions`, or "predictions".
        targets: all classes, if some may not occur; if None those of `Predictions`, or the labels
            in `y_true`.
        values: all sensitive values, or ``{attribute: all values}``, if some may not occur.
        scores: numbers that the run reports besides its answers; if None those of `Predictions`.
        seconds: the time that the run took.
        harmful: classes that should not be answered, or ``{name of a set: classes}``; how often
            they are is reported by group, see `fair_tta.metrics.harm_rate`.
        clusters: the person or source of each image, if several images come from one; intervals
            allow for that. Without a value (None, NaN or "") an image is a cluster of its own.
        digests: of the content of each image, such as that of its file. Rows with equal ones are
            the same image, and so in one cluster; the audit states how many images differ.
        interval: settings of the intervals.
        adapter: the method, for the document.
        provenance: other entries for the document, see `fair_tta._identity`.

    Example:
        >>> y_true = ["cat", "dog"] * 100
        >>> y_pred = ["cat"] * 100 + ["cat", "dog"] * 50
        >>> measured = audit(y_true, y_pred, ["indoors"] * 100 + ["outdoors"] * 100)
        >>> measured.estimate("worst_group_accuracy").value
        0.0
    """
    if seconds is not None:
        check_number("seconds", seconds, "be a number >= 0", _is_duration)
    bootstrap = read_interval(interval)
    if sensitive is None:
        raise FairTTAError(
            "`sensitive` should have a value per image, or be {attribute: values} (got None).",
            argument="sensitive",
        )
    truth = read_column("y_true", y_true)

    # `Predictions` know their method, their classes and their scores
    if isinstance(y_pred, Predictions):
        _check_complete(y_pred)
        if scores is None:
            scores = Scores.from_predictions(y_pred)
        if adapter is None:
            adapter = y_pred._adapter
        if name is None and adapter is not None:
            name = type(adapter).__name__
        if targets is None and set(truth) <= set(y_pred._targets):
            targets = y_pred._targets
        y_pred = y_pred.labels

    # One table of numbers; from here on, names of classes and values are text
    answers, targets, no_class = _mark_unknown_answers(
        truth, read_column("y_pred", y_pred), targets
    )
    table = read_answer_table(truth, [answers], sensitive, targets, values, clusters)
    attributes: dict[str, tuple[Hashable, ...]] = {}
    for attribute, attribute_values in table.values.items():
        attributes[attribute] = tuple(map(str, attribute_values))
    table = replace(
        table,
        targets=tuple(map(str, table.targets)),
        values=attributes,
        scores=((scores or Scores())._checked(table.n),),
    )
    return audit_table(
        table,
        name="predictions" if name is None else name,
        adapter=adapter,
        seconds=seconds,
        harmful=harmful,
        digests=digests,
        bootstrap=bootstrap,
        provenance=provenance,
        no_class=no_class,
    )


def audit_table(
    table: AnswerTable,
    *,
    name: str,
    adapter: Any,
    seconds: float | None,
    harmful: HarmSets | None,
    digests: Column | None,
    bootstrap: Bootstrap,
    provenance: Mapping[str, Any] | None,
    no_class: doc.UnknownAnswers | None = None,
) -> Audit:
    """Measure the first run of a table whose names are text, see `audit` for the options.

    Warnings name the line that calls the caller of this function.
    """
    n = table.n
    # Hashed without `digests`, so that runs with and without them can be compared
    data_hash = _data_hash(table)
    if digests is None:
        check_clusters(table.clusters)
    else:
        # The caller has classified the images already: too few different ones are no error here,
        # but give figures without intervals
        table = table.with_contents(digests)

    # The figures, and warnings for those who do not read the document
    classes = tuple(str(target) for target in table.targets if target != NO_CLASS)
    harm_sets = parse_harmful(harmful, classes)
    warn_small_groups(table.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE), stacklevel=4)
    for sentence in _single_group_warnings(table):
        warnings.warn(sentence, SmallGroupWarning, stacklevel=3)
    method = None
    if adapter is not None:
        method = doc.AdapterFields(**describe_adapter(adapter))
    run = figures_of_run(
        table,
        bootstrap,
        name=name,
        adapter=method,
        cost=None if seconds is None else doc.Cost(float(seconds), seconds / n),
        harmful=harm_sets,
        no_class=no_class,
    )
    unknown_answers = unknown_answer_warnings([run], n)
    for sentence in unknown_answers:
        warnings.warn(sentence, UnknownAnswerWarning, stacklevel=3)

    # The document; where the run comes from is null if it is not stated
    data = doc.DataFields(
        n,
        data_hash,
        classes,
        {
            attribute: tuple(map(str, names))
            for attribute, names in table.values.items()
        },
        harm_sets,
        clusters=table.cluster_count,
        different_images=table.different_images,
    )
    settings = doc.IntervalSettings(
        bootstrap.level,
        bootstrap.resamples,
        bootstrap.seed,
        parse_group_by("strata", bootstrap.strata),
        SMALL_GROUP,
    )
    unknown_origin = dict.fromkeys(ORIGIN)
    document = doc.AuditDocument(
        schema=doc.SCHEMA_ID,
        data=data,
        settings=settings,
        runs=(run,),
        comparisons=(),
        provenance=environment() | unknown_origin | describe(dict(provenance or {})),
        warnings=(*unknown_answers, *table_warnings(table)),
    )
    return Audit(document, table)


def _is_duration(seconds: float) -> bool:
    return 0 <= seconds < float("inf")


def _check_complete(predictions: Predictions) -> None:
    """Raise if the answer of an image is missing."""
    missing = [index for index, label in enumerate(predictions.labels) if label is None]
    if missing:
        raise FairTTAError(
            f"`y_pred` should have an answer for each image (got none for {len(missing)}, the "
            f"first at index {missing[0]}, which could not be read): leave these rows out of all "
            "columns.",
            argument="y_pred",
        )


def _mark_unknown_answers(
    truth: list[Hashable], answers: list[Hashable], targets: Sequence[Hashable] | None
) -> tuple[list[Hashable], Sequence[Hashable] | None, doc.UnknownAnswers | None]:
    """Return answers and classes with `NO_CLASS` for answers that are no class, and their counts.

    Raises:
        FairTTAError: no answer is one of the classes.
    """
    classes = unique_names("targets", targets, truth)
    known = set(classes)
    counts = Counter(answer for answer in answers if answer not in known)
    if not counts or not classes:
        return answers, targets, None

    # If no answer is a class, the labels are probably in other words, such as "dog" for "a dog"
    if counts.total() == len(answers):
        meant = guess_labels(
            [str(answer) for answer in counts], [str(c) for c in classes]
        )
        hint = f"translate them, such as by {meant}, or " if meant else ""
        raise FairTTAError(
            f"`y_pred` should be among the classes, {list_names([repr(c) for c in classes])}, but "
            f"no answer is (got {_listed_counts(counts)}): {hint}name all classes with `targets`.",
            argument="y_pred",
        )
    check_lookalikes("`y_pred` and targets", [*classes, *counts])
    most_frequent = {
        str(answer): n for answer, n in counts.most_common(_MAX_UNKNOWN_ANSWERS)
    }

    # `NO_CLASS` becomes the last class: a column of the confusion that no image's row is in
    marked = [answer if answer in known else NO_CLASS for answer in answers]
    unknown = doc.UnknownAnswers(counts.total(), most_frequent)
    return marked, [*classes, NO_CLASS], unknown


def unknown_answer_warnings(
    runs: Iterable[doc.RunFigures], images: int
) -> tuple[str, ...]:
    """Return a sentence for each run that has answers that are no class."""
    sentences = []
    for run in runs:
        unknown = run.no_class
        if unknown is not None:
            sentences.append(
                f"{run.name}: {unknown.n} of {images} answers are no class and count as wrong: "
                f"{_listed_counts(unknown.most_frequent)}."
            )
    return tuple(sentences)


def _listed_counts(counts: Mapping[Any, int]) -> str:
    """Return names for a message with their counts, the most frequent first."""
    by_frequency = sorted(counts, key=lambda name: -counts[name])
    return list_names([f"{name!r} ({counts[name]})" for name in by_frequency])


def table_warnings(table: AnswerTable) -> tuple[str, ...]:
    """Return the sentences about its images that a reader of the figures must know."""
    sentences = list(
        small_group_sentences(table.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE))
    )
    sentences += _single_group_warnings(table)
    # Repeated images are known by their digests only
    different = table.different_images
    if different is not None and different < table.n:
        rows = f"These {table.n:,} rows are {different:,} different images"
        sentences.append(f"{rows}: those of the same image count as one cluster.")
    if table.few_clusters_reason:
        clusters = f"{table.cluster_count} {table.cluster_noun}"
        sentences.append(
            f"No figure has an interval: {clusters} show nothing about others."
        )
    return tuple(sentences)


def _single_group_warnings(table: AnswerTable) -> list[str]:
    """Return a sentence if there are no two groups to compare."""
    groups = [name for name, n in table.sizes_by_name(GroupBy.SENSITIVE).items() if n]
    if len(groups) != 1:
        return []
    return [
        f"Only one group has images, {groups[0]}: no gap between groups can be measured."
    ]


def _data_hash(table: AnswerTable) -> str:
    """Return the hash of labels, sensitive values and clusters, in order."""
    groups = table.groups
    columns = {
        "labels": table.names(table.truth),
        "attributes": list(table.values),
        "groups": [groups[index] for index in table.group_codes],
    }
    if table.clusters is not None:
        columns["clusters"] = table.clusters.tolist()
    return "sha256:" + sha256(json.dumps(columns).encode()).hexdigest()
