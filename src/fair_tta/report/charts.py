"""The pictures of a report. Shapes tell runs apart as well as colours do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fair_tta.auditing.document import AuditDocument, EstimateFields, RunFigures
from fair_tta.report.meanings import METRICS, verdict
from fair_tta.report.numbers import group_name, interval, percent
from fair_tta.report.svg import BACKGROUND, EDGES, INK, LINE, SERIES, Chart, chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHAPES = "osD^vPX*<"
BARS = 72
"""As many bars at most; then only the worst groups are drawn."""

COMPARED = ("accuracy", "worst_group_accuracy", "bias", "equalized_odds_difference")


def accuracy_against_gap(document: AuditDocument, prefix: str) -> Chart:
    """Accuracy upwards, gap to the right, a cross of intervals for each run."""
    runs = document.runs

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for i, run in enumerate(runs):
            gap, accuracy = run.metrics.bias, run.metrics.accuracy
            if gap.value is None or accuracy.value is None:
                continue
            axes.errorbar(
                [100 * gap.value],
                [100 * accuracy.value],
                xerr=reach(gap),
                yerr=reach(accuracy),
                ecolor=EDGES[i % len(EDGES)],
                elinewidth=1.4,
                capsize=3,
                label=short(run.name),
                **marker(i),
            )
        axes.set_xlabel("gap: accuracy minus worst group (points)")
        axes.set_ylabel("accuracy (percent)")
        axes.margins(0.12)
        legend(figure, axes)

    findings = [
        f"{run.name}: accuracy {told(run.metrics.accuracy)}, gap {told(run.metrics.bias)}"
        for run in runs
    ]
    alt = f"Accuracy in percent against the gap in points, with intervals. {'; '.join(findings)}."
    return chart(2.9 + 0.19 * _legend_rows([run.name for run in runs]), draw, prefix, alt)


def bars(document: AuditDocument, prefix: str) -> Chart:
    """Accuracy of each class in each group, a bar for each run."""
    runs = document.runs
    names, figures, left_out = _cells(runs)
    thick = 0.8 / len(runs)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for i, run in enumerate(runs):
            known = _known(figures[i])
            at = [k - 0.4 + (i + 0.5) * thick for k in known]
            values = [100 * value for value in known.values()]
            axes.barh(at, values, thick * 0.9, color=_colour(i), edgecolor=INK, linewidth=0.5)
            reaches = [reach(figures[i][k]) for k in known]
            axes.errorbar(
                values,
                at,
                xerr=[[r[end][0] for r in reaches] for end in (0, 1)],
                ecolor=INK,
                elinewidth=1,
                label=short(run.name),
                **marker(i),
            )
        for k in range(len(names)):
            if figures[0][k].value is None:
                axes.text(1, k, "n/a: no images", va="center")
        labels = [_label(name, figures[0][k].n) for k, name in enumerate(names)]
        axes.set_yticks(range(len(names)), labels)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 101)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("accuracy (percent)")
        legend(figure, axes)

    more = f" Drawn are the {len(names)} worst of {len(names) + left_out}." if left_out else ""
    findings = [_extremes(run.name, names, row) for run, row in zip(runs, figures, strict=True)]
    alt = f"Accuracy by class and group in percent, with intervals.{more} {' '.join(findings)}"
    height = 0.7 + len(names) * max(0.56, 0.12 + 0.17 * len(runs))
    height += 0.19 * _legend_rows([run.name for run in runs])
    return chart(height, draw, prefix, alt)


def differences_chart(document: AuditDocument, prefix: str) -> Chart | None:
    """Paired differences from the first run; filled where the interval excludes 0."""
    compared = document.comparisons
    if not compared:
        return None

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=1)
        for i, comparison in enumerate(compared, start=1):
            axes.errorbar([], [], label=short(comparison.run), **marker(i))
            for k, metric in enumerate(COMPARED):
                figure_ = comparison.told.by_name()[metric]
                if figure_.value is None:
                    continue
                clear = verdict(metric, figure_) not in ("unclear", "unknown")
                axes.errorbar(
                    [100 * figure_.value],
                    [k - 0.4 + (i - 0.5) * 0.8 / len(compared)],
                    xerr=reach(figure_),
                    ecolor=EDGES[i % len(EDGES)],
                    elinewidth=1.4,
                    capsize=3,
                    **(marker(i) | ({} if clear else {"markerfacecolor": BACKGROUND})),
                )
        axes.set_yticks(range(len(COMPARED)), [_wrapped(METRICS[m].name) for m in COMPARED])
        axes.set_ylim(len(COMPARED) - 0.4, -0.6)
        for k in range(1, len(COMPARED)):
            axes.axhline(k - 0.5, color=LINE, linewidth=0.5)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"points, against {short(compared[0].reference)}")
        legend(figure, axes)

    findings = [
        f"{c.run}: "
        + ", ".join(f"{METRICS[m].name} {told(c.told.by_name()[m], True)}" for m in COMPARED)
        for c in compared
    ]
    alt = (
        f"Differences from {compared[0].reference} in points, with paired intervals. "
        f"{'; '.join(findings)}."
    )
    height = 0.7 + len(COMPARED) * max(0.42, 0.2 * len(compared))
    height += 0.19 * _legend_rows([c.run for c in compared])
    return chart(height, draw, prefix, alt)


def short(name: str, most: int = 34) -> str:
    """Names as long as a picture can hold: of long ones both ends, which tell them apart."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return name[: most - 1 - end] + "\N{HORIZONTAL ELLIPSIS}" + name[-end:]


def _label(name: tuple[str, str], n: int) -> str:
    return f"{short(name[0], 22)}\n{short(name[1], 22)}\nn = {n}"


def _extremes(run: str, names: list[tuple[str, str]], figures: list[EstimateFields]) -> str:
    known = _known(figures)
    if not known:
        return f"{run}: n/a."
    low, high = (
        f"{' / '.join(names[k])} with {told(figures[k])}"
        for k in (choose(known, key=known.__getitem__) for choose in (min, max))
    )
    return f"{run}: lowest {low}, highest {high}."


def _known(figures: list[EstimateFields]) -> dict[int, float]:
    """Values that are defined, by their places."""
    return {k: figure.value for k, figure in enumerate(figures) if figure.value is not None}


def _cells(
    runs: Sequence[RunFigures],
) -> tuple[list[tuple[str, str]], list[list[EstimateFields]], int]:
    """Names, figures of each run, and how many are left out because there are too many."""
    names = [
        (cell.target, group_name(group.sensitive))
        for group in runs[0].groups
        for cell in group.classes
    ]
    figures: list[list[EstimateFields]] = [
        [cell.true_positive_rate for group in run.groups for cell in group.classes] for run in runs
    ]
    most = max(4, BARS // len(runs))
    kept = list(range(len(names)))
    if len(names) > most:
        known = _known(figures[0])
        kept = sorted(known, key=known.__getitem__)[:most]
    return (
        [names[k] for k in kept],
        [[row[k] for k in kept] for row in figures],
        len(names) - len(kept),
    )


def told(figure: EstimateFields, signed: bool = False) -> str:
    """``81.2 [77.1, 84.6]``."""
    return f"{percent(figure.value, signed)} {interval(figure, signed)}".strip()


def reach(figure: EstimateFields) -> list[list[float]]:
    """Below and above the value, as matplotlib wants it."""
    value, low, high = figure.value, figure.low, figure.high
    if value is None or low is None or high is None:
        return [[0.0], [0.0]]
    return [[max(0.0, 100 * (value - low))], [max(0.0, 100 * (high - value))]]


def _colour(i: int) -> str:
    return SERIES[i % len(SERIES)]


def marker(i: int) -> dict[str, Any]:
    """How matplotlib draws the points of a series."""
    return {
        "marker": SHAPES[i % len(SHAPES)],
        "markersize": 7,
        "markerfacecolor": _colour(i),
        "markeredgecolor": INK,
        "markeredgewidth": 0.8,
        "linestyle": "none",
    }


def _wrapped(name: str) -> str:
    words = name.split(" ")
    half = (len(words) + 1) // 2
    return name if len(name) < 16 else " ".join(words[:half]) + "\n" + " ".join(words[half:])


def _columns(names: list[str]) -> int:
    return 2 if len(names) > 1 and max(map(len, names)) <= 18 else 1


def _legend_rows(names: list[str]) -> int:
    return -(-len(names) // _columns(list(map(short, names))))


def legend(figure: Figure, axes: Axes) -> None:
    """Below the picture, of marks without their intervals."""
    from matplotlib.container import ErrorbarContainer

    handles, labels = axes.get_legend_handles_labels()
    if labels:
        marks = [h.lines[0] if isinstance(h, ErrorbarContainer) else h for h in handles]
        figure.legend(marks, labels, loc="outside lower center", ncols=_columns(labels))
