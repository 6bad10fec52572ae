"""Adapters as text: ``fair-tpt:lam=10,rate.beta=0.05+orthcali:lam=0``.

A name, and after a colon its settings, which are the fields of the class. A setting of a setting
has a dot. ``+`` (or ``>>``, which a shell must be kept from reading) chains two.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from fair_tta.adapters import TPT, Adapter, FairTPT, FairTPTMO, OrthCali, Zero, ZeroShot
from fair_tta.errors import FairTTAError
from fair_tta.learning_rate import ELRA, FixedRate
from fair_tta.objectives import SLoss, SuperTSLoss, TSLoss

ADAPTERS: dict[str, type[Any]] = {
    "zero-shot": ZeroShot,
    "zero": Zero,
    "tpt": TPT,
    "orthcali": OrthCali,
    "fair-tpt": FairTPT,
    "fair-tpt-mo": FairTPTMO,
}
"""Every method by its name on the command line and in tables of one's own."""

_CHOICES: tuple[dict[str, type[Any]], ...] = (
    {"elra": ELRA, "fixed": FixedRate},
    {"s": SLoss, "ts": TSLoss, "super-ts": SuperTSLoss},
    {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD},
)


def parse_adapter(text: str) -> Adapter:
    """Make an adapter from text.

    Example:
        >>> parse_adapter("fair-tpt:lam=10,rate.beta=0.05").rate.beta
        0.05
        >>> type(parse_adapter("fair-tpt+orthcali:lam=0")).__name__
        'Projected'
    """
    first, *others = re.split(r">>|\+(?=\s*[A-Za-z])", text)
    adapter = _one(first)
    for other in others:
        if not hasattr(adapter, "__rshift__"):
            raise FairTTAError(f"nothing can come after {first.strip()!r} (got {text!r}).")
        adapter = adapter >> _one(other)
    checked: Adapter = adapter
    return checked


def parse_adapters(texts: Sequence[str]) -> dict[str, Adapter]:
    """Make adapters from lists with commas, by what was written.

    Example:
        >>> list(parse_adapters(["zero-shot,fair-tpt:lam=10,rho=0.5", "tpt"]))
        ['zero-shot', 'fair-tpt:lam=10,rho=0.5', 'tpt']
    """
    parts: list[str] = []
    for text in texts:
        for part in map(str.strip, text.split(",")):
            if re.match(r"[\w.]+\s*=", part) and parts:
                parts[-1] += f",{part}"  # a setting of the one before
            elif part:
                parts.append(part)
    twice = sorted({part for part in parts if parts.count(part) > 1})
    if twice:
        raise FairTTAError(f"adapters should differ ({twice} came twice).")
    if not parts:
        raise FairTTAError(f"at least one adapter is needed: {', '.join(ADAPTERS)}.")
    return {part: parse_adapter(part) for part in parts}


def describe_settings(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Settings of a class and their defaults, as they are written."""
    for field in dataclasses.fields(kind):
        default = field.default
        yield field.name, _written(default)
        if dataclasses.is_dataclass(default):
            for inner in dataclasses.fields(default):
                yield f"{field.name}.{inner.name}", _written(getattr(default, inner.name))


def _one(text: str) -> Any:
    name, _, rest = (part.strip() for part in text.partition(":"))
    if name not in ADAPTERS:
        raise FairTTAError(f"there is no adapter {name!r}: choose from {', '.join(ADAPTERS)}.")
    settings: dict[str, str] = {}
    for part in filter(None, map(str.strip, rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise FairTTAError(f"a setting of {name!r} is written 'name=value' (got {part!r}).")
        if key in settings:
            raise FairTTAError(f"the setting {key!r} of {name!r} came twice.")
        settings[key] = value
    return _build(name, ADAPTERS[name](), settings)


def _build(name: str, default: Any, settings: Mapping[str, str]) -> Any:
    """A copy of `default` with other settings."""
    names = [field.name for field in dataclasses.fields(default)]
    own = {key: value for key, value in settings.items() if "." not in key}
    inner: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        if "." in key:
            first, rest = key.split(".", 1)
            inner.setdefault(first, {})[rest] = value
    for key in (*own, *inner):
        if key not in names:
            allowed = f"its settings are {', '.join(names)}" if names else "it has no settings"
            raise FairTTAError(f"{name!r} has no setting {key!r}: {allowed}.")
    values = {key: _value(f"{name}:{key}", getattr(default, key), own[key]) for key in own}
    for key, deeper in inner.items():
        value = values.get(key, getattr(default, key))
        if not dataclasses.is_dataclass(value):
            raise FairTTAError(f"the setting {key!r} of {name!r} has no settings of its own.")
        values[key] = _build(f"{name}:{key}", value, deeper)
    return dataclasses.replace(default, **values)


def _value(where: str, default: Any, text: str) -> Any:
    """Read a value of the kind that the default is of."""
    for choices in _CHOICES:
        if default in choices.values() or type(default) in choices.values():
            if text not in choices:
                raise FairTTAError(f"`{where}` should be one of {', '.join(choices)} (got {text}).")
            return choices[text] if isinstance(default, type) else choices[text]()
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise FairTTAError(f"`{where}` should be true or false (got {text}).")
        return text.lower() == "true"
    kind, what = (int, "a whole number") if isinstance(default, int) else (float, "a number")
    try:
        return kind(text)
    except ValueError:
        raise FairTTAError(f"`{where}` should be {what} (got {text}).") from None


def _written(value: Any) -> str:
    for choices in _CHOICES:
        for name, kind in choices.items():
            if value is kind or type(value) is kind:
                return name
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
