"""Options that name methods, and the list of methods."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

LIST_METHODS = "help"
"""Instead of a method: list them."""

_HOW_TO_WRITE = (
    "Settings are written after a colon: fair-tpt:lam=10,rate.beta=0.05. A plus sign projects "
    "after tuning: fair-tpt+orthcali:lam=0. What needs a reference has it from --reference DIR, or "
    "from a file of `fair-tta fit`: logit-balance:reference=FILE. A user-defined method is written "
    "my_file.py:MyMethod; the file is run."
)
_COST = (
    "Cost, against a plain zero-shot call: about 1.0 times without views; with views as many times "
    "as there are (--views, 64 by default) or less, as they are encoded together. `fair-tta audit` "
    "and `fair-tta demo` report what they measured."
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
"""What methods need, by the names of the fields of `Needs`."""


def complete_adapters(incomplete: str) -> list[str]:
    """Return what a shell may offer for a list that is being written."""
    from fair_tta.methods._registry import ADAPTERS

    before, comma, _ = incomplete.rpartition(",")
    offers = [f"{before}{comma}{name}" for name in ADAPTERS]
    return [offer for offer in offers if offer.startswith(incomplete)]


def _list_if_asked(methods: str | list[str] | None) -> str | list[str] | None:
    """Print all methods and exit, if an option says so."""
    if methods in (LIST_METHODS, [LIST_METHODS]):
        print_methods()
        raise typer.Exit
    return methods


def print_methods() -> None:
    """Print what each method does, what it needs, and its settings with defaults."""
    from fair_tta.lab._terminal import print_text
    from fair_tta.methods._registry import ADAPTERS
    from fair_tta.methods._settings import describe_settings

    print_text(_HOW_TO_WRITE)
    for name, method in ADAPTERS.items():
        needs = method().needs
        needed = [text for field, text in _NEEDS.items() if getattr(needs, field)]
        settings = [
            f"{setting}={default}" for setting, default in describe_settings(method)
        ]
        if needs.reference:
            settings.append("reference=FILE")
        print_text(name, "bold")
        print_text(inspect.cleandoc(method.__doc__ or "").splitlines()[0], indent=4)
        print_text(f"Needs: {', '.join(needed) or 'nothing'}.", indent=4)
        print_text(f"Settings: {', '.join(settings) or 'none'}", indent=4)
    print_text(_COST)


def _option(name: str, metavar: str, text: str, default: str | bool = True) -> Any:
    """Return an option that is read before others, as it may ask for the list."""
    return typer.Option(
        name,
        metavar=metavar,
        help=text,
        show_default=default,
        autocompletion=complete_adapters,
        callback=_list_if_asked,
        is_eager=True,
    )


PredictionMethodOption = Annotated[
    str | None,
    _option(
        "--adapter",
        "METHOD",
        "Method, such as 'fair-tpt:lam=10' ('help' lists all), or user-defined in a file, which is "
        "run: 'my_file.py:MyMethod'.",
        default="association-correction with --sensitive, else zero-shot",
    ),
]
FittedMethodOption = Annotated[
    str,
    _option(
        "--adapter",
        "METHOD",
        "Method that needs a reference, with its settings: 'logit-balance:strength=1'.",
    ),
]
AuditedMethodsOption = Annotated[
    list[str],
    _option(
        "--adapters",
        "METHODS",
        "Methods with commas between them, written as for `fair-tta predict --adapter`; the first "
        "is what others are compared with.",
    ),
]
ExaminedMethodsOption = Annotated[
    list[str],
    _option(
        "--adapters",
        "METHODS",
        "Methods to try, with commas between them, written as for `fair-tta predict --adapter`; "
        "each is compared with zero-shot, and zero-shot alone looks only.",
    ),
]
