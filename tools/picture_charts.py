"""Plots of the docs: from audits of drawn pictures, docs/effect.json and tables of the pages."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

from fair_tta import AssociationCorrection, ZeroShot, compare, metrics, miniature
from fair_tta.auditing import Audit
from fair_tta.auditing._examine import associations_of
from fair_tta.extend import Adapter, task_of
from picture_canvas import INK, LINE, MUTED, RED, TEAL
from picture_world import balanced, classifier

ROOT = Path(__file__).parents[1]
sys.path.append(
    str(ROOT / "benchmarks")
)  # where the pictures of docs/effect.md are drawn

_EFFECT = importlib.import_module("effect_charts")
STYLE, draw = _EFFECT.STYLE, _EFFECT.draw

OURS = ("association-correction", "logit-balance")
PAPERS = ("zero-shot", "fair-tpt", "fair-tpt-mo", "fair-tpt+orthcali:lam=0", "orthcali",
          "orthcali:lam=0", "tpt", "zero")  # fmt: skip
KINDS = {
    "ours": (TEAL, "D"),
    "in the paper": ("#3f51b5", "o"),
    "of others": ("#b35900", "s"),
}
QUESTIONS = ("birds", "badges", "scenes-time", "scenes-season")


@contextmanager
def figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure of so many inches, written as SVG at the end; the same bytes each time."""
    with style.context(["default", STYLE]):
        chart = Figure(figsize=(width, height), layout="constrained")
        yield chart
        chart.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(
        "\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n"
    )


def effect(folder: Path) -> None:
    """All pictures of docs/effect.md."""
    draw(_effect(), folder)


def soak(path: Path) -> None:
    """Memory over many predictions, from docs/soak.json."""
    measurements = json.loads((ROOT / "docs/soak.json").read_text("utf-8"))
    importlib.import_module("soak_chart").draw(measurements, path)


@lru_cache
def _effect() -> dict[str, Any]:
    parts: dict[str, Any] = json.loads((ROOT / "docs/effect.json").read_text("utf-8"))[
        "parts"
    ]
    return parts


@lru_cache
def badges_audit() -> Audit:
    """Two methods beside zero-shot, on 900 test pictures of badges."""
    task = miniature.BADGES
    drawn = task.draw(900)
    images, labels = [d.image for d in drawn], [d.target for d in drawn]
    colours = {"colour": [d.sensitive["colour"] for d in drawn]}
    clf = balanced("badges")
    adapters: dict[str, Adapter] = {
        "zero-shot": ZeroShot(),
        "association-correction": AssociationCorrection(),
        "logit-balance": clf.adapter,
    }
    return compare(
        [
            clf.with_adapter(adapter).audit(images, labels, colours, name=name)
            for name, adapter in adapters.items()
        ]
    )


def groups(path: Path) -> None:
    """`Audit.plot` before and after."""
    audit = badges_audit()
    with figure(path, 6.6, 5.6) as chart:
        for axes, run in zip(
            chart.subplots(2, 1, sharex=True), audit.runs[::2], strict=True
        ):
            audit.plot(run, axes)
            axes.set_xlim(0, 100)
            axes.grid(axis="y", visible=False)


def associations(path: Path) -> None:
    """The associations of the examination page as a heat map."""
    task = miniature.BADGES
    logits = associations_of(task_of(classifier(task)))["colour"]
    values = list(logits)
    classes = list(next(iter(logits.values())))
    matrix = np.array([[logits[value][name] for name in classes] for value in values])
    most = max(1.0, abs(matrix).max())
    with figure(path, 4.2, 1.7) as chart:
        axes = chart.add_subplot()
        axes.imshow(matrix, cmap="PuOr", vmin=-2 * most, vmax=2 * most, aspect="auto")
        axes.set_xticks(range(len(classes)), classes)
        axes.set_yticks(range(len(values)), values)
        axes.grid(visible=False)
        for (row, column), x in np.ndenumerate(matrix):
            axes.text(column, row, f"{x:+.2f}", ha="center", va="center", color=INK)


def harm(path: Path) -> None:
    """How often stars are answered, by colour, before and after."""
    task = miniature.BADGES
    drawn = task.draw(900)
    images = [d.image for d in drawn]
    colours = [d.sensitive["colour"] for d in drawn]
    runs = {"zero-shot": classifier(task), "logit-balance": balanced("badges")}
    with figure(path, 6.4, 2.6) as chart:
        axes = chart.add_subplot()
        for k, (name, clf) in enumerate(runs.items()):
            answers = [p.label for p in clf.predict(images)]
            rates = metrics.harm_rate(answers, colours, ["star"])
            for row, value in enumerate(["red", "green", "blue"]):
                rate = rates[value]
                bounds = [100 * (rate.low or 0), 100 * (rate.high or 0)]
                y, colour = row + 0.26 * (k - 0.5), (MUTED, TEAL)[k]
                axes.plot(bounds, [y, y], color=colour, linewidth=1.6)
                label = name if row == 0 else None
                axes.plot(
                    100 * (rate.value or 0), y, "os"[k], color=colour, label=label
                )
        axes.axvline(
            100 / 3, color=LINE, linestyle="--", label="as many stars as there are"
        )
        axes.set_yticks(range(3), ["red", "green", "blue"])
        axes.set_ylim(2.6, -0.6)
        axes.set_xlim(20, 60)
        axes.set_xlabel("answered “star”, percent of each colour")
        chart.legend(loc="outside lower center", ncols=3, fontsize=8.5)


def _mean(method: str, metric: str) -> float | None:
    figures = [_effect()["methods"].get(f"{q}/{method}", {}) for q in QUESTIONS]
    if not all(metric in entry for entry in figures):
        return None
    return float(sum(entry[metric]["change"] for entry in figures) / len(figures))


def _category(method: str) -> str:
    return (
        "ours"
        if method in OURS
        else "in the paper"
        if method in PAPERS
        else "of others"
    )


def choose(path: Path) -> None:
    """What a method costs against what it does to the gap."""
    costs = _effect()["cost"]["ViT-B/32"]["times_plain"]
    points = {m: (costs[m][0], _mean(m, "eod")) for m in costs}
    methods = sorted(
        ((y, x, m) for m, (x, y) in points.items() if y is not None), reverse=True
    )
    with figure(path, 6.4, 3.8) as chart:
        axes = chart.add_subplot()
        axes.axhline(0, color=INK, linewidth=1)
        axes.set_xscale("log")
        lowest = {
            True: 9.0,
            False: 9.0,
        }  # label so far, of the cheap and of the dear ones
        for y, x, method in methods:
            colour, shape = KINDS[_category(method)]
            axes.plot(x, y, shape, color=colour, markersize=6)
            at = lowest[x < 5] = min(y, lowest[x < 5] - 0.75)
            axes.text(
                x * 1.13,
                at + 0.4 * (y == 0),
                method,
                fontsize=8.5,
                va="center",
                color=colour,
            )
        axes.set_xlim(0.7, 330)
        axes.set_xticks([1, 10, 40], ["1", "10", "40"])
        axes.minorticks_off()
        axes.set_xlabel("cost of a picture, in plain zero-shot calls (ViT-B/32)")
        axes.set_ylabel("mean change of EOD, points")


def field(path: Path) -> None:
    """The gap and accuracy of every method, the mean of the four attributes."""
    names = dict.fromkeys(key.partition("/")[2] for key in _effect()["methods"])
    figures = {
        m: {metric: _mean(m, metric) for metric in ("eod", "accuracy")} for m in names
    }
    methods = sorted((m for m, by_metric in figures.items() if None not in by_metric.values()),
                   key=lambda m: figures[m]["eod"] or 0.0)  # fmt: skip
    titles = {
        "eod": "mean change of EOD, points",
        "accuracy": "mean change of accuracy, points",
    }
    with figure(path, 6.8, 1.1 + 0.24 * len(methods)) as chart:
        panels = chart.subplots(1, 2, sharey=True)
        for axes, (metric, title) in zip(panels, titles.items(), strict=True):
            axes.axvline(0, color=INK, linewidth=1)
            for category, (colour, shape) in KINDS.items():
                rows = [k for k, m in enumerate(methods) if _category(m) == category]
                values = [figures[methods[k]][metric] or 0.0 for k in rows]
                axes.plot(
                    values, rows, shape, color=colour, markersize=5, label=category
                )
            axes.set_xlabel(title)
        axes.set_yticks(range(len(methods)), methods, fontsize=8.5)
        axes.invert_yaxis()
        chart.legend(
            *axes.get_legend_handles_labels(), loc="outside lower center", ncols=3
        )


def speed(path: Path) -> None:
    """The cost of each method as a multiple of plain zero-shot."""
    costs = _effect()["cost"]
    methods = list(next(iter(costs.values()))["times_plain"])
    with figure(path, 6.4, 0.9 + 0.3 * len(methods)) as chart:
        axes = chart.add_subplot()
        for k, (model, entry) in enumerate(costs.items()):
            for row, method in enumerate(methods):
                middle, low, high = entry["times_plain"][method]
                y, colour = row + 0.24 * (k - 0.5), (MUTED, TEAL)[k % 2]
                axes.plot([low, high], [y, y], color=colour, linewidth=1.6)
                label = model if row == 0 else None
                axes.plot(
                    middle, y, "os"[k % 2], color=colour, markersize=4.5, label=label
                )
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        axes.minorticks_off()
        axes.set_yticks(range(len(methods)), methods)
        axes.invert_yaxis()
        axes.set_xlabel("processor's time of a call, in plain zero-shot calls")
        chart.legend(loc="outside lower center", ncols=2, fontsize=8.5)


def page_table(page: str, first: str) -> list[list[str]]:
    """Rows of the table of a page whose heading begins with this cell, with the heading."""
    text = (ROOT / page).read_text("utf-8")
    table = re.search(
        rf"^\| *{re.escape(first)} *\|.*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL
    )
    if table is None:
        raise SystemExit(f"{page} has no table that begins with {first!r} any more.")
    rows = [
        [cell.strip(" *") for cell in line.split("|")[1:-1]]
        for line in table[0].splitlines()
    ]
    return [row for row in rows if not set("".join(row)) <= set("-: ")]


def claims(path: Path) -> None:
    """The worst group and the indifference to the attribute, from the table of results."""
    head, *rows = page_table("benchmarks/results/claims.md", "task")
    tasks = list(dict.fromkeys(row[0] for row in rows))
    methods = list(dict.fromkeys(row[1] for row in rows))
    panels = {
        "WGA": "accuracy of the worst group, %",
        "ASI": "indifference to the attribute, %",
    }
    with figure(path, 6.6, 3.4) as chart:
        for axes, (metric, title) in zip(
            chart.subplots(1, 2, sharey=True), panels.items(), strict=True
        ):
            for k, task in enumerate(tasks):
                numbers = [float(r[head.index(metric)]) for r in rows if r[0] == task]
                line_style = {
                    "color": (TEAL, "#b35900", "#3f51b5")[k],
                    "marker": "osD"[k],
                }
                axes.plot(
                    numbers,
                    range(len(numbers)),
                    linestyle="none",
                    **line_style,
                    label=task,
                )
                axes.axvline(
                    numbers[0], color=line_style["color"], linewidth=0.7, linestyle=":"
                )
            axes.set_xlim(0, 100)
            axes.set_xlabel(title)
            axes.set_yticks(range(len(methods)), methods)
        axes.invert_yaxis()
        chart.legend(
            *axes.get_legend_handles_labels(), loc="outside lower center", ncols=3
        )


def scaling(path: Path) -> None:
    """What one picture takes of a card and of a Python thread, from the table of the page."""
    rows = page_table("benchmarks/results/roofline.md", "for each image")[1:]
    bars: dict[str, list[tuple[str, float]]] = {"the card": [], "the Python thread": []}
    positions = iter(bars)
    at = next(positions)
    for label, _, number, *_ in rows:
        if label.endswith("together"):
            at = next(positions, "")
        elif at and re.match(r"[\d.]+", number):
            amount = float(re.match(r"[\d.]+", number)[0])  # type: ignore[index]
            bars[at].append((label.split(",")[0].split(" (")[0], amount))
    colours = (
        TEAL,
        "#4db6ac",
        "#b2dfdb",
        "#b35900",
        "#e0a061",
        "#3f51b5",
        "#9fa8da",
        RED,
    )
    used = iter(colours)
    with figure(path, 6.4, 2.5) as chart:
        axes = chart.add_subplot()
        for row, parts in enumerate(bars.values()):
            start = 0.0
            for name, amount in parts:
                axes.barh(
                    row, amount, left=start, color=next(used), label=name, height=0.55
                )
                start += amount
            axes.text(start + 0.1, row, f"{start:.1f} ms", va="center")
        axes.set_yticks(range(2), bars)
        axes.invert_yaxis()
        axes.set_xlim(0, 10.5)
        axes.set_xlabel(
            "milliseconds of one picture (estimate, one A100, ViT-B/32, 64 views)"
        )
        chart.legend(loc="outside lower center", ncols=2, fontsize=8)
