"""The figures of a run, and of a run beside the first: "runs" and "comparisons" of an audit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec import structs

from fair_tta.auditing import _document as doc
from fair_tta.errors import FairTTAError
from fair_tta.metrics import definitions
from fair_tta.metrics._answer_table import NO_CLASS, AnswerTable
from fair_tta.metrics._custom_metrics import (
    calibration_error,
    mean_score,
    mean_score_change,
)
from fair_tta.metrics._estimates import Estimate, GroupBy, direction, group_label
from fair_tta.metrics._groups import (
    gaps_of_classes,
    rate_estimate,
    rates_of_groups,
    share_estimate,
)
from fair_tta.metrics._perceived import pseudo_odds
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._types import Floats, Mask
from fair_tta.metrics.intervals import _closed_forms as _intervals
from fair_tta.metrics.intervals._bootstrap import Bootstrap

HarmSets = Mapping[str, Sequence[Hashable]] | Sequence[Hashable]
"""Classes that should not be answered, or ``{name of a set: classes}``."""

_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  # of relative steps

# A document has a constant size: of more different warnings of a run the rarest are left out
_MAX_WARNINGS = 20

# Beliefs of one model on the same images differ less than this by rounding, such as by batch size
_BELIEF_TOLERANCE = 1e-3

_Part = TypeVar("_Part", bound=doc.DocumentPart)


def parse_harmful(
    harmful: HarmSets | None, targets: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return ``{name of a set: its classes}`` as text.

    Raises:
        FairTTAError: a set has no classes, or some that are not among the targets.
    """
    if harmful is None:
        return {}
    if not isinstance(harmful, Mapping):
        harmful = {"harmful": harmful}
    sets = {}
    for name, classes in harmful.items():
        # A single word would be read as a list of letters
        is_text = isinstance(classes, str | bytes)
        if is_text or not isinstance(classes, Collection) or len(classes) == 0:
            raise FairTTAError(
                f"`harmful` should be a list of classes, or {{name: classes}} (got {classes!r}).",
                argument="harmful",
            )
        class_names = tuple(dict.fromkeys(map(str, classes)))
        unknown = [each for each in class_names if each not in targets]
        if unknown:
            raise FairTTAError(
                f"`harmful` should be among the classes, {list(targets)} (got {unknown}).",
                argument="harmful",
            )
        sets[str(name)] = class_names
    return sets


def _harm_shares(
    table: AnswerTable,
    sets: Mapping[str, Sequence[str]],
    level: float,
    after: int | None = None,
) -> Iterator[tuple[str, dict[str, str], Estimate]]:
    """Yield the share of answers in each set of classes, of all images and of each value.

    Values are those of each attribute by itself. With `after`, the changes from the first run to
    that one.
    """
    no_values: dict[str, str] = {}
    groups = [(no_values, np.ones(len(table.group_codes), np.bool_))]
    for attribute, values in table.values.items():
        codes = _table_of_attribute(table, attribute).group_codes
        for code, value in enumerate(values):
            groups.append(({attribute: str(value)}, codes == code))

    # For each set, the images answered with one of its classes, before and after
    for set_name, classes in sets.items():
        codes_of_set = [table.targets.index(name) for name in classes]
        before_in_set = np.isin(table.answers[0], codes_of_set)
        after_in_set = (
            None if after is None else np.isin(table.answers[after], codes_of_set)
        )
        for group, mask in groups:
            group_name = group_label(*group.values()) or "everybody"
            estimate = share_estimate(
                table, mask, level, group_name, before_in_set, after_in_set
            )
            yield set_name, group, estimate


def _perceived_odds(
    table: AnswerTable, bootstrap: Bootstrap, after: int | None = None
) -> dict[str, Any] | None:
    """Return pseudo-EOD and EOD by attribute of the model, or how they change to run `after`.

    None without beliefs in the classes of the answers, or if the beliefs of both runs differ, as
    those of different models do.
    """
    first = table.scores[0]
    beliefs = first.zero_shot or {}
    sensitive = first.sensitive_zero_shot or {}
    class_names = [str(name) for name in table.targets]
    if not sensitive or not beliefs.keys() >= set(class_names):
        return None
    if after is not None and not _have_same_beliefs(first, table.scores[after]):
        return None

    # Classes may have another order in the beliefs: answers are numbered in that order
    belief_order = list(beliefs)
    position = np.array([belief_order.index(name) for name in class_names])
    runs = [0] if after is None else [0, after]
    answers = [position[table.answers[run]] for run in runs]
    target = np.stack(list(beliefs.values()), axis=1)

    odds_by_attribute: dict[str, Any] = {}
    for attribute, values in sensitive.items():
        odds = pseudo_odds(answers, target, values, bootstrap, clusters=table.clusters)
        eod = None
        if attribute in table.values:
            eod = _odds_by_labels(
                _table_of_attribute(table, attribute), bootstrap, after
            )
        if after is None:
            odds_by_attribute[attribute] = doc.PerceivedOdds(odds.runs[0], eod)
        else:
            odds_by_attribute[attribute] = doc.PerceivedOddsChange(odds.changes[0], eod)
    return odds_by_attribute


def _odds_by_labels(
    table: AnswerTable, bootstrap: Bootstrap, after: int | None
) -> Estimate:
    """Return EOD of the first run, or how it changes to that of another."""
    if after is None:
        return definitions.EQUALIZED_ODDS.estimate(table, 0, bootstrap)
    return definitions.EQUALIZED_ODDS.difference(table, 0, after, bootstrap)


def _table_of_attribute(table: AnswerTable, attribute: str) -> AnswerTable:
    """Return the same images in groups of one attribute alone."""
    shape = [len(names) for names in table.values.values()]
    codes_by_attribute = np.unravel_index(table.group_codes, shape)
    index = list(table.values).index(attribute)
    return replace(
        table,
        values={attribute: table.values[attribute]},
        group_codes=codes_by_attribute[index],
    )


def _have_same_beliefs(first: Scores, second: Scores) -> bool:
    return _are_close(first.zero_shot, second.zero_shot) and _are_close(
        first.sensitive_zero_shot, second.sensitive_zero_shot
    )


def _are_close(
    first: Mapping[str, Floats] | None, second: Mapping[str, Floats] | None
) -> bool:
    """Return True if both have the same names, in order, with the same numbers up to rounding."""
    first = first or {}
    second = second or {}
    if list(first) != list(second):
        return False
    for name, numbers in first.items():
        if numbers.shape != second[name].shape:
            return False
        if not np.allclose(numbers, second[name], rtol=0, atol=_BELIEF_TOLERANCE):
            return False
    return True


def without_intervals(part: Any, reason: str) -> Any:
    """Return figures, or whatever contains some, with a reason instead of intervals."""
    # Parts of documents nest in parts, mappings and tuples; estimates are the leaves that change
    if isinstance(part, Estimate):
        if part.low is None:
            return part
        reasons = reason if part.reason is None else f"{reason}; {part.reason}"
        return structs.replace(part, low=None, high=None, reason=reasons)
    if isinstance(part, doc.DocumentPart):
        fields = structs.asdict(part)
        return structs.replace(part, **without_intervals(fields, reason))
    if isinstance(part, Mapping):
        return {name: without_intervals(inner, reason) for name, inner in part.items()}
    if isinstance(part, tuple):
        return tuple(without_intervals(inner, reason) for inner in part)
    return part


def _withheld_if_few(figures: _Part, table: AnswerTable) -> _Part:
    """Return the figures, without intervals if there are too few clusters for any."""
    reason = table.few_clusters_reason
    return figures if reason is None else without_intervals(figures, reason)


def figures_of_run(
    table: AnswerTable,
    bootstrap: Bootstrap,
    *,
    name: str,
    adapter: doc.AdapterFields | None,
    cost: doc.Cost | None,
    harmful: Mapping[str, Sequence[str]],
    no_class: doc.UnknownAnswers | None,
) -> doc.RunFigures:
    """Return the first run of the table in figures."""
    scores = table.scores[0]
    confidence = scores.confidence

    # The same images before adaptation, if the run reports them
    zero_shot_scores = None
    if scores.entropy_zero_shot is not None:
        zero_shot_scores = doc.ZeroShotScores(
            mean_score(table, 1 - scores.entropy_zero_shot, bootstrap.level),
            _indifference(table, scores.sensitive_entropy_zero_shot, bootstrap),
        )

    # A warning that an image has several times counts once
    warned_images: Counter[str] = Counter()
    for warnings_of_image in scores.warnings:
        warned_images.update(sorted(set(warnings_of_image)))
    metrics = {
        metric: definition.estimate(table, 0, bootstrap)
        for metric, definition in definitions.METRICS.items()
    }
    figures = doc.RunFigures(
        name=name,
        adapter=adapter,
        metrics=doc.RunMetrics(**metrics),
        sensitive_indifference=_indifference(
            table, scores.sensitive_entropy, bootstrap
        ),
        zero_shot_scores=zero_shot_scores,
        worst_group=doc.WorstGroups(
            target_and_sensitive=_worst_group(table, GroupBy.TARGET_AND_SENSITIVE),
            sensitive=_worst_group(table, GroupBy.SENSITIVE),
        ),
        classes=tuple(_gaps_of_classes(table, bootstrap)),
        groups=tuple(_figures_of_groups(table, bootstrap)),
        relative_steps=_relative_steps(scores.relative_step),
        warnings=dict(warned_images.most_common(_MAX_WARNINGS)),
        cost=cost,
        provenance=None,
        harm=tuple(
            doc.HarmRate(*rate)
            for rate in _harm_shares(table, harmful, bootstrap.level)
        ),
        perceived=_perceived_odds(table, bootstrap),
        median_confidence=None if confidence is None else float(np.median(confidence)),
        no_class=no_class,
    )
    return _withheld_if_few(figures, table)


def _group_values(table: AnswerTable, group: int) -> dict[str, str]:
    """Return ``{attribute: value}`` of a group."""
    return dict(zip(table.values, map(str, table.groups[group]), strict=True))


def _indifference(
    table: AnswerTable, entropies: Mapping[str, Floats] | None, bootstrap: Bootstrap
) -> dict[str, Estimate]:
    """Return the mean entropy of each attribute."""
    return {
        attribute: mean_score(table, entropy, bootstrap.level)
        for attribute, entropy in (entropies or {}).items()
    }


def _worst_group(table: AnswerTable, over: GroupBy) -> doc.GroupName:
    """Return the name of the group with the lowest accuracy."""
    cell = table.cells(over)[table.worst_cell(0, over)]
    names = [str(name) for name in cell]
    target = None if over is GroupBy.SENSITIVE else names.pop(0)
    return doc.GroupName(target, dict(zip(table.values, names, strict=True)))


def _gaps_of_classes(
    table: AnswerTable, bootstrap: Bootstrap
) -> Iterator[doc.GapsOfClass]:
    """Yield the gaps between groups in the rates of each class."""
    # Images of each class; no image is of `NO_CLASS`
    counts = np.bincount(table.truth, minlength=len(table.targets)).tolist()
    gaps_by_class = gaps_of_classes(table, 0, bootstrap.level)
    for target, n, gaps in zip(table.targets, counts, gaps_by_class, strict=True):
        if target == NO_CLASS:
            continue
        yield doc.GapsOfClass(
            str(target),
            n,
            tpr_gap=gaps.true_positive_rate,
            fpr_gap=gaps.false_positive_rate,
            selection_gap=gaps.selection_rate,
        )


def _figures_of_groups(
    table: AnswerTable, bootstrap: Bootstrap
) -> Iterator[doc.GroupFigures]:
    """Yield the figures of each group, in all classes and class by class."""
    rates_by_group = rates_of_groups(table, 0, bootstrap.level)
    weights = table.effective_weights(0, GroupBy.SENSITIVE)
    # [groups, classes]
    cell_images = table.different_images_of(GroupBy.TARGET_AND_SENSITIVE)
    cell_images = cell_images.reshape(-1, len(table.targets))
    has_repeats = table.image_count < table.n
    for group, confusion in enumerate(table.counts(0)):
        values = _group_values(table, group)
        n = int(confusion.sum())
        correct = confusion.diagonal().tolist()

        # No image is of `NO_CLASS`, so it has neither rates nor a row
        rows = []
        classes = []
        for index, target in enumerate(table.targets):
            if target == NO_CLASS:
                continue
            rows.append(tuple(confusion[index].tolist()))
            rates = rates_by_group[group][index]
            different_images = int(cell_images[group, index]) if has_repeats else None
            classes.append(
                doc.ClassInGroup(
                    str(target),
                    rates.true_positive_rate.n,
                    correct[index],
                    rates.true_positive_rate,
                    rates.false_positive_rate,
                    rates.selection_rate,
                    different_images,
                )
            )

        name = group_label(*values.values())
        yield doc.GroupFigures(
            sensitive=values,
            n=n,
            correct=sum(correct),
            accuracy=rate_estimate(
                sum(correct), n, bootstrap.level, name, weights[group]
            ),
            calibration_error=calibration_error(table, 0, bootstrap, group),
            confusion=tuple(rows),
            classes=tuple(classes),
        )


def _relative_steps(steps: Floats | None) -> doc.RelativeSteps | None:
    """Return quantiles of how far the context moved, where it was tuned."""
    if steps is None:
        return None
    known = steps[np.isfinite(steps)]
    values = np.quantile(known, _QUANTILES).tolist()
    quantiles = {
        f"{level:g}": value for level, value in zip(_QUANTILES, values, strict=True)
    }
    return doc.RelativeSteps(len(known), quantiles)


def compare_with_first(
    table: AnswerTable,
    after: int,
    bootstrap: Bootstrap,
    *,
    names: tuple[str, str],
    harmful: Mapping[str, Sequence[str]],
    corrected: Sequence[doc.Differences],
) -> doc.Comparison:
    """Return run `after` minus the first run, overall and group by group."""
    # Entropies may be known of one run only: then the change is undefined, and says why
    entropies_before = table.scores[0].sensitive_entropy or {}
    entropies_after = table.scores[after].sensitive_entropy or {}
    indifference = {}
    for attribute, after_entropy in entropies_after.items():
        before_entropy = entropies_before.get(attribute)
        indifference[attribute] = mean_score_change(
            table, before_entropy, after_entropy, bootstrap.level
        )
    # Differences at the level of one comparison; those corrected for several were computed together
    differences = {
        metric.name: metric.difference(table, 0, after, bootstrap)
        for metric in doc.COMPARED_METRICS
    }
    all_images = np.ones(len(table.truth), np.bool_)
    figures = doc.Comparison(
        *names,
        differences=doc.Differences(**differences),
        sensitive_indifference=indifference,
        changes=_count_changes(table, after, all_images, bootstrap),
        groups=tuple(_compared_groups(table, after, bootstrap)),
        harm=tuple(
            doc.HarmChange(*change)
            for change in _harm_shares(table, harmful, bootstrap.level, after)
        ),
        perceived=_perceived_odds(table, bootstrap, after),
        corrected=corrected[after - 1] if corrected else None,
        compared=len(corrected) or None,
    )
    return _withheld_if_few(figures, table)


def corrected_differences(
    table: AnswerTable, bootstrap: Bootstrap
) -> list[doc.Differences]:
    """Return each run's differences from the first, at levels that allow for all of them.

    Empty if fewer than two runs are compared with the first.
    """
    comparisons = len(table.answers) - 1
    if comparisons < 2:
        return []
    # Each metric corrects its own comparisons together; the result is then sorted by run
    by_metric = {
        metric.name: metric.differences(table, bootstrap)
        for metric in doc.COMPARED_METRICS
    }
    corrected = []
    for index in range(comparisons):
        differences_of_run = {
            name: differences[index] for name, differences in by_metric.items()
        }
        corrected.append(doc.Differences(**differences_of_run))
    return corrected


class _CellImages(NamedTuple):
    """The images of a class in a group, as a mask over all images."""

    target: str
    group: int
    name: str
    images: Mask


def _compared_groups(
    table: AnswerTable, after: int, bootstrap: Bootstrap
) -> Iterator[doc.ComparedGroup]:
    """Yield how accuracy changes in each group, then in each class of each group."""
    was_right = table.answers[0] == table.truth
    is_right = table.answers[after] == table.truth
    for index, group in enumerate(table.groups):
        images = table.group_codes == index
        name = group_label(*group)
        yield doc.ComparedGroup(
            target=None,
            sensitive=_group_values(table, index),
            difference=share_estimate(
                table, images, bootstrap.level, name, was_right, is_right
            ),
            changes=_count_changes(table, after, images, bootstrap),
        )

    def change_in(cell: _CellImages, error: float) -> Estimate:
        return share_estimate(
            table, cell.images, 1 - error, cell.name, was_right, is_right
        )

    # Cells without images are not among those that are judged together
    cells = list(_cells(table))
    present = [cell for cell in cells if cell.images.any()]
    corrected = _intervals.step_down(
        len(present),
        lambda remaining: (1 - bootstrap.level) / len(remaining),
        lambda index, error: change_in(present[index], error),
        lambda estimate: direction(estimate.low, estimate.high),
    )
    corrected_by_cell = {}
    for cell, estimate in zip(present, corrected, strict=True):
        corrected_by_cell[cell.target, cell.group] = estimate
    for cell in cells:
        change = change_in(cell, 1 - bootstrap.level)
        yield doc.ComparedGroup(
            target=cell.target,
            sensitive=_group_values(table, cell.group),
            difference=change,
            changes=_count_changes(table, after, cell.images, bootstrap),
            corrected=corrected_by_cell.get((cell.target, cell.group), change),
        )


def _cells(table: AnswerTable) -> Iterator[_CellImages]:
    """Yield each class in each group, class by class."""
    for code, target in enumerate(table.targets):
        if target == NO_CLASS:
            continue
        for index, group in enumerate(table.groups):
            images = (table.truth == code) & (table.group_codes == index)
            yield _CellImages(str(target), index, group_label(target, *group), images)


def _count_changes(
    table: AnswerTable, after: int, mask: Mask, bootstrap: Bootstrap
) -> doc.AnswerChanges:
    """Count the answers that change among some images, and the images that a claim needs."""
    truth = table.truth[mask]
    before_answers = table.answers[0][mask]
    after_answers = table.answers[after][mask]
    was_right = before_answers == truth
    is_right = after_answers == truth
    has_changed = before_answers != after_answers
    n = len(truth)

    # Answers that were right and are not any more, and the other way round
    lost = int((was_right & ~is_right).sum())
    won = int((~was_right & is_right).sum())

    needed = _intervals.images_for_change(lost, won, n, bootstrap.level) if n else None
    if needed is not None and table.clusters is not None:
        # `needed` counts independent images: clusters take more, of which repeated ones count once
        change = (table.answers[after] == table.truth).astype(np.float64)
        change -= table.answers[0] == table.truth
        rows = needed / table.effective_weight(mask, change)
        needed = math.ceil(rows * table.image_count / table.n)
    return doc.AnswerChanges(
        n=n,
        changed=int(has_changed.sum()),
        right_to_wrong=lost,
        wrong_to_right=won,
        wrong_to_wrong=int((has_changed & ~was_right & ~is_right).sum()),
        mcnemar_p=_intervals.mcnemar(lost, won)
        if n and table.clusters is None
        else None,
        images_needed=needed,
    )
