"""The charts of an audit, as dot plots."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fair_tta.auditing._document import AuditDocument, ClassInGroup, RunFigures
from fair_tta.lab.report._drawings import Chart, Dot, DotRow, ReferenceLine, dot_rows
from fair_tta.lab.report._glossary import METRICS, verdict
from fair_tta.lab.report._numbers import figure_text, group_name

MOST_DOTS = 72
"""Of groups; with more of them only the worst are drawn."""

COMPARED = ("accuracy", "worst_group_accuracy", "bias", "equalized_odds_difference")
TRADED = ("accuracy", "balanced_accuracy", "worst_group_accuracy")
"""What is drawn over the setting of a sweep."""

MOST_DRAWN = 6
"""Sweeps: a grid of two settings would have one for each row and column."""

_LARGE = 1e12  # a setting that is larger is not a position on an axis


def accuracy_and_worst_group(document: AuditDocument) -> Chart:
    """Accuracy and worst group of each run; the distance between them is the gap."""
    rows = [
        DotRow(
            run.name,
            [
                Dot("accuracy", run.metrics.accuracy),
                Dot("worst group", run.metrics.worst_group_accuracy),
            ],
            f"gap {figure_text(run.metrics.bias)}",
        )
        for run in document.runs
    ]
    return dot_rows(rows, "Accuracy and worst-group accuracy in percent, with intervals", reach=())


def cells_of_runs(document: AuditDocument, most: int) -> list[tuple[str, list[ClassInGroup]]]:
    """Each class in each group with its figures in every run; the worst first if they are many."""
    runs = document.runs
    cells = [
        (group_name(group.sensitive, cell.target), [run.groups[g].classes[c] for run in runs])
        for g, group in enumerate(runs[0].groups)
        for c, cell in enumerate(group.classes)
    ]

    def rank(cell: tuple[str, list[ClassInGroup]]) -> float:
        value = cell[1][0].true_positive_rate.value
        return 2.0 if value is None else value

    return cells if len(cells) <= most else sorted(cells, key=rank)


def groups_chart(document: AuditDocument) -> Chart:
    """Accuracy of each class in each group, a dot for each run."""
    most = max(4, MOST_DOTS // len(document.runs))
    cells = cells_of_runs(document, most)
    names = [run.name for run in document.runs]
    rows = [
        DotRow(
            f"{name} (n = {row[0].n})",
            [Dot(run, cell.true_positive_rate) for run, cell in zip(names, row, strict=True)],
        )
        for name, row in cells[:most]
    ]
    what = "Accuracy by class and group in percent, with intervals"
    if len(cells) > most:
        what += f"; the {most} worst of {len(cells)}"
    return dot_rows(rows, what, reach=(0.0, 1.0))


def differences_chart(document: AuditDocument) -> Chart | None:
    """Paired differences from the first run; hollow where the interval contains 0."""
    if not document.comparisons:
        return None
    rows = []
    for metric in COMPARED:
        figures = [(c.run, c.adjusted.by_name()[metric]) for c in document.comparisons]
        dots = [
            Dot(run, figure, "", verdict(metric, figure) in ("unclear", "unknown"))
            for run, figure in figures
        ]
        text = figure_text(figures[0][1], signed=True) if len(figures) == 1 else ""
        rows.append(DotRow(METRICS[metric].name, dots, text))
    reference = document.comparisons[0].reference
    what = f"Differences from {reference} in points, with paired intervals"
    return dot_rows(rows, what, first=2)


class Sweep(NamedTuple):
    """Several settings of one method.

    Attributes:
        method: its name.
        setting: the number that differs, such as ``keep_prior`` or ``rate.beta``.
        runs: ``{value: run}``, in the order of the values.
    """

    method: str
    setting: str
    runs: Mapping[float, RunFigures]


def sweeps(document: AuditDocument) -> list[Sweep]:
    """Runs that differ in one number only, at least two of them; the longest first."""
    found: dict[tuple[str, str, str], dict[float, RunFigures]] = {}
    for run in document.runs:
        if run.adapter is None or run.provenance is not None:
            continue
        settings = dict(_leaves(run.adapter.settings))
        for name, value in settings.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and abs(value) < _LARGE:
                rest = {key: item for key, item in settings.items() if key != name}
                key = run.adapter.name, name, json.dumps(rest, sort_keys=True)
                found.setdefault(key, {}).setdefault(float(value), run)
    several = [
        Sweep(method, setting, dict(sorted(runs.items())))
        for (method, setting, _), runs in found.items()
        if len(runs) > 1
    ]
    return sorted(several, key=lambda sweep: -len(sweep.runs))


def tradeoff_chart(sweep: Sweep, reference: RunFigures) -> Chart:
    """Accuracy, balanced accuracy and worst group over the setting; dashed: the reference."""
    rows = []
    for value, run in sweep.runs.items():
        known = {m: run.metrics.by_name().get(m) for m in TRADED}
        dots = [Dot(METRICS[m].name, figure) for m, figure in known.items() if figure is not None]
        rows.append(DotRow(f"{sweep.setting} = {value:g}", dots))
    lines = []
    if reference.name not in {run.name for run in sweep.runs.values()}:
        own = reference.metrics.by_name()
        known = {m: own[m] for m in TRADED if own.get(m) is not None}
        lines = [
            ReferenceLine(
                figure.value, f"Dashed, {reference.name}, {METRICS[m].name}", f"dashed series-{i}"
            )
            for i, (m, figure) in enumerate(known.items())
            if figure is not None and figure.value is not None
        ]
    what = f"{sweep.method}: percent over {sweep.setting}, with intervals"
    return dot_rows(rows, what, reach=(), lines=lines)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """``("rate.beta", 0.01)``; the names of nested parts are leaves too."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            inner = name if key == "settings" and name else f"{name}.{key}" if name else str(key)
            yield from _leaves(item, inner)
    else:
        yield name, value
