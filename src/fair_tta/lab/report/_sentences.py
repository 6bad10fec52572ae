"""An audit in sentences and rows, for both the HTML page and the Markdown block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from fair_tta.auditing._document import (
    AuditDocument,
    ClassInGroup,
    ComparedGroup,
    Comparison,
    Difference,
    Measured,
    RunFigures,
)
from fair_tta.auditing._examine import HALF_WIDTH
from fair_tta.lab.report._glossary import Verdict, verdict
from fair_tta.lab.report._numbers import (
    SPACE,
    count,
    group_name,
    images,
    interval,
    p_value,
    percent,
)
from fair_tta.metrics._intervals import images_for_half_width

MANY_CHANGED = 0.2
"""The report points at a method that changes more of the answers than this."""


class Card(NamedTuple):
    """A finding in two sentences.

    Attributes:
        heading: which question it answers.
        text: the answer.
        more: what stands behind it, smaller.
        tone: ``good``, ``bad`` or none.
    """

    heading: str
    text: str
    more: str
    tone: str = ""


def summary(document: AuditDocument) -> str:
    """Headline figures of the first run, in plain words."""
    run = document.runs[0]
    figures, level = run.metrics, 100 * document.settings.level
    text = (
        f"On {images(document.data.n)}, {run.name} gave the right answer in "
        f"{_shown(figures.accuracy, '%', f'{level:g}{SPACE}% interval ')}."
    )
    worst = worst_group_of(run)
    if worst is None:
        return text
    name, cell = worst
    return (
        f"{text} Its worst group of class and {' and '.join(document.data.sensitive)} is "
        f"{name}, with {images(cell.n)} and {_shown(figures.worst_group_accuracy, '%')} right. "
        f"That is a gap of {_shown(figures.bias, 'points')} to the mean. {one_image(name, cell.n)}"
    )


def one_image(name: str, n: int) -> str:
    """What a single image of a group weighs."""
    return f"One image of {name} is worth {percent(1 / n)} points of that group's accuracy."


def changes(document: AuditDocument) -> list[str]:
    """A sentence for each run that is compared with the first."""
    return [_change(comparison, document.settings.level) for comparison in document.comparisons]


def _change(comparison: Comparison, level: float) -> str:
    differences, counts = comparison.adjusted, comparison.changes
    direction = verdict("accuracy", differences.accuracy)
    accuracy = _difference(differences.accuracy, direction)
    gap = _difference(differences.bias, verdict("bias", differences.bias))
    p = p_value(counts.mcnemar_p)
    p = f"p{SPACE}{p}" if p.startswith("<") else f"p{SPACE}={SPACE}{p}"
    if direction in ("better", "worse") and (counts.mcnemar_p or 0) > 1 - level:
        p += "; this test, stricter than the interval, does not reject"
    return (
        f"{comparison.run} against {comparison.reference}, on the same images: "
        f"accuracy {accuracy}; gap {gap}. "
        f"{count(counts.changed)} of {count(counts.n)} answers changed: "
        f"{count(counts.wrong_to_right)} from wrong to right, {count(counts.right_to_wrong)} "
        f"from right to wrong, {count(counts.wrong_to_wrong)} from wrong to wrong "
        f"(exact McNemar {p})."
    )


def _difference(figure: Difference, direction: Verdict) -> str:
    if figure.value is None:
        return f"n/a ({figure.reason})"
    text = f"{percent(figure.value, signed=True)} points"
    ends = interval(figure, signed=True, words=True)
    words = "not distinguishable from no change" if direction == "unclear" else direction
    return f"{text} ({ends}), {words}" if ends else text


def _shown(figure: Measured, unit: str, label: str = "") -> str:
    if figure.value is None:
        return f"n/a ({figure.reason})"
    ends = interval(figure, words=True)
    return f"{percent(figure.value)}{SPACE}{unit}" + (f" ({label}{ends})" if ends else "")


def worst_group_of(run: RunFigures) -> tuple[str, ClassInGroup] | None:
    """Name and figures of the worst group of class and sensitive value."""
    worst = run.worst_group.target_and_sensitive
    if worst is None:
        return None
    for group in run.groups:
        if group.sensitive == worst.sensitive:
            for cell in group.classes:
                if cell.target == worst.target and cell.n:
                    return group_name(worst.sensitive, worst.target), cell
    return None


def weights(document: AuditDocument) -> list[dict[str, Any]]:
    """What one image weighs in each group that is the worst of some run."""
    found: dict[str, dict[str, Any]] = {}
    for need in needs(document):
        group = {"group": need["group"], "n": need["n"], "one": need["one"], "runs": []}
        found.setdefault(need["group"], group)["runs"].append(need["run"])
    return list(found.values())


def needs(document: AuditDocument) -> list[dict[str, Any]]:
    """For each run: its worst group, what one image of it weighs, how many it would take."""
    rows = []
    level = document.settings.level
    for run in document.runs:
        worst = worst_group_of(run)
        if worst is None:
            continue
        name, cell = worst
        figure = cell.true_positive_rate
        # near 0 and 1 the formula would be content with almost no images
        rate = min(max(figure.value or 0.0, HALF_WIDTH), 1 - HALF_WIDTH)
        rows.append(
            {
                "run": run.name,
                "group": name,
                "n": cell.n,
                "figure": figure,
                "one": 1 / cell.n,
                "images": images_for_half_width(rate, HALF_WIDTH, level),
                "change": _change_of(document, run),
            }
        )
    return rows


def _change_of(document: AuditDocument, run: RunFigures) -> ComparedGroup | None:
    """How the worst group of a run changed under that run."""
    worst, comparison = run.worst_group.target_and_sensitive, comparison_of(document, run.name)
    if worst is None or comparison is None:
        return None
    name = worst.target, worst.sensitive
    return next((g for g in comparison.groups if (g.target, g.sensitive) == name), None)


def comparison_of(document: AuditDocument, run: str) -> Comparison | None:
    """How a run compares with the first, None for the first."""
    return next((c for c in document.comparisons if c.run == run), None)


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as ``("rate.beta", "0.01")``; an adapter's own nesting is left out."""
    if isinstance(value, Struct):
        value = asdict(value)
    if isinstance(value, Mapping) and set(value) <= {"name", "settings", "repr"} and value:
        yield (name, str(value.get("name")))
        yield from flat(value.get("settings", {}), name)
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        items = [", ".join(text for _, text in flat(item, name)) for item in value]
        yield (name, "; ".join(items) or "none")
    elif name:
        yield (name, "none" if value is None or value == {} else str(value))
