"""A hook of mkdocs: the reference lists the functions that are made from definitions of metrics."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

MARK = "<!-- functions of metrics -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the listing in place of the mark."""
    return markdown.replace(MARK, listing()) if MARK in markdown else markdown


def listing() -> str:
    """Return a section for each function: how it is called, words, formula, parameters, example."""
    from fair_tta.metrics import _functions

    functions = sorted(_functions.FUNCTIONS.items())
    return "\n\n".join(_section(name, function) for name, function in functions)


def _section(name: str, function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    text = re.sub(r"^    (\w+): ", r"- `\1`: ", text, flags=re.MULTILINE)
    text = re.sub(r"^Args:$", "Parameters:\n", text, flags=re.MULTILINE)
    text = re.sub(r"^Example:\n", "Example:\n\n", text, flags=re.MULTILINE)
    call = f"{name}{_parameters(function)}"
    return f"### `fair_tta.metrics.{name}`\n\n```python\n{call}\n```\n\n{text}"


def _parameters(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=plain, return_annotation=signature.empty))
    return re.sub(r"<([\w.]+): [^>]*>", r"\1", text)  # choices of an Enum
