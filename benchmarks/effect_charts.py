"""The pictures of docs/effect.md, from docs/effect.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fair-tta",
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
BETTER, WORSE, OPEN = "#00796b", "#b3261e", "#777777"
LINES = ("#00796b", "#b35900", "#3f51b5", "#8e24aa", "#555555")
SHAPES = "osD^v"


def draw(parts: dict[str, Any], folder: Path) -> None:
    """All pictures for which there are figures."""
    with style.context(["default", STYLE]):
        if "methods" in parts:
            _save(_methods(parts["methods"]), folder / "effect-methods.svg")
        if "reference" in parts:
            _save(_reference(parts["reference"]), folder / "effect-reference.svg")
        if parts.get("tradeoff"):
            _save(
                _tradeoff(*parts["tradeoff"].values()), folder / "effect-tradeoff.svg"
            )


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(
        "\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n"
    )


def _methods(results: dict[str, Any]) -> Figure:
    """The change of EOD of every method, a panel for each question."""
    questions = list(dict.fromkeys(key.partition("/")[0] for key in results))
    methods = [
        m
        for m in dict.fromkeys(k.partition("/")[2] for k in results)
        if m != "zero-shot"
    ]
    figure = Figure(figsize=(11, 0.9 + 0.3 * len(methods)), layout="constrained")
    panels = figure.subplots(1, len(questions), sharey=True, squeeze=False)[0]
    for axes, question in zip(panels, questions, strict=True):
        axes.axvline(0, color="#333333", linewidth=1)
        for row, method in enumerate(methods):
            entry = results.get(f"{question}/{method}", {})
            if "eod" in entry:
                eod = entry["eod"]
                colour = (
                    BETTER if eod["high"] < 0 else WORSE if eod["low"] > 0 else OPEN
                )
                axes.plot(
                    [eod["low"], eod["high"]], [row, row], color=colour, linewidth=1.6
                )
                axes.plot(eod["change"], row, "o", color=colour, markersize=4.5)
        base = next(
            e["eod"]["before"]
            for k, e in results.items()
            if k.startswith(question + "/")
        )
        axes.set_title(f"{question} ({base:.1f})", fontsize=9)
        axes.set_xlim(-34, 22)
    panels[0].set_yticks(range(len(methods)), methods)
    panels[0].invert_yaxis()
    figure.supxlabel(
        "change of the equalized-odds difference from zero-shot (in brackets: its own), points",
        fontsize=9,
    )
    return figure


def _reference(results: dict[str, Any]) -> Figure:
    """LogitBalance's change of EOD against the number of reference pictures."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color="#333333", linewidth=1)
    keys = [key.split("/") for key in results if "/logit-balance/" in key]
    questions = list(dict.fromkeys(key[0] for key in keys))
    for index, question in enumerate(questions):
        sizes = [int(key[2]) for key in keys if key[0] == question]
        entries = [
            results[f"{question}/logit-balance/{n}"]["between"]["eod"] for n in sizes
        ]
        at = [n * (1 + 0.06 * (index - 1.5)) for n in sizes]
        middle = [e["change"] for e in entries]
        reach = [
            [e["change"] - e["low"] for e in entries],
            [e["high"] - e["change"] for e in entries],
        ]
        axes.errorbar(
            at, middle, yerr=reach, color=LINES[index], marker=SHAPES[index], markersize=4.5,
            linewidth=1.2, elinewidth=0.8, capsize=2, label=question,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks([30, 100, 300, 1000], ["30", "100", "300", "1,000"])
    axes.minorticks_off()
    axes.set_xlabel("reference pictures")
    axes.set_ylabel("change of EOD, points")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _tradeoff(points: dict[str, Any]) -> Figure:
    """Accuracy against the worst group and against the mean over groups."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    titles = {
        "wga": "accuracy of the worst group",
        "balanced": "balanced accuracy (mean of groups)",
    }
    strengths = list(dict.fromkeys(key.partition("/")[0] for key in points))[1:]
    start = points["0/1"]
    for axes, (metric, title) in zip(
        figure.subplots(1, 2), titles.items(), strict=True
    ):
        for index, strength in enumerate(strengths):
            line = [e for key, e in points.items() if key.partition("/")[0] == strength]
            x, y = ([e[m]["after"] for e in line] for m in (metric, "accuracy"))
            line_style = {
                "color": LINES[index],
                "marker": SHAPES[index],
                "markersize": 4.5,
            }
            axes.plot(x, y, linewidth=1.1, **line_style, label=f"strength {strength}")
            axes.plot(x[0], y[0], **line_style | {"markersize": 8}, linestyle="none")
        axes.plot(start[metric]["after"], start["accuracy"]["after"], "k*", markersize=11,
                  label="zero-shot")  # fmt: skip
        axes.set_xlabel(f"{title}, %")
        axes.set_ylabel("accuracy, %")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
    return figure
