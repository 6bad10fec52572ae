"""The decorator that turns dataclasses of options into options of a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
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


def is_on_command_line(context: typer.Context, parameter: str) -> bool:
    """Return True if an option was given, and False if it has its default."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def reject_unused_options(context: typer.Context, *reasons: Mapping[str, str]) -> None:
    """Raise a usage error if an option was given that has no effect.

    Args:
        context: the call of the command.
        reasons: why options have no effect, by the names of their parameters.
    """
    all_reasons: dict[str, str] = {}
    for group in reasons:
        all_reasons.update(group)
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in all_reasons and is_on_command_line(context, name):
            raise typer.BadParameter(all_reasons[name], param_hint=parameter.opts[0])
