"""Arguments that are not numbers are refused where they are given."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import pytest
import torch
from checks import TARGETS

import fair_tta
import fair_tta.extend
from fair_tta import FairTPTClassifier, FairTTAError
from fair_tta.errors import check_number


def settings() -> list[Any]:
    """(class, field) of each number among the settings of strategies, which all have defaults."""
    public = {
        getattr(module, name)
        for module in (fair_tta, fair_tta.methods, fair_tta.extend)
        for name in module.__all__
    }
    return [
        pytest.param(error_class, field.name, id=f"{error_class.__name__}-{field.name}")
        for error_class in sorted(public, key=str)
        if isinstance(error_class, type)
        and is_dataclass(error_class)
        and ".metrics." not in error_class.__module__
        for field in fields(error_class)
        if field.type == "float"
        and all(f.default is not MISSING for f in fields(error_class) if f.init)
    ]


def test_there_are_settings_to_look_at() -> None:
    assert {p.values[0].__name__ for p in settings()} >= {
        "FairTPT",
        "AugMix",
        "ELRA",
        "OrthCali",
    }


@pytest.mark.parametrize(("adapter_class", "name"), settings())
def test_a_setting_that_is_not_a_number_is_refused(
    adapter_class: Any, name: str
) -> None:
    for value in ("1", float("nan")):
        with pytest.raises(FairTTAError, match=f"`{name}` should ") as caught:
            adapter_class(**{name: value})
        assert f"(got {value!r})." in str(caught.value)
        assert caught.value.argument == name


@pytest.mark.parametrize("value", [None, [1.0], 1j])
def test_what_is_not_a_number_is_refused(value: Any) -> None:
    with pytest.raises(FairTTAError, match="`x` should be above 0"):
        check_number("x", value, "be above 0", lambda x: x > 0)


def test_the_argument_of_an_error() -> None:
    error = FairTTAError("`targets` should ...", argument="targets")
    assert error.argument == "targets"
    assert FairTTAError("`targets` are only mentioned").argument is None


@pytest.mark.parametrize("scale", ["100", [1.0], torch.ones(2), 0, float("inf")])
def test_scale(scale: Any) -> None:
    with pytest.raises(FairTTAError, match="`scale` should be a positive number"):
        FairTPTClassifier("miniature", TARGETS, scale=scale)


def test_the_scale_of_a_model_is_a_number() -> None:
    clf = FairTPTClassifier("miniature", TARGETS, scale=torch.tensor(50.0))  # type: ignore[arg-type]
    assert clf._task.scale == 50


@pytest.mark.parametrize("value", [1, 1.0, True])
def test_numbers_that_fit_pass(value: Any) -> None:
    check_number("x", value, "be above 0", lambda x: x > 0)
    with pytest.raises(FairTTAError, match=r"^`x` should be below 0 \(got "):
        check_number("x", value, "be below 0", lambda x: x < 0)
