"""What a setting trades: runs whose adapters differ in one number only, as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fair_tta.auditing.document import AuditDocument, RunFigures
from fair_tta.report.charts import legend, marker, reach, told
from fair_tta.report.meanings import METRICS
from fair_tta.report.svg import EDGES, Chart, chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRADED = ("accuracy", "balanced_accuracy", "worst_group_accuracy")
"""What is drawn over the setting."""

MOST_DRAWN = 6
"""So many pictures at most; a grid of two settings would have one for each row and column."""

_LARGE = 1e12  # no axis reaches farther
_WIDE = 50.0  # times as large as the smallest: then a logarithmic axis


@dataclass(frozen=True)
class Sweep:
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
            if _is_number(value):
                rest = {key: item for key, item in settings.items() if key != name}
                key = run.adapter.name, name, json.dumps(rest, sort_keys=True)
                found.setdefault(key, {}).setdefault(float(value), run)
    several = [
        Sweep(method, setting, dict(sorted(runs.items())))
        for (method, setting, _), runs in found.items()
        if len(runs) > 1
    ]
    return sorted(several, key=lambda sweep: -len(sweep.runs))


def tradeoff_chart(sweep: Sweep, reference: RunFigures, prefix: str) -> Chart:
    """Accuracy, balanced accuracy and worst group over the setting; dashed: the reference."""
    values = list(sweep.runs)
    is_wide = values[0] > 0 and values[-1] > _WIDE * values[0]
    apart = 0.012 * (values[-1] - values[0])
    is_in = any(run.name == reference.name for run in sweep.runs.values())

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for i, metric in enumerate(TRADED):
            known = [
                (value, figures)
                for value, run in sweep.runs.items()
                if (figures := run.metrics.by_name().get(metric)) and figures.value is not None
            ]
            at = [v * 1.02 ** (i - 1) if is_wide else v + (i - 1) * apart for v, _ in known]
            ends = [reach(figures) for _, figures in known]
            axes.errorbar(
                at,
                [100 * (figures.value or 0) for _, figures in known],
                yerr=[[e[side][0] for e in ends] for side in (0, 1)],
                ecolor=EDGES[i],
                elinewidth=1.4,
                capsize=3,
                color=EDGES[i],
                label=METRICS[metric].name,
                **(marker(i) | {"linestyle": "-", "linewidth": 1.6}),
            )
            own = reference.metrics.by_name().get(metric)
            if not is_in and own is not None and own.value is not None:
                axes.axhline(100 * own.value, color=EDGES[i], linewidth=1, linestyle=(0, (4, 3)))
        if is_wide:
            axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(sweep.setting)
        axes.set_ylabel("percent")
        legend(figure, axes)

    points = [
        f"{value:g}: "
        + ", ".join(
            f"{METRICS[m].name} {told(figures)}"
            for m in TRADED
            if (figures := run.metrics.by_name().get(m)) is not None
        )
        for value, run in sweep.runs.items()
    ]
    alt = f"{sweep.method}: percent over {sweep.setting}, with intervals. {'; '.join(points)}. " + (
        "" if is_in else f"Dashed: {reference.name}."
    )
    return chart(3.4, draw, prefix, alt)


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) < _LARGE


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """``("rate.beta", 0.01)``; the names of nested parts are leaves too."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            inner = name if key == "settings" and name else f"{name}.{key}" if name else str(key)
            yield from _leaves(item, inner)
    else:
        yield name, value
