"""Settings of methods as text, ``lam=10,rate.beta=0.05``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fair_tta.errors import FairTTAError, suggest_name
from fair_tta.methods.field._seraser import DistortedViews, KLFromUniform
from fair_tta.methods.tuning._losses import SLoss, SuperTSLoss, TSLoss
from fair_tta.methods.tuning._rates import ELRA, FixedRate

# The names of classes that a setting may be an object of, or may be itself. A default belongs to
# exactly one of these groups.
_CLASS_NAMES: tuple[dict[str, type[Any]], ...] = (
    {"elra": ELRA, "fixed": FixedRate},
    {"s": SLoss, "ts": TSLoss, "super-ts": SuperTSLoss},
    {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD, "adam": torch.optim.Adam},
    {"from-uniform": KLFromUniform},
    {"distorted": DistortedViews},
)
_TYPE_NAMES = {int: "an integer", float: "a number", str: "a text"}


def split_settings(name: str, text: str) -> dict[str, str]:
    """Return ``{"lam": "10", "rate.beta": "0.05"}`` for ``"lam=10,rate.beta=0.05"``.

    Args:
        name: of the method, for messages.
        text: the settings.
    """
    settings: dict[str, str] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        key = key.strip()
        value = value.strip()
        if not equals or not value:
            raise FairTTAError(
                f"a setting of {name!r} is written 'name=value' (got {part.strip()!r})."
            )
        if key in settings:
            raise FairTTAError(f"the setting {key!r} of {name!r} came twice.")
        settings[key] = value
    return settings


def with_settings(name: str, default: Any, settings: Mapping[str, str]) -> Any:
    """Return a copy of a method, or of a setting of one, with other settings.

    Args:
        name: of the method, for messages.
        default: the object to copy.
        settings: ``{"lam": "10", "rate.beta": "0.05"}``.
    """
    fields = {field.name: field for field in _settable_fields(default)}
    values: dict[str, Any] = {}
    nested: dict[str, dict[str, str]] = {}
    for path, text in settings.items():
        key, dot, nested_path = path.partition(".")
        if key not in fields:
            allowed = "it has no settings"
            if fields:
                allowed = f"its settings are {', '.join(fields)}"
            raise FairTTAError(
                f"{name!r} has no setting {key!r}: {allowed}.{suggest_name(key, fields)}"
            )
        if dot:
            nested.setdefault(key, {})[nested_path] = text
        elif fields[key].default is None and text == "none":
            values[key] = None  # as `describe_settings` writes it
        else:
            example = _example_value(default, fields[key])
            values[key] = _parse_value(f"{name}:{key}", example, text)

    # Settings of a setting come last, because the setting itself may have been replaced.
    for key, nested_settings in nested.items():
        value = values.get(key, getattr(default, key))
        if not dataclasses.is_dataclass(value):
            raise FairTTAError(
                f"the setting {key!r} of {name!r} has no settings of its own."
            )
        values[key] = with_settings(f"{name}:{key}", value, nested_settings)
    return dataclasses.replace(default, **values) if values else default


def describe_settings(method: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a class and their defaults, as they are written."""
    for field in _settable_fields(method):
        yield field.name, _to_text(field.default)
        if dataclasses.is_dataclass(field.default):
            for nested in dataclasses.fields(field.default):
                value = getattr(field.default, nested.name)
                yield f"{field.name}.{nested.name}", _to_text(value)


def _settable_fields(method: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields that can be written as text."""
    if not dataclasses.is_dataclass(method):
        return []
    settable = []
    for field in dataclasses.fields(method):
        # A setting that is None by default shows its type only in the annotation: a text can be
        # written, a function or a list cannot.
        is_text = str(field.type).startswith("str ")
        if field.init and (field.default is not None or is_text):
            settable.append(field)
    return settable


def _example_value(default: Any, field: dataclasses.Field[Any]) -> Any:
    """Return a value of the type that a setting should have."""
    if field.default is None:
        return ""
    value = getattr(default, field.name)
    if field.type in ("float", float) and isinstance(value, int):
        return float(value)
    return value


def _parse_value(argument: str, example: Any, text: str) -> Any:
    """Read a value of the same type as an example, or the name of a class like it."""
    expected_type = example if isinstance(example, type) else type(example)
    for classes in _CLASS_NAMES:
        if expected_type in classes.values():
            if text not in classes:
                raise FairTTAError(
                    f"`{argument}` should be one of {', '.join(classes)} (got {text}).",
                    argument=argument,
                )
            chosen = classes[text]
            return chosen if isinstance(example, type) else chosen()
    if expected_type is bool:
        if text.lower() not in ("true", "false"):
            raise FairTTAError(
                f"`{argument}` should be true or false (got {text}).", argument=argument
            )
        return text.lower() == "true"
    if expected_type not in _TYPE_NAMES:
        raise FairTTAError(
            f"`{argument}` cannot be written (its default is {example!r}): choose it in Python.",
            argument=argument,
        )
    try:
        return expected_type(text)
    except ValueError:
        raise FairTTAError(
            f"`{argument}` should be {_TYPE_NAMES[expected_type]} (got {text}).",
            argument=argument,
        ) from None


def _to_text(value: Any) -> str:
    for classes in _CLASS_NAMES:
        for name, cls in classes.items():
            if value is cls or type(value) is cls:
                return name
    if isinstance(value, float) and math.isfinite(value):
        return np.format_float_positional(value, trim="-")  # 0.00001, not 1e-05
    return str(value).lower()
