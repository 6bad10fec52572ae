"""Tables for notebooks, as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def facts_table(facts: Mapping[str, str]) -> str:
    """Return a table of two columns."""
    rows = [
        f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
        for name, text in facts.items()
    ]
    return f"<table>{''.join(rows)}</table>"


def bars(title: str, before: Mapping[str, float], after: Mapping[str, float]) -> str:
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
