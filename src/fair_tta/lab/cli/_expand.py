"""Dataclasses of options become options of commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Expand each parameter that is a dataclass into an option for each of its fields."""
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
            parameters.append(
                parameter.replace(
                    name=option.name,
                    default=_default(option),
                    annotation=types[option.name],
                )
            )

    @wraps(command)
    def with_groups(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(
                **{option.name: values.pop(option.name) for option in fields(group)}
            )
        command(**values)

    with_groups.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_groups


def _default(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return option.default_factory()
    return inspect.Parameter.empty if option.default is MISSING else option.default


def is_on_command_line(context: typer.Context, parameter: str) -> bool:
    """Return whether an option stands on the command line, rather than has its default."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def reject_unused_options(context: typer.Context, *reasons: Mapping[str, str]) -> None:
    """Raise a usage error if an option was given that has no effect.

    Args:
        context: the call of the command.
        reasons: why options have no effect, by the names of their parameters.
    """
    why = {name: reason for group in reasons for name, reason in group.items()}
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in why and is_on_command_line(context, name):
            raise typer.BadParameter(why[name], param_hint=parameter.opts[0])
