"""Settings of a method as text: ``lam=10,rate.beta=0.05``. They are the fields of its class."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fair_tta.adapters.seraser import KLFromUniform, KLToUniform
from fair_tta.errors import FairTTAError
from fair_tta.tuning.objectives import SLoss, SuperTSLoss, TSLoss
from fair_tta.tuning.rates import ELRA, FixedRate
from fair_tta.vision.auxiliary import DistortedViews, NoisyViews

_CHOICES: tuple[dict[str, type[Any]], ...] = (
    {"elra": ELRA, "fixed": FixedRate},
    {"s": SLoss, "ts": TSLoss, "super-ts": SuperTSLoss},
    {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD, "adam": torch.optim.Adam},
    {"from-uniform": KLFromUniform, "to-uniform": KLToUniform},
    {"distorted": DistortedViews, "noisy": NoisyViews},
)


def read_settings(name: str, text: str) -> dict[str, str]:
    """``{"lam": "10", "rate.beta": "0.05"}``."""
    settings: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise FairTTAError(f"a setting of {name!r} is written 'name=value' (got {part!r}).")
        if key in settings:
            raise FairTTAError(f"the setting {key!r} of {name!r} came twice.")
        settings[key] = value
    return settings


def with_settings(name: str, default: Any, settings: Mapping[str, str]) -> Any:
    """A copy of `default` with other settings."""
    fields = {field.name: field for field in _settable(default)}
    own = {key: value for key, value in settings.items() if "." not in key}
    inner: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        if "." in key:
            first, rest = key.split(".", 1)
            inner.setdefault(first, {})[rest] = value
    for key in (*own, *inner):
        if key not in fields:
            allowed = f"its settings are {', '.join(fields)}" if fields else "it has no settings"
            raise FairTTAError(f"{name!r} has no setting {key!r}: {allowed}.")
    values = {}
    for key, text in own.items():
        before = getattr(default, key)
        if fields[key].type in ("float", float) and isinstance(before, int):
            before = float(before)
        values[key] = _value(f"{name}:{key}", before, text)
    for key, deeper in inner.items():
        value = values.get(key, getattr(default, key))
        if not dataclasses.is_dataclass(value):
            raise FairTTAError(f"the setting {key!r} of {name!r} has no settings of its own.")
        values[key] = with_settings(f"{name}:{key}", value, deeper)
    return dataclasses.replace(default, **values) if values else default


def describe_settings(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Settings of a class and their defaults, as they are written."""
    for field in _settable(kind):
        default = field.default
        yield field.name, _written(default)
        if dataclasses.is_dataclass(default):
            for inner in dataclasses.fields(default):
                yield f"{field.name}.{inner.name}", _written(getattr(default, inner.name))


def _settable(method: Any) -> list[dataclasses.Field[Any]]:
    """The fields that can be written; functions, which are None by default, cannot."""
    fields = dataclasses.fields(method) if dataclasses.is_dataclass(method) else ()
    return [field for field in fields if field.init and field.default is not None]


def _value(where: str, default: Any, text: str) -> Any:
    """Read a value of the kind that the default is of."""
    kind = default if isinstance(default, type) else type(default)
    for choices in _CHOICES:
        if kind in choices.values():
            if text not in choices:
                raise FairTTAError(f"`{where}` should be one of {', '.join(choices)} (got {text}).")
            return choices[text] if isinstance(default, type) else choices[text]()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise FairTTAError(f"`{where}` should be true or false (got {text}).")
        return text.lower() == "true"
    kinds = {int: "a whole number", float: "a number", str: "a text"}
    if kind not in kinds:
        raise FairTTAError(
            f"`{where}` cannot be written (its default is {default!r}): choose it in Python."
        )
    try:
        return kind(text)
    except ValueError:
        raise FairTTAError(f"`{where}` should be {kinds[kind]} (got {text}).") from None


def _written(value: Any) -> str:
    for choices in _CHOICES:
        for name, kind in choices.items():
            if value is kind or type(value) is kind:
                return name
    if isinstance(value, float) and math.isfinite(value):
        return np.format_float_positional(value, trim="-")  # 0.00001, not 1e-05
    return str(value).lower()
