"""The charts of a report, as SVG."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from fair_tta.auditing._document import AuditDocument, EstimateFields, RunFigures
from fair_tta.lab.report._glossary import METRICS, verdict
from fair_tta.lab.report._numbers import group_name, interval, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


WIDTH = 4.4  # inches: text of 10 points can be read on a phone and is not huge on a screen

INK, LINE, BACKGROUND = "#010101", "#020202", "#030303"
SERIES = tuple(f"#0401{i:02x}" for i in range(8))
EDGES = tuple(f"#0402{i:02x}" for i in range(8))
"""Stand-ins that become variables of the style sheet, which has a light and a dark set."""

_VARIABLES = (
    {INK: "var(--ink)", LINE: "var(--line)", BACKGROUND: "var(--paper)"}
    | {colour: f"var(--series-{i})" for i, colour in enumerate(SERIES)}
    | {colour: f"var(--edge-{i})" for i, colour in enumerate(EDGES)}
)

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fair-tta",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "hatch.color": INK,
}


@dataclass(frozen=True)
class Chart:
    """A picture and the same in words."""

    svg: str
    alt: str


def chart(height: float, draw: Callable[[Figure], None], prefix: str, alt: str) -> Chart:
    """Draw on a figure of this height (in inches) and make it part of a page.

    Args:
        height: in inches.
        draw: draws.
        prefix: what ids begin with, so that none comes twice on a page.
        alt: the finding in words.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    buffer = BytesIO()
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        # names in scripts that the font lacks: the reader's browser has them
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Chart(inline(buffer.getvalue(), prefix, alt), alt)


def inline(svg: bytes, prefix: str, alt: str) -> str:
    """For the inside of an HTML page: own ids, the page's colours and fonts, a name in words."""
    root = ElementTree.fromstring(svg)
    used = set(re.findall(rb"(?:url\(|href=\")#([^)\"]+)", svg))
    names = {name.decode(): f"{prefix}-{i}" for i, name in enumerate(sorted(used))}
    for parent in list(root.iter()):
        for child in list(parent):
            if _plain(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _plain(element.tag)
        attributes = {_plain(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        for key, value in attributes.items():
            if key == "id" and value not in names:
                continue
            element.set(key, _translate(key, value, names))
    box = root.get("viewBox", "")
    root.attrib.clear()
    for key, value in (
        ("viewBox", box),
        ("role", "img"),
        ("aria-label", alt),
        ("stroke-linejoin", "round"),
    ):
        root.set(key, value)
    text = ElementTree.tostring(root, "unicode")
    return re.sub(r">\s+<", ">\n<", text)


def _plain(tag: str) -> str:
    return tag.rpartition("}")[2]


def _translate(key: str, value: str, names: dict[str, str]) -> str:
    if key == "id":
        return names[value]
    if key == "href":
        return "#" + names[value[1:]]
    if key == "style":
        value = re.sub(r"font: *(?:[a-z0-9]+ )*?([\d.]+px)[^;]*", r"font-size: \1", value)
        value = re.sub(r"font-family:[^;]*;? *", "", value)
    value = re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{names[found[1]]})", value)
    return re.sub(r"#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), value)


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
