"""How objects are shown: short lists of names, and HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

# More names than twice this many are abbreviated to this many: a repr should fit on a line or two.
_NAMES_SHOWN = 5


def abbreviate(names: Iterable[str]) -> str:
    """Join names with commas; of many the first few, and how many more there are."""
    shown = list(names)
    if len(shown) > 2 * _NAMES_SHOWN:
        shown[_NAMES_SHOWN:] = [f"... {len(shown) - _NAMES_SHOWN} more"]
    return ", ".join(shown)


def classifier_table(
    *,
    model: str,
    targets: Sequence[str],
    sensitive: Mapping[str, Sequence[str]],
    sentences: Mapping[str, Any],
    adapter: str,
    views: str,
) -> str:
    """Return a table of what a classifier is made of."""
    # Many classes are abbreviated: the table should fit on a screen.
    cells = {"model": model, "targets": abbreviate(targets)}
    for attribute, names in sensitive.items():
        cells[f"sensitive: {attribute}"] = abbreviate(names)
    for prompt, sentence in sentences.items():
        if sentence:
            cells[f"prompt: {prompt}"] = str(sentence)
    cells["adapter"] = adapter
    cells["views"] = views
    rows = [
        f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
        for name, text in cells.items()
    ]
    return f"<table>{''.join(rows)}</table>"


def probability_bars(
    title: str, before: Mapping[str, float], after: Mapping[str, float]
) -> str:
    """Return a table with a bar for each probability."""
    rows = [f"<tr><th>{escape(title)}</th><th>before</th><th>after</th></tr>"]
    for name, probability in after.items():
        cells = _bar(before[name]) + _bar(probability)
        rows.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _bar(probability: float) -> str:
    """Return a cell with a probability beside a bar as long as it, of at most 100 pixels."""
    width = f"{100 * probability:.0f}px"
    style = f"display:inline-block;height:.7em;width:{width};background:#00796b"
    return f'<td style="text-align:left"><span style="{style}"></span> {probability:.3f}</td>'
