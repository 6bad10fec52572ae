"""Nobody should take the embedded model for one that knows photos."""

from __future__ import annotations

import typer

NOTE = "no --model: the embedded miniature model, which knows drawn pictures only"


def embedded_notes(context: typer.Context) -> list[str]:
    """What to say if the command was given no ``--model``."""
    source = context.get_parameter_source("model")
    return [NOTE] if source is None or source.name == "DEFAULT" else []
