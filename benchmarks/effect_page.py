"""Tables from docs/effect.json: benchmarks/results/effect*, and the few that pages repeat.

A block of a page begins with ``<!-- effect: NAME -->`` and ends with ``<!-- end -->``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from effect_charts import draw
from result_files import table, write_blocks, write_results

INTRODUCTION = """# What the methods do to a gap

`python benchmarks/effect.py --page` writes this file and `effect/` from docs/effect.json, which
`python benchmarks/effect.py` computes. Points of percent; brackets are paired 95 % intervals; bold
is shown to be better, "(worse)" to be worse, each by itself. Images, questions and what it says:
docs/effect.md.

**Stale:** `fair-tpt`, `fair-tpt-mo` and `fair-tpt+orthcali:lam=0` were measured with the bounded
rule of 0.3 (a step of at most twice the norm of the context; elra-bound.md has what the bound
changes), on `scenes-both` also with the mean of the two attributes' terms, where the sum is taken
now. Their costs do not depend on that."""
PAGES = ("effect.md", "index.md", "../README.md")
OWN = ("association-correction", "logit-balance")
ALONE = ("birds", "badges", "scenes-time", "scenes-season")
DRAWN_TASKS = {
    "birds": "birds, by background",
    "badges": "badges, by colour",
    "scenes-both": "scenes, by time and season",
}
_SHOWN = {"accuracy": 1, "balanced": 1, "wga": 1, "eod": -1}
_TITLES = {"accuracy": "accuracy", "balanced": "balanced", "wga": "WGA", "eod": "EOD"}

Parts = dict[str, dict[str, Any]]


def write_pages(results: dict[str, Any], folder: Path) -> None:
    """Write the files of results and the blocks of every page, and draw the images."""
    parts = results["parts"]
    write_results("effect", INTRODUCTION, blocks_of(parts))
    for name in PAGES:
        write_blocks("effect", on_pages(parts), folder / name)
    draw(parts, folder)


def change(figure: dict[str, float], better: int) -> str:
    """With its interval; bold if it is shown to be better, marked if it is shown to be worse."""
    if figure["change"] == figure["low"] == figure["high"] == 0:
        return "0"
    middle, low, high = (signed(figure[key]) for key in ("change", "low", "high"))
    side = better * ((figure["low"] > 0) - (figure["high"] < 0))
    middle = {1: f"**{middle}**", -1: f"{middle} (worse)", 0: middle}[side]
    return f"{middle} [{low}, {high}]"


def signed(points: float) -> str:
    """With one digit after the point, or two where one would look like 0: a mark rests on them."""
    if points == 0:
        return "0.0"
    text = f"{points:+.1f}"
    return f"{points:+.2f}" if text[1:] == "0.0" else text


def _by_question(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    by_question: dict[str, dict[str, Any]] = {}
    for key, entry in results.items():
        question, _, subkey = key.partition("/")
        by_question.setdefault(question, {})[subkey] = entry
    return by_question


def methods(parts: Parts) -> dict[str, str]:
    """Return a table for each question."""
    tables = {}
    for question, figures in _by_question(parts["methods"]).items():
        plain = figures["zero-shot"]
        zero_shot = ", ".join(f"{_TITLES[m]} {plain[m]['before']:.1f}" for m in _SHOWN)
        rows = []
        for name, entry in figures.items():
            if name == "zero-shot":
                continue
            if "problem" in entry:
                rows.append(
                    [f"`{name}`", f"not run: {entry['problem']}", "", "", "", "", ""]
                )
                continue
            cells = [change(entry[m], better) for m, better in _SHOWN.items()]
            rows.append(
                [f"`{name}`", f"{entry['n']:,}", *cells, f"{entry['changed']:.1f}"]
            )
        head = ["method", "n", *(f"{_TITLES[m]}" for m in _SHOWN), "answers changed, %"]
        tables[f"methods-{question}"] = (
            f"Zero-shot, {plain['n']:,} images, percent: {zero_shot}. Changes:\n\n"
            + table(head, rows)
        )
    return tables


def choice(parts: Parts) -> str:
    rows = []
    for key, entry in parts["choice"].items():
        question, method_name, strength = key.split("/")
        rows.append(
            [
                question,
                f"`{method_name}`",
                strength,
                *(change(entry[m], b) for m, b in _SHOWN.items()),
            ]
        )
    return table(["question", "method", "strength", *_TITLES.values()], rows)


def placebos(parts: Parts) -> str:
    kinds = {
        "right": "the attribute itself",
        "wrong attribute": "a wrong attribute",
        "random flips": "as many random flips",
        "stranger": "a stranger's correction",
    }
    by_question = _by_question(parts["placebos"])
    rows = []
    for question, entry in {"mean of the four": None, **by_question}.items():
        for method in next(iter(by_question.values())):
            if entry is not None and method not in OWN:
                continue
            entries = [
                e[method]
                for e in (by_question.values() if entry is None else [entry])
                if method in e
            ]
            cells = [
                _placebo([e[placebo_kind] for e in entries if placebo_kind in e])
                for placebo_kind in kinds
            ]
            rows.append([question, f"`{method}`", *cells])
    return "Change of EOD, and in brackets of accuracy, points:\n\n" + table(
        ["question", "method", *kinds.values()], rows
    )


def _placebo(entries: list[dict[str, Any]]) -> str:
    if not entries:
        return ""
    eod, right = (
        sum(e[m]["change"] for e in entries) / len(entries) for m in ("eod", "accuracy")
    )
    return f"{eod:+.1f} ({right:+.1f})"


def reference(parts: Parts) -> str:
    return _of_references(parts["reference"], "reference images")


def skew(parts: Parts) -> str:
    return _of_references(parts["skew"], "reference")


def _of_references(results: dict[str, Any], title: str) -> str:
    rows = []
    for key, entry in results.items():
        question, method, size = key.split("/")
        if "problem" in entry:
            why = f"not run: {entry['problem']}"
            rows.append([question, f"`{method}`", size, why, "", "", "", ""])
            continue
        cells = [change(entry[m], _SHOWN[m]) for m in ("accuracy", "wga", "eod")]
        ranges = [
            f"{entry['between'][m]['low']:+.1f} to {entry['between'][m]['high']:+.1f}"
            for m in ("wga", "eod")
        ]
        rows.append([question, f"`{method}`", size, *cells, *ranges])
    head = [
        "question",
        "method",
        title,
        "accuracy",
        "WGA",
        "EOD",
        "WGA of seeds",
        "EOD of seeds",
    ]
    return table(head, rows)


def tradeoff(parts: Parts) -> str:
    ((name, points),) = parts["tradeoff"].items()
    rows = []
    for key, entry in points.items():
        strength, _, share = key.partition("/")
        cells = [f"{entry[m]['after']:.1f}, {entry[m]['change']:+.1f}" for m in _SHOWN]
        rows.append([strength, share, *cells])
    head = ["strength", "keep_prior", *_TITLES.values()]
    n = points["0/1"]["n"]
    return f"{name}, {n:,} images, percent, and the change from zero-shot:\n\n" + table(
        head, rows
    )


def cost(parts: Parts) -> str:
    costs = parts["cost"]
    rows = []
    for method in next(iter(costs.values()))["times_plain"]:
        cells = []
        for entry in costs.values():
            if method not in entry["times_plain"]:
                cells.append("not measured")
                continue
            middle, low, high = entry["times_plain"][method]
            cells.append(f"{middle:.2g} ({low:.2g} to {high:.2g})" if middle < 9.5
                         else f"{middle:.0f} ({low:.0f} to {high:.0f})")  # fmt: skip
        rows.append([f"`{method}`", *cells])
    head = [
        "method",
        *(
            f"{m} (plain: {e['plain_ms']:.0f} ms; rounds: {e['rounds']})"
            for m, e in costs.items()
        ),
    ]
    return table(head, rows)


def times_plain(ratio: float) -> str:
    """A cost as pages show it."""
    return f"{ratio:.1f}" if ratio < 9.5 else f"{ratio:.0f}"


def mean_change(parts: Parts, method: str, metric: str) -> float:
    return sum(
        parts["methods"][f"{q}/{method}"][metric]["change"] for q in ALONE
    ) / len(ALONE)


def choose(parts: Parts) -> str:
    """What to take, for the page about methods."""
    rows = []
    costs = parts["cost"]["ViT-B/32"]["times_plain"]
    for name in dict.fromkeys(key.partition("/")[2] for key in parts["methods"]):
        entries = [parts["methods"].get(f"{q}/{name}", {}) for q in ALONE]
        if not all("eod" in e for e in entries):
            continue
        counts = [
            sum(e["eod"]["high"] < 0 for e in entries),
            sum(e["eod"]["low"] > 0 for e in entries),
        ]
        cells = [
            f"{mean_change(parts, name, m):+.1f}" for m in ("accuracy", "wga", "eod")
        ]
        cost = times_plain(costs[name][0]) if name in costs else "not measured"
        rows.append([f"`{name}`", *cells, f"{counts[0]} / {counts[1]}", cost])
    rows.sort(key=lambda row: float(row[3]))
    head = [
        "method",
        "accuracy",
        "WGA",
        "EOD",
        "attributes better / worse in EOD",
        "cost, plain calls",
    ]
    return table(head, rows)


def result(parts: Parts) -> str:
    """Return the typical gap of every drawn task with balanced accuracy, for the first pages."""
    rows = []
    for question, name in DRAWN_TASKS.items():
        gap = parts["verdicts"][question]["gap"]["logit-balance"]
        balanced = parts["methods"][f"{question}/logit-balance"]["balanced"]
        cells = [
            f"{figure['before']:.1f} to {figure['after']:.1f}: {_gap_change(figure)}"
            for figure in (gap, balanced)
        ]
        rows.append([name, *cells])
    n = parts["verdicts"]["birds"]["n"]
    return table(
        [f"drawn task, {n:,} images", "typical gap", "balanced accuracy, %"], rows
    )


def _gap_change(figure: dict[str, float]) -> str:
    low, high = (signed(figure[key]) for key in ("low", "high"))
    return f"{signed(figure['change'])} ({low} to {high})"


def verdicts(parts: Parts) -> str:
    """The typical gap, and of how many images an audit has to be to show that it narrows."""
    rows, sizes = [], []
    for question, entry in parts["verdicts"].items():
        for name, figure in entry["gap"].items():
            shares = entry["narrows"][name]
            sizes = [f"n = {int(n):,}" for n in shares]
            gaps = f"{figure['before']:.1f} to {figure['after']:.1f}"
            cells = [question, f"`{name}`", gaps, _gap_change(figure)]
            rows.append([*cells, *(f"{share:.0f}" for share in shares.values())])
    return table(
        ["question", "method", "typical gap", "change (95 % CI)", *sizes], rows
    )


def blocks_of(parts: Parts) -> dict[str, str]:
    """Return all tables, by the names of their files."""
    named = (choose, verdicts, choice, placebos, reference, skew, tradeoff, cost)
    return methods(parts) | {block.__name__: block(parts) for block in named}


def on_pages(parts: Parts) -> dict[str, str]:
    """Return the tables that pages repeat."""
    return {block.__name__: block(parts) for block in (verdicts, result)}
