"""``fair-tta adapters``: which methods there are."""

from __future__ import annotations

import inspect
from dataclasses import replace

from rich.console import Console
from rich.text import Text

_SETTINGS = 28  # characters in a line, if there is room


def adapters_command() -> None:
    """List the methods: what they do, what they need, and their settings with defaults.

    Settings are written after a colon: fair-tpt:lam=10,rate.beta=0.05. A plus sign projects after
    tuning: fair-tpt+orthcali:lam=0. What needs a reference has it from --reference DIR, or from a
    file of `fair-tta fit`: logit-balance:reference=FILE. A method of a file of your own, which is
    run, is written my_file.py:MyMethod.
    """
    from fair_tta.adapters.contract import needs_pixels
    from fair_tta.adapters.setting_values import describe_settings
    from fair_tta.adapters.text_form import ADAPTERS
    from fair_tta.report.terminal import Fitted, columns

    rows = []
    for name, kind in ADAPTERS.items():
        default = kind()
        needs = [
            what
            for what, needed in (
                ("--sensitive", default.needs_sensitive),
                ("views", default.needs_views),
                ("prompt gradient", default.needs_prompt_gradient),
                ("reference", getattr(default, "needs_reference", False)),
                ("its labels", getattr(default, "needs_labels", False)),
                ("true values", getattr(default, "needs_values", False)),
                ("pictures", needs_pixels(default)),
            )
            if needed
        ]
        first = inspect.cleandoc(kind.__doc__ or "").splitlines()[0]
        described = [*describe_settings(kind)]
        described += [("reference", "FILE")] * getattr(kind, "needs_reference", False)
        settings = ", ".join(f"{key}={value}" for key, value in described)
        rows.append([*map(Text, (name, first, ", ".join(needs) or "nothing", settings or "none"))])
    made = columns(["name", "what it does", "needs", "settings and defaults"], rows, (0, 1, 2))
    made[3] = replace(made[3], most=max(made[3].least, _SETTINGS), is_left=True)
    Console().print(Fitted(made, rows))
    Console().print(
        "Cost, against a plain zero-shot call: about 1.0 times without views; with views as many "
        "times as there are (--views, 64 unless told) or less, as they are encoded together. "
        "`fair-tta audit` and `fair-tta demo` tell what they measured."
    )
