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
from fair_tta.metrics._answer_table import NO_CLASS, AnswerTable, Floats, Mask
from fair_tta.metrics._estimates import Estimate, Over, direction, label
from fair_tta.metrics._groups import gaps_of_classes, rate, rates_of_groups, share_of
from fair_tta.metrics._perceived import pseudo_odds
from fair_tta.metrics._score_figures import calibration_error, mean_change, mean_of
from fair_tta.metrics._scores import Scores
from fair_tta.metrics.intervals import _closed_forms as _intervals
from fair_tta.metrics.intervals._bootstrap import Bootstrap

HarmSets = Mapping[str, Sequence[Hashable]] | Sequence[Hashable]
"""Classes that should not be answered, or ``{name of a set: classes}``."""

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
MOST_WARNINGS = 20  # different warnings of a run

F = TypeVar("F", bound=doc.Part)

_SAME = 1e-3  # beliefs of one model on the same images, up to rounding


def parse_harmful(harmful: HarmSets | None, targets: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """``{name: classes}`` as text; an error unless they are among the targets."""
    if harmful is None:
        return {}
    if not isinstance(harmful, Mapping):
        harmful = {"harmful": harmful}
    sets = {}
    for name, classes in harmful.items():
        is_list = isinstance(classes, Collection) and not isinstance(classes, str | bytes)
        if not is_list or not len(classes):
            raise FairTTAError(
                f"`harmful` should be a list of classes, or {{name: classes}} (got {classes!r})."
            )
        names = tuple(dict.fromkeys(map(str, classes)))
        unknown = [one for one in names if one not in targets]
        if unknown:
            raise FairTTAError(
                f"`harmful` should be among the classes, {list(targets)} (got {unknown})."
            )
        sets[str(name)] = names
    return sets


def _harm(
    columns: AnswerTable, sets: Mapping[str, Sequence[str]], level: float, after: int | None = None
) -> Iterator[tuple[str, dict[str, str], Estimate]]:
    """The shares of everybody, then of each value of each attribute; or how they change."""
    groups: list[tuple[dict[str, str], Mask]] = [({}, np.ones(len(columns.group), np.bool_))]
    for attribute, values in columns.values.items():
        codes = _by_attribute(columns, attribute).group
        groups += [({attribute: str(value)}, codes == k) for k, value in enumerate(values)]
    for name, classes in sets.items():
        places = [columns.targets.index(one) for one in classes]
        was = np.isin(columns.answers[0], places)
        now = None if after is None else np.isin(columns.answers[after], places)
        for group, mask in groups:
            called = label(*group.values()) or "everybody"
            yield name, group, share_of(columns, mask, level, called, was, now)


def _perceived(
    columns: AnswerTable, how: Bootstrap, after: int | None = None
) -> dict[str, Any] | None:
    """Return pseudo-EOD and EOD by attribute of the model, or how they change.

    None without beliefs in the classes of the answers, or if two runs have different ones, as
    those of different models do.
    """
    first = columns.scores[0]
    beliefs = first.zero_shot or {}
    sensitive = first.sensitive_zero_shot or {}
    class_names = [str(name) for name in columns.targets]
    if not sensitive or not beliefs.keys() >= set(class_names):
        return None
    if after is not None and not _alike(first, columns.scores[after]):
        return None

    # Beliefs may be in another order of classes than answers: these are numbered as those.
    order = list(beliefs)
    position = np.array([order.index(name) for name in class_names])
    runs = [0] if after is None else [0, after]
    answers = [position[columns.answers[run]] for run in runs]
    target = np.stack(list(beliefs.values()), 1)

    odds_by_attribute: dict[str, Any] = {}
    for attribute, values in sensitive.items():
        odds = pseudo_odds(answers, target, values, how, clusters=columns.clusters)
        eod = None
        if attribute in columns.values:
            eod = _odds_by_labels(_by_attribute(columns, attribute), how, after)
        if after is None:
            odds_by_attribute[attribute] = doc.PerceivedOdds(odds.runs[0], eod)
        else:
            odds_by_attribute[attribute] = doc.PerceivedOddsChange(odds.changes[0], eod)
    return odds_by_attribute


def _odds_by_labels(columns: AnswerTable, how: Bootstrap, after: int | None) -> Estimate:
    """Return EOD of the first run, or how it changes to that of another."""
    if after is None:
        return definitions.EQUALIZED_ODDS.estimate(columns, 0, how)
    return definitions.EQUALIZED_ODDS.difference(columns, 0, after, how)


def _by_attribute(columns: AnswerTable, attribute: str) -> AnswerTable:
    """The same images in groups of one attribute alone."""
    codes = np.unravel_index(columns.group, [len(names) for names in columns.values.values()])
    place = list(columns.values).index(attribute)
    return replace(columns, values={attribute: columns.values[attribute]}, group=codes[place])


def _alike(first: Scores, then: Scores) -> bool:
    """Whether both have the same beliefs."""
    parts = [(s.zero_shot or {}, s.sensitive_zero_shot or {}) for s in (first, then)]
    return all(
        list(a) == list(b)
        and all(a[k].shape == b[k].shape and np.allclose(a[k], b[k], 0, _SAME) for k in a)
        for a, b in zip(*parts, strict=True)
    )


def without_intervals(part: Any, reason: str) -> Any:
    """Return the same figures with this reason instead of intervals."""
    if isinstance(part, Estimate):
        if part.low is None:
            return part
        reasons = reason if part.reason is None else f"{reason}; {part.reason}"
        return structs.replace(part, low=None, high=None, reason=reasons)
    if isinstance(part, doc.Part):
        fields = structs.asdict(part)
        return structs.replace(part, **without_intervals(fields, reason))
    if isinstance(part, Mapping):
        return {name: without_intervals(inner, reason) for name, inner in part.items()}
    if isinstance(part, tuple):
        return tuple(without_intervals(inner, reason) for inner in part)
    return part


def _withheld_if_few(figures: F, columns: AnswerTable) -> F:
    """Return the figures, without intervals if there are too few clusters for any."""
    reason = columns.few_clusters
    return figures if reason is None else without_intervals(figures, reason)


def figures_of_run(
    columns: AnswerTable,
    how: Bootstrap,
    *,
    name: str,
    adapter: doc.AdapterFields | None,
    cost: doc.Cost | None,
    harmful: Mapping[str, Sequence[str]],
    no_class: doc.UnknownAnswers | None,
) -> doc.RunFigures:
    """The first run of these columns in figures."""
    scores, metrics = columns.scores[0], definitions.METRICS
    sure, harm = scores.confidence, _harm(columns, harmful, how.level)
    counter = Counter(text for texts in scores.warnings for text in set(texts))
    figures = doc.RunFigures(
        name=name,
        adapter=adapter,
        metrics=doc.RunMetrics(
            **{key: metric.estimate(columns, 0, how) for key, metric in metrics.items()}
        ),
        sensitive_indifference=_indifference(columns, scores.sensitive_entropy, how),
        zero_shot_scores=None
        if scores.entropy_zero_shot is None
        else doc.ZeroShotScores(
            mean_of(columns, 1 - scores.entropy_zero_shot, how.level),
            _indifference(columns, scores.sensitive_entropy_zero_shot, how),
        ),
        worst_group=doc.WorstGroups(*(_worst_group(columns, over) for over in Over)),
        classes=tuple(_classes(columns, how)),
        groups=tuple(_groups(columns, how)),
        relative_steps=_steps(scores.relative_step),
        warnings=dict(counter.most_common(MOST_WARNINGS)),
        cost=cost,
        provenance=None,
        harm=tuple(doc.HarmRate(sets, group, share) for sets, group, share in harm),
        perceived=_perceived(columns, how),
        median_confidence=float(np.median(sure)) if sure is not None and len(sure) else None,
        no_class=no_class,
    )
    return _withheld_if_few(figures, columns)


def _group_values(columns: AnswerTable, group: int) -> dict[str, str]:
    """``{attribute: value}``."""
    return dict(zip(columns.values, map(str, columns.groups[group]), strict=True))


def _indifference(
    columns: AnswerTable, entropies: Mapping[str, Floats] | None, how: Bootstrap
) -> dict[str, Estimate]:
    """Return the mean entropy of each attribute."""
    return {a: mean_of(columns, entropy, how.level) for a, entropy in (entropies or {}).items()}


def _worst_group(columns: AnswerTable, over: Over) -> doc.GroupName:
    cell = list(map(str, columns.cells(over)[columns.worst_cell(0, over)]))
    target = None if over is Over.SENSITIVE else cell.pop(0)
    return doc.GroupName(target, dict(zip(columns.values, cell, strict=True)))


def _classes(columns: AnswerTable, how: Bootstrap) -> Iterator[doc.GapsOfClass]:
    """Yield the gaps between groups in the rates of each class."""
    counts = np.bincount(columns.truth, minlength=len(columns.targets)).tolist()
    gaps_by_class = gaps_of_classes(columns, 0, how)
    for target, n, gaps in zip(columns.targets, counts, gaps_by_class, strict=True):
        if target == NO_CLASS:
            continue
        yield doc.GapsOfClass(
            str(target),
            n,
            tpr_gap=gaps.true_positive_rate,
            fpr_gap=gaps.false_positive_rate,
            selection_gap=gaps.selection_rate,
        )


def _groups(columns: AnswerTable, how: Bootstrap) -> Iterator[doc.GroupFigures]:
    """Yield the figures of each group, in all classes and class by class."""
    rates_by_group = rates_of_groups(columns, 0, how.level)
    weights = columns.weights(0, Over.SENSITIVE)
    cell_images = columns.different(Over.TARGET_AND_SENSITIVE).reshape(-1, len(columns.targets))
    has_repeats = columns.image_count < columns.n
    for group, confusion in enumerate(columns.counts(0)):
        values = _group_values(columns, group)
        n = int(confusion.sum())
        correct = confusion.diagonal().tolist()

        # Rows and rates of `NO_CLASS` say nothing: no image is of it.
        rows = []
        classes = []
        for c, target in enumerate(columns.targets):
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
                    different_images=int(cell_images[group, c]) if has_repeats else None,
                )
            )

        name = label(*values.values())
        yield doc.GroupFigures(
            sensitive=values,
            n=n,
            correct=sum(correct),
            accuracy=rate(sum(correct), n, how.level, name, weights[group]),
            calibration_error=calibration_error(columns, 0, how, group),
            confusion=tuple(rows),
            classes=tuple(classes),
        )


def _steps(steps: Floats | None) -> doc.RelativeSteps | None:
    if steps is None:
        return None
    known = steps[np.isfinite(steps)]
    quantiles = zip(QUANTILES, np.quantile(known, QUANTILES).tolist(), strict=True)
    return doc.RelativeSteps(len(known), {f"{q:g}": value for q, value in quantiles})


def against(
    columns: AnswerTable,
    after: int,
    how: Bootstrap,
    *,
    names: tuple[str, str],
    harmful: Mapping[str, Sequence[str]],
    corrected: Sequence[doc.Differences],
) -> doc.Comparison:
    """Run `after` minus the first run, overall and group by group."""
    a, b = columns.scores[0], columns.scores[after]
    known = a.sensitive_entropy or {}
    harm = _harm(columns, harmful, how.level, after)
    figures = doc.Comparison(
        *names,
        differences=doc.Differences(
            **{m.name: m.difference(columns, 0, after, how) for m in doc.COMPARED}
        ),
        sensitive_indifference={
            attribute: mean_change(columns, known.get(attribute), entropy, how.level)
            for attribute, entropy in (b.sensitive_entropy or {}).items()
        },
        changes=_changes(columns, after, np.ones(len(columns.truth), np.bool_), how),
        groups=tuple(_compared_groups(columns, after, how)),
        harm=tuple(doc.HarmChange(sets, group, change) for sets, group, change in harm),
        perceived=_perceived(columns, how, after),
        corrected=corrected[after - 1] if corrected else None,
        compared=len(corrected) or None,
    )
    return _withheld_if_few(figures, columns)


def corrected_differences(columns: AnswerTable, how: Bootstrap) -> list[doc.Differences]:
    """Return each run's differences from the first, at levels that allow for all of them.

    Empty if fewer than two runs are compared with the first.
    """
    comparisons = len(columns.answers) - 1
    if comparisons < 2:
        return []
    by_metric = {metric.name: metric.differences(columns, how) for metric in doc.COMPARED}
    corrected = []
    for i in range(comparisons):
        of_run = {name: differences[i] for name, differences in by_metric.items()}
        corrected.append(doc.Differences(**of_run))
    return corrected


def _compared_groups(
    columns: AnswerTable, after: int, how: Bootstrap
) -> Iterator[doc.ComparedGroup]:
    was, now = (columns.answers[run] == columns.truth for run in (0, after))
    targets = [target for target in columns.targets if target != NO_CLASS]
    for g, group in enumerate(columns.groups):
        mask = columns.group == g
        difference = share_of(columns, mask, how.level, label(*group), was, now)
        changes = _changes(columns, after, mask, how)
        yield doc.ComparedGroup(None, _group_values(columns, g), difference, changes)
    cells = [(c, g) for c in range(len(targets)) for g in range(len(columns.groups))]
    masks = [(columns.truth == c) & (columns.group == g) for c, g in cells]
    names = [label(targets[c], *columns.groups[g]) for c, g in cells]

    def change_of(place: int, error: float) -> Estimate:
        return share_of(columns, masks[place], 1 - error, names[place], was, now)

    # Groups without images are not among those that are judged together.
    present = [place for place, mask in enumerate(masks) if mask.any()]
    judged = _intervals.step_down(
        len(present),
        lambda left: (1 - how.level) / len(left),
        lambda i, error: change_of(present[i], error),
        lambda estimate: direction(estimate.low, estimate.high),
    )
    corrected = dict(zip(present, judged, strict=True))
    for place, (c, g) in enumerate(cells):
        change = change_of(place, 1 - how.level)
        yield doc.ComparedGroup(
            str(targets[c]),
            _group_values(columns, g),
            change,
            _changes(columns, after, masks[place], how),
            corrected=corrected.get(place, change),
        )


def _changes(columns: AnswerTable, after: int, mask: Mask, how: Bootstrap) -> doc.AnswerChanges:
    a, b, truth = columns.answers[0][mask], columns.answers[after][mask], columns.truth[mask]
    was, now, moved = a == truth, b == truth, a != b
    n, lost, won = len(truth), int((was & ~now).sum()), int((~was & now).sum())
    needed = _intervals.images_for_change(lost, won, n, how.level) if n else None
    if needed is not None and columns.clusters is not None:
        # So many independent images, and as many more as the clusters take.
        change = (columns.answers[after] == columns.truth).astype(np.float64)
        change -= columns.answers[0] == columns.truth
        rows = needed / columns.weight(mask, change)
        needed = math.ceil(rows * columns.image_count / columns.n)
    return doc.AnswerChanges(
        n=n,
        changed=int(moved.sum()),
        right_to_wrong=lost,
        wrong_to_right=won,
        wrong_to_wrong=int((moved & ~was & ~now).sum()),
        mcnemar_p=_intervals.mcnemar(lost, won) if n and columns.clusters is None else None,
        images_needed=needed,
    )
