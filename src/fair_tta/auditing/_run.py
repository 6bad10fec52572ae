"""Runs in figures: what stands under "runs" and "comparisons" in an audit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

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

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
MOST_WARNINGS = 20  # different warnings of a run

F = TypeVar("F", bound=doc.DocumentPart)

_SAME = 1e-3  # beliefs of one model on the same images, up to rounding


def parse_harmful(
    harmful: HarmSets | None, targets: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """``{name: classes}`` as text; an error unless they are among the targets."""
    if harmful is None:
        return {}
    if not isinstance(harmful, Mapping):
        harmful = {"harmful": harmful}
    sets = {}
    for name, classes in harmful.items():
        is_list = isinstance(classes, Collection) and not isinstance(
            classes, str | bytes
        )
        if not is_list or not len(classes):
            raise FairTTAError(
                f"`harmful` should be a list of classes, or {{name: classes}} (got {classes!r}).",
                argument="harmful",
            )
        names = tuple(dict.fromkeys(map(str, classes)))
        unknown = [one for one in names if one not in targets]
        if unknown:
            raise FairTTAError(
                f"`harmful` should be among the classes, {list(targets)} (got {unknown}).",
                argument="harmful",
            )
        sets[str(name)] = names
    return sets


def _harm(
    table: AnswerTable,
    sets: Mapping[str, Sequence[str]],
    level: float,
    after: int | None = None,
) -> Iterator[tuple[str, dict[str, str], Estimate]]:
    """Yield the shares of everybody, then of each value of each attribute; or how they change."""
    everybody: dict[str, str] = {}
    groups = [(everybody, np.ones(len(table.group_codes), np.bool_))]
    for attribute, values in table.values.items():
        codes = _by_attribute(table, attribute).group_codes
        for code, value in enumerate(values):
            groups.append(({attribute: str(value)}, codes == code))

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


def _perceived(
    table: AnswerTable, bootstrap: Bootstrap, after: int | None = None
) -> dict[str, Any] | None:
    """Return pseudo-EOD and EOD by attribute of the model, or how they change.

    None without beliefs in the classes of the answers, or if two runs have different ones, as
    those of different models do.
    """
    first = table.scores[0]
    beliefs = first.zero_shot or {}
    sensitive = first.sensitive_zero_shot or {}
    class_names = [str(name) for name in table.targets]
    if not sensitive or not beliefs.keys() >= set(class_names):
        return None
    if after is not None and not _alike(first, table.scores[after]):
        return None

    # Beliefs may be in another order of classes than answers: these are numbered as those.
    order = list(beliefs)
    position = np.array([order.index(name) for name in class_names])
    runs = [0] if after is None else [0, after]
    answers = [position[table.answers[run]] for run in runs]
    target = np.stack(list(beliefs.values()), 1)

    odds_by_attribute: dict[str, Any] = {}
    for attribute, values in sensitive.items():
        odds = pseudo_odds(answers, target, values, bootstrap, clusters=table.clusters)
        eod = None
        if attribute in table.values:
            eod = _odds_by_labels(_by_attribute(table, attribute), bootstrap, after)
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


def _by_attribute(table: AnswerTable, attribute: str) -> AnswerTable:
    """The same images in groups of one attribute alone."""
    codes = np.unravel_index(
        table.group_codes, [len(names) for names in table.values.values()]
    )
    place = list(table.values).index(attribute)
    return replace(
        table, values={attribute: table.values[attribute]}, group_codes=codes[place]
    )


def _alike(first: Scores, then: Scores) -> bool:
    """Whether both have the same beliefs."""
    parts = [(s.zero_shot or {}, s.sensitive_zero_shot or {}) for s in (first, then)]
    return all(
        list(a) == list(b)
        and all(
            a[k].shape == b[k].shape and np.allclose(a[k], b[k], 0, _SAME) for k in a
        )
        for a, b in zip(*parts, strict=True)
    )


def without_intervals(part: Any, reason: str) -> Any:
    """Return the same figures with this reason instead of intervals."""
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


def _withheld_if_few(figures: F, table: AnswerTable) -> F:
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
    zero_shot_scores = None
    if scores.entropy_zero_shot is not None:
        zero_shot_scores = doc.ZeroShotScores(
            mean_score(table, 1 - scores.entropy_zero_shot, bootstrap.level),
            _indifference(table, scores.sensitive_entropy_zero_shot, bootstrap),
        )

    # A warning that comes several times for one image counts once.
    warned_images = Counter(text for texts in scores.warnings for text in set(texts))
    metrics = {
        name: metric.estimate(table, 0, bootstrap)
        for name, metric in definitions.METRICS.items()
    }
    has_confidence = confidence is not None and len(confidence) > 0
    figures = doc.RunFigures(
        name=name,
        adapter=adapter,
        metrics=doc.RunMetrics(**metrics),
        sensitive_indifference=_indifference(
            table, scores.sensitive_entropy, bootstrap
        ),
        zero_shot_scores=zero_shot_scores,
        worst_group=doc.WorstGroups(*(_worst_group(table, over) for over in GroupBy)),
        classes=tuple(_classes(table, bootstrap)),
        groups=tuple(_groups(table, bootstrap)),
        relative_steps=_steps(scores.relative_step),
        warnings=dict(warned_images.most_common(MOST_WARNINGS)),
        cost=cost,
        provenance=None,
        harm=tuple(
            doc.HarmRate(*rate) for rate in _harm(table, harmful, bootstrap.level)
        ),
        perceived=_perceived(table, bootstrap),
        median_confidence=float(np.median(confidence)) if has_confidence else None,
        no_class=no_class,
    )
    return _withheld_if_few(figures, table)


def _group_values(table: AnswerTable, group: int) -> dict[str, str]:
    """``{attribute: value}``."""
    return dict(zip(table.values, map(str, table.groups[group]), strict=True))


def _indifference(
    table: AnswerTable, entropies: Mapping[str, Floats] | None, bootstrap: Bootstrap
) -> dict[str, Estimate]:
    """Return the mean entropy of each attribute."""
    return {
        a: mean_score(table, entropy, bootstrap.level)
        for a, entropy in (entropies or {}).items()
    }


def _worst_group(table: AnswerTable, over: GroupBy) -> doc.GroupName:
    """Return the name of the group with the lowest accuracy."""
    cell = table.cells(over)[table.worst_cell(0, over)]
    names = [str(name) for name in cell]
    target = None if over is GroupBy.SENSITIVE else names.pop(0)
    return doc.GroupName(target, dict(zip(table.values, names, strict=True)))


def _classes(table: AnswerTable, bootstrap: Bootstrap) -> Iterator[doc.GapsOfClass]:
    """Yield the gaps between groups in the rates of each class."""
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


def _groups(table: AnswerTable, bootstrap: Bootstrap) -> Iterator[doc.GroupFigures]:
    """Yield the figures of each group, in all classes and class by class."""
    rates_by_group = rates_of_groups(table, 0, bootstrap.level)
    weights = table.effective_weights(0, GroupBy.SENSITIVE)
    cell_images = table.different_images_of(GroupBy.TARGET_AND_SENSITIVE).reshape(
        -1, len(table.targets)
    )
    has_repeats = table.image_count < table.n
    for group, confusion in enumerate(table.counts(0)):
        values = _group_values(table, group)
        n = int(confusion.sum())
        correct = confusion.diagonal().tolist()

        # Rows and rates of `NO_CLASS` say nothing: no image is of it.
        rows = []
        classes = []
        for c, target in enumerate(table.targets):
            if target == NO_CLASS:
                continue
            rows.append(tuple(confusion[c].tolist()))
            rates = rates_by_group[group][c]
            classes.append(
                doc.ClassInGroup(
                    str(target),
                    rates.true_positive_rate.n,
                    correct[c],
                    rates.true_positive_rate,
                    rates.false_positive_rate,
                    rates.selection_rate,
                    different_images=int(cell_images[group, c])
                    if has_repeats
                    else None,
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


def _steps(steps: Floats | None) -> doc.RelativeSteps | None:
    """Return quantiles of how far the context moved, where it was tuned."""
    if steps is None:
        return None
    known = steps[np.isfinite(steps)]
    values = np.quantile(known, QUANTILES).tolist()
    quantiles = {
        f"{level:g}": value for level, value in zip(QUANTILES, values, strict=True)
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
    entropies_before = table.scores[0].sensitive_entropy or {}
    entropies_after = table.scores[after].sensitive_entropy or {}
    indifference = {
        attribute: mean_score_change(
            table, entropies_before.get(attribute), entropy, bootstrap.level
        )
        for attribute, entropy in entropies_after.items()
    }
    differences = {
        metric.name: metric.difference(table, 0, after, bootstrap)
        for metric in doc.COMPARED_METRICS
    }
    all_images = np.ones(len(table.truth), np.bool_)
    figures = doc.Comparison(
        *names,
        differences=doc.Differences(**differences),
        sensitive_indifference=indifference,
        changes=_changes(table, after, all_images, bootstrap),
        groups=tuple(_compared_groups(table, after, bootstrap)),
        harm=tuple(
            doc.HarmChange(*change)
            for change in _harm(table, harmful, bootstrap.level, after)
        ),
        perceived=_perceived(table, bootstrap, after),
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
    by_metric = {
        metric.name: metric.differences(table, bootstrap)
        for metric in doc.COMPARED_METRICS
    }
    corrected = []
    for i in range(comparisons):
        of_run = {name: differences[i] for name, differences in by_metric.items()}
        corrected.append(doc.Differences(**of_run))
    return corrected


def _compared_groups(
    table: AnswerTable, after: int, bootstrap: Bootstrap
) -> Iterator[doc.ComparedGroup]:
    """Yield how accuracy changes in each group, then in each class of each group."""
    was_right = table.answers[0] == table.truth
    is_right = table.answers[after] == table.truth
    targets = [target for target in table.targets if target != NO_CLASS]
    for g, group in enumerate(table.groups):
        mask = table.group_codes == g
        difference = share_estimate(
            table, mask, bootstrap.level, group_label(*group), was_right, is_right
        )
        changes = _changes(table, after, mask, bootstrap)
        yield doc.ComparedGroup(None, _group_values(table, g), difference, changes)

    cells = [(c, g) for c in range(len(targets)) for g in range(len(table.groups))]
    masks = [(table.truth == c) & (table.group_codes == g) for c, g in cells]
    names = [group_label(targets[c], *table.groups[g]) for c, g in cells]

    def change_of(cell: int, error: float) -> Estimate:
        return share_estimate(
            table, masks[cell], 1 - error, names[cell], was_right, is_right
        )

    # Cells without images are not among those that are judged together.
    present = [cell for cell, mask in enumerate(masks) if mask.any()]
    judged = _intervals.step_down(
        len(present),
        lambda left: (1 - bootstrap.level) / len(left),
        lambda i, error: change_of(present[i], error),
        lambda estimate: direction(estimate.low, estimate.high),
    )
    corrected = dict(zip(present, judged, strict=True))
    for cell, (c, g) in enumerate(cells):
        change = change_of(cell, 1 - bootstrap.level)
        yield doc.ComparedGroup(
            str(targets[c]),
            _group_values(table, g),
            change,
            _changes(table, after, masks[cell], bootstrap),
            corrected=corrected.get(cell, change),
        )


def _changes(
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
    lost = int((was_right & ~is_right).sum())
    won = int((~was_right & is_right).sum())

    needed = _intervals.images_for_change(lost, won, n, bootstrap.level) if n else None
    if needed is not None and table.clusters is not None:
        # So many independent images, and as many more as the clusters take.
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
