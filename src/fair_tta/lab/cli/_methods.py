"""Options that name methods, and the list of methods."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

_SYNTAX = (
    "Settings follow a colon: fair-tpt:lam=10,rate.beta=0.05. A plus sign chains two methods: "
    "fair-tpt+orthcali:lam=0. A method that needs a reference takes it from --reference DIR, or "
    "from a file written by `fair-tta fit`: logit-balance:reference=FILE. A user-defined method is "
    "written my_file.py:MyMethod; the file is run."
)
_COST = (
    "Cost relative to a plain zero-shot prediction: about 1.0 without views; with views at most "
    "their number (--views, 64 by default), since they are encoded together. `fair-tta audit` and "
    "`fair-tta demo` report the measured cost."
)
_NEEDS = {
    "sensitive": "--sensitive",
    "views": "views",
    "prompt_gradient": "prompt gradient",
    "reference": "reference",
    "reference_sensitive": "its labels",
    "reference_labels": "its classes",
    "values": "true values",
    "pixels": "images",
}
"""Names of the needs of methods, by the fields of `Needs`."""


def complete_adapters(incomplete: str) -> list[str]:
    """Return the completions of an unfinished list of methods."""
    from fair_tta.methods._registry import ADAPTERS

    complete, comma, _ = incomplete.rpartition(",")
    completions = [f"{complete}{comma}{name}" for name in ADAPTERS]
    return [text for text in completions if text.startswith(incomplete)]


def _list_on_request(methods: str | list[str] | None) -> str | list[str] | None:
    """Print all methods and exit if the option is ``help``."""
    if methods in ("help", ["help"]):
        print_methods()
        raise typer.Exit
    return methods


def print_methods() -> None:
    """Print the purpose of each method, its needs, and its settings with defaults."""
    from fair_tta.lab._terminal import print_text
    from fair_tta.methods._registry import ADAPTERS
    from fair_tta.methods._settings import describe_settings

    print_text(_SYNTAX)
    for name, method in ADAPTERS.items():
        needs = method().needs
        needed = [text for field, text in _NEEDS.items() if getattr(needs, field)]
        settings = [
            f"{setting}={default}" for setting, default in describe_settings(method)
        ]
        # A saved fit is written like a setting
        if needs.reference:
            settings.append("reference=FILE")
        print_text(name, "bold")
        assert method.__doc__ is not None
        print_text(inspect.cleandoc(method.__doc__).splitlines()[0], indent=4)
        print_text(f"Needs: {', '.join(needed) or 'nothing'}.", indent=4)
        print_text(f"Settings: {', '.join(settings) or 'none'}", indent=4)
    print_text(_COST)


def _option(name: str, metavar: str, text: str, default: str | bool = True) -> Any:
    """Return an option that is parsed before others, because it may request the list."""
    return typer.Option(
        name,
        metavar=metavar,
        help=text,
        show_default=default,
        autocompletion=complete_adapters,
        callback=_list_on_request,
        is_eager=True,
    )


PredictionMethodOption = Annotated[
    str | None,
    _option(
        "--adapter",
        "METHOD",
        "Method, such as 'fair-tpt:lam=10' ('help' lists all), or a user-defined one, "
        "'my_file.py:MyMethod', whose file is run.",
        default="association-correction with --sensitive, else zero-shot",
    ),
]
FittedMethodOption = Annotated[
    str,
    _option(
        "--adapter",
        "METHOD",
        "Method that needs a reference, such as 'logit-balance:strength=1' ('help' lists all).",
    ),
]
AuditedMethodsOption = Annotated[
    list[str],
    _option(
        "--adapters",
        "METHODS",
        "Methods separated by commas, written as for `fair-tta predict --adapter` ('help' lists "
        "all). The others are compared with the first.",
    ),
]
ExaminedMethodsOption = Annotated[
    list[str],
    _option(
        "--adapters",
        "METHODS",
        "Methods to try, separated by commas, written as for `fair-tta predict --adapter` ('help' "
        "lists all). Each is compared with zero-shot; zero-shot alone examines the model only.",
    ),
]
