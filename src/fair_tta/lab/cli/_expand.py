"""The decorator that turns dataclasses of options into options of a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a dataclass by an option for each of its fields."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        group = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter)
            continue
        assert isinstance(group, type)

        # Each field becomes a parameter of the command, in place of the dataclass
        groups[parameter.name] = group
        types = get_type_hints(group, include_extras=True)
        for option in fields(group):
            annotation = types[option.name]
            default = _default(option)
            parameters.append(
                parameter.replace(
                    name=option.name, default=default, annotation=annotation
                )
            )

    @wraps(command)
    def with_groups(**values: Any) -> None:
        # The command itself receives its dataclasses
        for name, group in groups.items():
            options = {option.name: values.pop(option.name) for option in fields(group)}
            values[name] = group(**options)
        command(**values)

    # typer reads the options from the signature
    with_groups.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_groups


def _default(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return option.default_factory()
    return inspect.Parameter.empty if option.default is MISSING else option.default


def reject_ineffective_options(circumstance: str, **options: object) -> None:
    """Raise a usage error if an option was given that has no effect.

    Args:
        circumstance: when they have no effect, such as ``"without --out"``.
        options: their values, which are None or False if they were not given.
    """
    for name, value in options.items():
        if value is not None and value is not False:
            raise typer.BadParameter(
                f"it has no effect {circumstance}.",
                param_hint="--" + name.replace("_", "-"),
            )
