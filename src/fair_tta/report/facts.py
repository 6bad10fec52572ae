"""An audit in sentences and rows, for both the HTML page and the Markdown block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fair_tta.auditing import Audit, check_document
from fair_tta.errors import FairTTAError
from fair_tta.metrics.exact import images_for_half_width
from fair_tta.report.numbers import SPACE, count, group_name, interval, p_value, percent
from fair_tta.report.words import Verdict, verdict

HALF_WIDTH = 0.05
"""A group is called known if its accuracy is known up to so much."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def document_of(audit: Audit | Mapping[str, Any]) -> dict[str, Any]:
    """The audit's JSON, checked, with characters that no file can hold replaced."""
    if isinstance(audit, Audit):
        document = audit.document
    elif isinstance(audit, Mapping):
        document = dict(audit)
        check_document(document)
    else:
        raise FairTTAError(
            f"`audit` should be an Audit or its document (got {type(audit).__name__})."
        )
    if not document["runs"]:
        raise FairTTAError("`audit` should have at least one run (got none).")
    cleaned: dict[str, Any] = clean(document)
    return cleaned


def clean(value: Any) -> Any:
    """Line breaks become spaces, control characters and broken ones a question mark in a box."""
    if isinstance(value, str):
        text = " ".join(value.splitlines()) if len(value.splitlines()) > 1 else value.strip("\r\n")
        return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\t", " "))
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value


def title(document: dict[str, Any]) -> str:
    """What the report is called if it has no other name."""
    return f"Accuracy and gaps by {' and '.join(document['data']['sensitive'])}"


def summary(document: dict[str, Any]) -> str:
    """Headline figures of the first run, in plain words."""
    run = document["runs"][0]
    figures, level = run["metrics"], 100 * document["settings"]["level"]
    text = (
        f"On {_images(document['data']['n'])}, {run['name']} gave the right answer in "
        f"{_shown(figures['accuracy'], '%', f'{level:g}{SPACE}% interval ')}."
    )
    worst = worst_cell(run)
    if worst is None:
        return text
    name, cell = worst
    return (
        f"{text} Its worst group of class and {' and '.join(document['data']['sensitive'])} is "
        f"{name}, with {_images(cell['n'])} and "
        f"{_shown(figures['worst_group_accuracy'], '%')} right. That is a gap of "
        f"{_shown(figures['bias'], 'points')} to the mean. {one_image(name, cell['n'])}"
    )


def one_image(name: str, n: int) -> str:
    """What a single picture of a group weighs."""
    return f"One image of {name} is worth {percent(1 / n)} points of that group's accuracy."


def changes(document: dict[str, Any]) -> list[str]:
    """A sentence for each run that is compared with the first."""
    level = document["settings"]["level"]
    return [_change(comparison, level) for comparison in document["comparisons"]]


def exact_p(comparison: dict[str, Any], metric: str) -> float | None:
    """The p-value of the exact test, which there is for accuracy only."""
    p: float | None = comparison["changes"]["mcnemar_p"]
    return p if metric == "accuracy" else None


def _change(comparison: dict[str, Any], level: float) -> str:
    differences, counts = comparison["differences"], comparison["changes"]
    parts = []
    for what, metric in (("accuracy", "accuracy"), ("gap (y, s)", "bias")):
        figure = differences[metric]
        says = verdict(metric, figure, exact_p(comparison, metric), level)
        parts.append(f"{what} {_difference(figure, says)}")
    p = p_value(counts["mcnemar_p"])
    p = f"p{SPACE}{p}" if p.startswith("<") else f"p{SPACE}={SPACE}{p}"
    return (
        f"{comparison['run']} against {comparison['reference']}, on the same images: "
        f"{'; '.join(parts)}. {count(counts['changed'])} of {count(counts['n'])} answers changed: "
        f"{count(counts['wrong_to_right'])} from wrong to right, {count(counts['right_to_wrong'])} "
        f"from right to wrong, {count(counts['wrong_to_wrong'])} from wrong to wrong "
        f"(exact McNemar {p})."
    )


def _difference(figure: dict[str, Any], says: Verdict) -> str:
    if figure["value"] is None:
        return f"n/a ({figure['reason']})"
    text = f"{percent(figure['value'], signed=True)} points"
    ends = interval(figure, signed=True, words=True)
    words = {
        "unclear": "not distinguishable from no change",
        "borderline": "borderline, as the exact test does not agree",
    }
    return f"{text} ({ends}), {words.get(says, says)}" if ends else text


def _images(n: int) -> str:
    return f"{count(n)} image{'' if n == 1 else 's'}"


def _shown(figure: dict[str, Any], unit: str, label: str = "") -> str:
    if figure["value"] is None:
        return f"n/a ({figure['reason']})"
    ends = interval(figure, words=True)
    return f"{percent(figure['value'])}{SPACE}{unit}" + (f" ({label}{ends})" if ends else "")


def worst_cell(run: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Name and figures of the worst group over (y, s)."""
    worst = run["worst_group"]["(y, s)"]
    if worst is None:
        return None
    for group in run["groups"]:
        if group["sensitive"] == worst["sensitive"]:
            for cell in group["classes"]:
                if cell["target"] == worst["target"]:
                    return group_name(worst["sensitive"], worst["target"]), cell
    return None


def weights(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What one image weighs in each group that is the worst of some run."""
    found: dict[str, dict[str, Any]] = {}
    for need in needs(document):
        group = {"group": need["group"], "n": need["n"], "one": need["one"], "runs": []}
        found.setdefault(need["group"], group)["runs"].append(need["run"])
    return list(found.values())


def needs(document: dict[str, Any]) -> list[dict[str, Any]]:
    """For each run: its worst group, what one image of it weighs, how many it would take."""
    rows = []
    level = document["settings"]["level"]
    for run in document["runs"]:
        worst = worst_cell(run)
        if worst is None:
            continue
        name, cell = worst
        figure = cell["true_positive_rate"]
        # near 0 and 1 the formula would be content with almost no images
        rate = min(max(figure["value"], HALF_WIDTH), 1 - HALF_WIDTH)
        rows.append(
            {
                "run": run["name"],
                "group": name,
                "n": cell["n"],
                "figure": figure,
                "one": 1 / cell["n"],
                "images": images_for_half_width(rate, HALF_WIDTH, level),
                "change": _change_of(document, run),
            }
        )
    return rows


def _change_of(document: dict[str, Any], run: dict[str, Any]) -> dict[str, Any] | None:
    """How the worst group of a run changed under that run."""
    worst = run["worst_group"]["(y, s)"]
    for comparison in document["comparisons"]:
        if comparison["run"] == run["name"]:
            for group in comparison["groups"]:
                if (group["target"], group["sensitive"]) == (worst["target"], worst["sensitive"]):
                    found: dict[str, Any] = group
                    return found
    return None


def comparison_of(document: dict[str, Any], run: str) -> dict[str, Any] | None:
    """How a run compares with the first, None for the first."""
    found = (c for c in document["comparisons"] if c["run"] == run)
    return next(found, None)


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as ``("rate.beta", "0.01")``; an adapter's own nesting is left out."""
    if isinstance(value, Mapping) and set(value) <= {"name", "settings", "repr"} and value:
        yield (name, str(value.get("name")))
        yield from flat(value.get("settings", {}), name)
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        items = [", ".join(text for _, text in flat(item, name)) for item in value]
        yield (name, "; ".join(items) or "none")
    elif name:
        yield (name, "none" if value is None or value == {} else str(value))
