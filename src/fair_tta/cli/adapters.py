"""``fair-tta adapters``: which methods there are."""

from __future__ import annotations

import inspect

from rich import box
from rich.console import Console
from rich.table import Table


def adapters() -> None:
    """List the methods: what they do, what they need, and their settings with defaults.

    Settings are written after a colon: fair-tpt:lam=10,rate.beta=0.05. A plus sign projects after
    tuning: fair-tpt+orthcali:lam=0.
    """
    from fair_tta.adapter_text import ADAPTERS, describe_settings

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("name", "what it does", "needs", "settings and defaults"):
        table.add_column(column, overflow="fold")
    for name, kind in ADAPTERS.items():
        needs = [
            what
            for what, needed in (
                ("--sensitive", kind.needs_sensitive),
                ("views", kind.needs_views),
                ("prompt gradient", kind.needs_prompt_gradient),
            )
            if needed
        ]
        first = inspect.cleandoc(kind.__doc__ or "").splitlines()[0]
        settings = ", ".join(f"{key}={value}" for key, value in describe_settings(kind))
        table.add_row(name, first, ", ".join(needs) or "nothing", settings or "none")
    Console().print(table)
