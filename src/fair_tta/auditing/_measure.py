"""How audits are made: measure a run, put runs side by side."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from msgspec import structs

from fair_tta._identity import ORIGIN, describe, describe_adapter, environment
from fair_tta.auditing import _document as doc
from fair_tta.auditing._audit import Audit
from fair_tta.auditing._run import (
    HarmSets,
    against,
    corrected_differences,
    figures_of_run,
    parse_harmful,
)
from fair_tta.errors import FairTTAError, check_number
from fair_tta.metrics._bootstrap import DEFAULT, Bootstrap, Interval, read_interval
from fair_tta.metrics._columns import Column, Columns, Sensitive, Values, parse_columns
from fair_tta.metrics._estimate import SMALL, Over, small_groups, warn_small
from fair_tta.metrics._scores import Scores


def audit(
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    name: str = "predictions",
    targets: Sequence[Hashable] | None = None,
    values: Values | None = None,
    scores: Scores | None = None,
    seconds: float | None = None,
    harmful: HarmSets | None = None,
    clusters: Column | None = None,
    interval: Interval = DEFAULT,
    adapter: Any = None,
    provenance: Mapping[str, Any] | None = None,
) -> Audit:
    """Measure the answers of one run, group by group.

    Args:
        y_true: true labels, one per image: a list, array, tensor or series.
        y_pred: answers.
        sensitive: sensitive values, or ``{attribute: values}``; groups are intersections.
        name: what to call the run.
        targets: all classes, if some may not occur.
        values: all sensitive values, or ``{attribute: all values}``, if some may not occur.
        scores: what the run reports besides its answers: `Scores`.
        seconds: how long the run took.
        harmful: classes that should not be answered, or ``{name of a set: classes}``; how often
            they are is reported by group, see `fair_tta.metrics.harm_rate`.
        clusters: the person or source of each image, if several images come from one; intervals
            allow for that. Without a value (None, NaN or "") an image is a cluster of its own.
        interval: how intervals are made.
        adapter: the method, to be written down.
        provenance: what else to write down, see `fair_tta._identity`.

    Example:
        >>> y_true = ["cat", "dog"] * 100
        >>> y_pred = ["cat"] * 100 + ["cat", "dog"] * 50
        >>> found = audit(y_true, y_pred, ["indoors"] * 100 + ["outdoors"] * 100)
        >>> found.estimate("worst_group_accuracy").value
        0.0
    """
    if seconds is not None:
        check_number("seconds", seconds, "be a number from 0 on", lambda x: 0 <= x < float("inf"))
    how = read_interval(interval)
    if sensitive is None:
        raise FairTTAError(
            "`sensitive` should have a value per image, or be {attribute: values} (got None)."
        )
    columns = parse_columns(y_true, [y_pred], sensitive, targets, values, clusters)
    n, classes = len(columns.truth), _strings(columns.targets)
    attributes = {attribute: _strings(names) for attribute, names in columns.values.items()}
    checked = (scores or Scores()).checked(n)
    columns = replace(columns, targets=classes, values={**attributes}, scores=(checked,))
    sources = None if columns.clusters is None else int(columns.clusters.max()) + 1
    if not isinstance(name, str) or not name:
        raise FairTTAError(f"`name` should be a string (got {name!r}).")
    sets = parse_harmful(harmful, classes)
    cell_sizes = columns.sizes(Over.TARGET_AND_SENSITIVE)
    warn_small(cell_sizes)
    run = figures_of_run(
        columns,
        how,
        name=name,
        adapter=None if adapter is None else doc.AdapterFields(**describe_adapter(adapter)),
        cost=None if seconds is None else doc.Cost(float(seconds), seconds / n),
        harmful=sets,
    )
    document = doc.AuditDocument(
        schema=doc.SCHEMA_ID,
        data=doc.DataFields(n, _data_hash(columns), classes, attributes, sets, sources),
        settings=doc.IntervalSettings(how.level, how.resamples, how.seed, how.strata, SMALL),
        runs=(run,),
        comparisons=(),
        provenance=environment() | dict.fromkeys(ORIGIN) | describe(dict(provenance or {})),
        warnings=small_groups(cell_sizes),
    )
    return Audit(document, columns)


def compare(audits: Sequence[Audit]) -> Audit:
    """Put runs on the same images side by side; the first is what the others are compared with.

    Differences have paired intervals: each image counts with the answers of both runs.
    """
    audits = list(audits) if isinstance(audits, Iterable) else []
    if not audits or not all(isinstance(a, Audit) for a in audits):
        raise FairTTAError("`audits` should be a list of audits.")
    columns = [a.need_columns("compare") for a in audits]
    document = audits[0].document
    runs: list[doc.RunFigures] = []
    for other in (a.document for a in audits):
        _check_same("data", document.data, other.data, "audit the same images in the same way")
        _check_same("settings", document.settings, other.settings, "pass the same `interval`")
        origin = _origin(other)
        same = origin == _origin(document)
        runs += [
            run if same or run.provenance else structs.replace(run, provenance=origin)
            for run in other.runs
        ]
    names = [run.name for run in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FairTTAError(f"runs should have distinct names ({twice} came twice): pass `name`.")
    together = replace(
        columns[0],
        answers=tuple(answers for one in columns for answers in one.answers),
        scores=tuple(scores for one in columns for scores in one.scores),
    )
    made = document.settings
    how = Bootstrap(made.resamples, made.seed, made.level, made.strata)
    corrected = corrected_differences(together, how)
    document = structs.replace(
        document,
        runs=tuple(runs),
        comparisons=tuple(
            against(
                together,
                i,
                how,
                names=(names[0], names[i]),
                harmful=document.data.harmful,
                corrected=corrected,
            )
            for i in range(1, len(names))
        ),
        warnings=small_groups(together.sizes(Over.TARGET_AND_SENSITIVE)),
    )
    return Audit(document, together)


def _check_same(part: str, first: doc.Part, other: doc.Part, hint: str) -> None:
    differ = [k for k, v in structs.asdict(first).items() if getattr(other, k) != v]
    if differ:
        raise FairTTAError(
            f"`audits` should agree in {part}, but {', '.join(differ)} differ: {hint}."
        )


def _origin(document: doc.AuditDocument) -> doc.RunOrigin:
    return doc.RunOrigin(**{key: document.provenance[key] for key in ORIGIN})


def _strings(names: tuple[Hashable, ...]) -> tuple[str, ...]:
    texts = tuple(map(str, names))
    if len(set(texts)) < len(texts):
        raise FairTTAError(f"names should differ as text too (got {list(names)}).")
    return texts


def _data_hash(columns: Columns) -> str:
    """Of labels, sensitive values and clusters, in order."""
    groups = columns.groups
    parts = {
        "labels": columns.names(columns.truth),
        "attributes": list(columns.values),
        "groups": [groups[i] for i in columns.group],
    }
    if columns.clusters is not None:
        parts["clusters"] = columns.clusters.tolist()
    return "sha256:" + sha256(json.dumps(parts).encode()).hexdigest()
