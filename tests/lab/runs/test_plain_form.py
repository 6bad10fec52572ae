"""Settings as JSON: what differs is told apart, what is equal is found again."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fair_tta import FairTPT, Templates
from fair_tta._identity import adapter_settings, plain
from fair_tta.metrics import Over

LEVEL = 3


class Slotted:
    __slots__ = ("share",)

    def __init__(self, share: Any) -> None:
        self.share = share


class Quiet:
    def __init__(self, share: Any) -> None:
        self.share = share

    def __repr__(self) -> str:
        return "Quiet()"


def with_default(value: Any) -> Any:
    return lambda image, generator, s=value: s


def with_global(image: Any) -> Any:
    return LEVEL


def doubled(value: Any) -> Any:
    return [raised(one) for one in [value]]


def raised(value: Any) -> Any:
    return value + LEVEL


class Constant:
    strength = 0.5

    def adapt(self, value: Any) -> Any:
        return doubled(value * self.strength)


class Opaque:
    def __init__(self, share: Any) -> None:
        self.share = share

    def views(self) -> None:
        """A bound method may be a setting too."""


def held(value: Any) -> Any:
    return lambda image, generator: [image, value]


def test_settings_are_plain_json() -> None:
    assert plain(float("inf")) == "inf"
    assert plain(Over.SENSITIVE) == "Over.SENSITIVE"
    assert plain(np.float64(0.5)) == 0.5
    assert plain(np.int64(3)) == 3
    assert plain({1: (True, None)}) == {"1": [True, None]}
    assert plain(held)["name"] == "held"
    assert plain(torch.optim.AdamW) == "torch.optim.adamw.AdamW"
    described = adapter_settings(FairTPT(lam=float("inf")))
    assert described["settings"]["lam"] == "inf"
    assert described["repr"].startswith("FairTPT(lam=inf")
    assert adapter_settings(object())["name"] == "object"


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (Opaque(1), Opaque(1), Opaque(2)),
        (Opaque(Opaque(1)), Opaque(Opaque(1)), Opaque(Opaque(2))),
        (Opaque(1).views, Opaque(1).views, Opaque(2).views),
        (held(1), held(1), held(2)),
        (held, held, Opaque.views),
        (partial(held, 1), partial(held, 1), partial(held, 2)),
        (partial(held, value=1), partial(held, value=1), partial(held, value=2)),
        (partial(dict, args=1), partial(dict, args=1), partial(dict, args=2)),
        (with_default(1), with_default(1), with_default(2)),
        (Slotted(1), Slotted(1), Slotted(2)),
        (Quiet(1), Quiet(1), Quiet(2)),
        ({"a", "b"}, {"b", "a"}, {"a", "c"}),
        ({0, 8}, {8, 0}, {0, 16}),  # 0 and 8 fall together: the first to come stands first
        (frozenset([0, 8]), frozenset([8, 0]), {0, 8}),
        (nn.Dropout(0.1), nn.Dropout(0.1), nn.Dropout(0.2)),
        (Image.new("L", (2, 3)), Image.new("L", (2, 3)), Image.new("L", (3, 2))),
        (torch.zeros(2), torch.zeros(2), torch.ones(2)),
        (np.zeros(2), np.zeros(2), np.ones(2)),
        (Image.new("L", (2, 2)), Image.new("L", (2, 2)), Image.new("L", (2, 2), 1)),
        (
            Templates.from_sentence("a {target}"),
            Templates.from_sentence("a {target}"),
            Templates.from_sentence("the {target}"),
        ),
    ],
)
def test_what_differs_is_told_apart(one: Any, same: Any, other: Any) -> None:
    assert json.dumps(plain(one)) == json.dumps(plain(same)) != json.dumps(plain(other))


def test_models_are_known_by_their_weights() -> None:
    one = nn.Linear(2, 2)
    other = nn.Linear(2, 2)
    assert plain(held(one)) == plain(held(one)) != plain(held(other))


def test_circles_end() -> None:
    circle = Opaque(None)
    circle.share = circle
    json.dumps(plain(circle))


def test_code_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plain(Opaque(1)), plain(with_global), plain(Opaque)
    monkeypatch.setattr(Opaque, "views", lambda self: 7)
    monkeypatch.setattr(f"{__name__}.LEVEL", 4)
    for old, new in zip(before, (plain(Opaque(1)), plain(with_global), plain(Opaque)), strict=True):
        assert old != new


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        (f"{__name__}.Constant.strength", 0.7),
        (f"{__name__}.doubled", lambda value: value),
        (f"{__name__}.raised", lambda value: value),
        (f"{__name__}.LEVEL", 4),
    ],
)
def test_what_a_class_uses_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, what: str, changed: Any
) -> None:
    before = plain(Constant())
    assert before == plain(Constant())
    monkeypatch.setattr(what, changed)
    assert before != plain(Constant())


def test_attributes_are_no_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plain(Constant())
    monkeypatch.setattr(f"{__name__}.strength", 3, raising=False)  # of the driver's script alone
    assert before == plain(Constant())


def test_an_empty_cell() -> None:
    def outer() -> Any:
        def inner() -> Any:
            return later

        described = plain(inner)
        later = 1
        return described, later

    json.dumps(outer())
