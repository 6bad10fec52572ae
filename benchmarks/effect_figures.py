"""Answers of a method from features, and the figures of `effect.py` in percent."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from effect_pictures import Pictures, Question

from fair_tta import Features, ZeroShot
from fair_tta.auditing._classify import lacks_values
from fair_tta.metrics import Bootstrap, Estimate, definitions
from fair_tta.metrics._answer_table import AnswerTable, read_answer_table

METRICS = {
    "accuracy": definitions.ACCURACY,
    "balanced": definitions.BALANCED_ACCURACY,
    "wga": definitions.WORST_GROUP_ACCURACY,
    "eod": definitions.EQUALIZED_ODDS,
}
TYPICAL_GAP = definitions.METRICS["typical_gap"]
_AT_ONCE = 36


@dataclass(frozen=True, eq=False)
class Answers:
    """What a method says, beside zero-shot: probabilities ``[n, targets]``."""

    before: np.ndarray
    after: np.ndarray

    @property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        return self.before.argmax(1), self.after.argmax(1)

    @property
    def flips(self) -> int:
        before, after = self.labels
        return int((before != after).sum())


def answers(clf, adapter, pictures: Pictures) -> Answers:
    """Of one fitted method; methods that do not look at views get view 0 alone.

    A method that has to know the true values is told them, as an audit does.
    """
    if lacks_values(adapter):
        return _answers_knowing(clf, adapter, pictures)
    labels = []
    for at in range(0, len(pictures), _AT_ONCE):
        features = pictures.features[at : at + _AT_ONCE]
        features = features if adapter.needs.views else features[:, :1]
        adapters = (ZeroShot(), clf.with_adapter(adapter).adapter)
        labels.append(
            [
                one_adapter.adapt(clf._task, features).probabilities.double()
                for one_adapter in adapters
            ]
        )
    return Answers(*(torch.cat(column).numpy() for column in zip(*labels, strict=True)))


def _answers_knowing(clf, adapter, pictures: Pictures) -> Answers:
    """Each picture is answered by the method for its own values."""
    known_values = list(
        zip(*(pictures.sensitive[name] for name in clf.sensitive), strict=True)
    )
    indices_by_values = {
        values: [
            i for i, image_values in enumerate(known_values) if image_values == values
        ]
        for values in known_values
    }
    parts = [
        answers(clf, adapter.knowing(*v), pictures.at(indices))
        for v, indices in indices_by_values.items()
    ]
    all_answers, order = (
        concatenated(parts),
        np.argsort(np.concatenate(list(indices_by_values.values()))),
    )
    return Answers(all_answers.before[order], all_answers.after[order])


def answers_of_images(clf, adapter, images: list) -> Answers:
    """Of a method that works on the pictures themselves."""
    predictions = clf.with_adapter(adapter).predict(images)
    columns = ([list(p.zero_shot.values()) for p in predictions],
               [list(p.probabilities.values()) for p in predictions])  # fmt: skip
    return Answers(*(np.array(column, np.float64) for column in columns))


def concatenated(parts: Sequence[Answers]) -> Answers:
    return Answers(
        *(np.concatenate([getattr(p, k) for p in parts]) for k in ("before", "after"))
    )


def fitted(adapter, clf, reference: Pictures):
    """The method, fitted if it has to be, with the labels that it wants."""
    if not adapter.needs.reference:
        return adapter
    features = Features(reference.features[:, :1])
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # small references are what is tried
        if adapter.needs.reference_sensitive:
            labels = {name: reference.sensitive[name] for name in clf.sensitive}
            return clf.with_adapter(adapter).fit(features, sensitive=labels).adapter
        labels = reference.truth if adapter.needs.reference_labels else None
        return clf.with_adapter(adapter).fit(features, labels).adapter


def columns_of(question: Question, pictures: Pictures, runs: Sequence) -> AnswerTable:
    """What is true and what each run answers, as positions of targets."""
    targets = list(question.task.targets)
    return read_answer_table(
        pictures.truth,
        [[targets[i] for i in run] for run in runs],
        {name: pictures.sensitive[name] for name in question.attributes},
        targets,
        {name: list(values) for name, values in question.sensitive.items()},
    )


def gap_changes(rows: AnswerTable) -> list[Estimate]:
    """The change of the typical gap in each run, at levels that allow for the others."""
    return TYPICAL_GAP.differences(rows, Bootstrap())


def verdicts_of(
    rows: AnswerTable, methods: Sequence[str], sizes: Sequence[int], audits: int
) -> dict:
    """The typical gap before and after, and in percent of audits of so many images, drawn from
    these with replacement, how often each method is shown to narrow it."""
    gaps = [
        float(TYPICAL_GAP.estimate(rows, run, None)) for run in range(len(rows.answers))
    ]
    verdicts = {
        "n": len(rows.truth),
        "gap": {},
        "narrows": {name: {} for name in methods},
    }
    for name, after, change in zip(methods, gaps[1:], gap_changes(rows), strict=True):
        figures = (gaps[0], after, float(change), change.low, change.high)
        keys = ("before", "after", "change", "low", "high")
        verdicts["gap"][name] = dict(zip(keys, map(_percent, figures), strict=True))
    for n in sizes:
        random, shown_counts = np.random.default_rng(n), np.zeros(len(methods))
        for _ in range(audits):
            sample = random.integers(len(rows.truth), size=n)
            answers = tuple(run[sample] for run in rows.answers)
            audit = replace(
                rows,
                truth=rows.truth[sample],
                group_codes=rows.group_codes[sample],
                answers=answers,
            )
            shown_counts += [
                change.high is not None and change.high < 0
                for change in gap_changes(audit)
            ]
        for name, times in zip(methods, shown_counts, strict=True):
            verdicts["narrows"][name][str(n)] = _percent(times / audits)
    return verdicts


def changes(question: Question, pictures: Pictures, before, after) -> dict:
    """Figures before and after, and paired intervals of the change: positions of targets."""
    rows = columns_of(question, pictures, (before, after))
    changes_by_metric = {
        "n": len(pictures),
        "changed": _percent(np.mean(np.asarray(before) != after)),
    }
    estimates = [
        metric.difference(rows, 0, 1, Bootstrap()) for metric in METRICS.values()
    ]
    for (name, metric), change in zip(METRICS.items(), estimates, strict=True):
        metric_before, metric_after = (
            float(metric(rows.counts(run))) for run in range(2)
        )
        changes_by_metric[name] = {
            "before": _percent(metric_before),
            "after": _percent(metric_after),
            "change": _percent(float(change)),
            "low": _percent(change.low),
            "high": _percent(change.high),
        }
    return changes_by_metric


def _percent(value: float | None) -> float | None:
    """None if a figure is not defined, as with too few pictures."""
    if value is None or np.isnan(value):
        return None
    return round(100 * float(value), 2) + 0.0


def mean_of(entries: Sequence[dict]) -> dict:
    """The mean of several `changes`, and the range of their changes instead of an interval."""
    means = {
        key: round(float(np.mean([e[key] for e in entries])), 2)
        for key in ("n", "changed")
    }
    for name in METRICS:
        columns = {
            key: [e[name][key] for e in entries]
            for key in ("before", "after", "change")
        }
        means[name] = {key: round(float(np.mean(c)), 2) for key, c in columns.items()}
        means[name] |= {"low": min(columns["change"]), "high": max(columns["change"])}
    return means
