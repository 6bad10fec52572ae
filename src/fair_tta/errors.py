"""Errors and warnings about the input, and the checks that raise them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from numbers import Integral, Real
from typing import Any

__all__ = [
    "DatasetError",
    "FeatureMismatchWarning",
    "ImageError",
    "ModelError",
    "PromptError",
    "SmallGroupWarning",
    "SmallReferenceWarning",
    "TowerError",
    "UnknownAnswerWarning",
]


class FairTTAError(ValueError):
    """Base class of everything fair-tta raises on purpose."""

    def __init__(self, *texts: object, argument: str | None = None) -> None:
        super().__init__(*texts)
        self._argument = argument

    @property
    def argument(self) -> str | None:
        """The argument at fault, None if no argument is."""
        return self._argument

    def _named(self, names: Mapping[str, str]) -> str:
        """Return the message with other names for arguments, such as those of options.

        Example:
            >>> FairTTAError("`model='x'` could not be loaded.")._named({"model": "--model"})
            "`--model 'x'` could not be loaded."
        """
        text = str(self)
        for argument, option in names.items():
            text = text.replace(f"`{argument}`", f"`{option}`")
            text = text.replace(f"`{argument} ", f"`{option} ")
            text = text.replace(f"`{argument}=", f"`{option} ")
        return text


class ImageError(FairTTAError):
    """An image could not be read; the message has its path, if there is one, and the reason."""


class PromptError(FairTTAError):
    """A template or names cannot be made into prompts for this model."""


class ModelError(FairTTAError):
    """The object passed as `model` cannot be used, or its processor or tokenizer is missing."""


class TowerError(ModelError):
    """A tower does not let embeddings or weights be replaced, or has no features of patches."""


class DatasetError(FairTTAError):
    """A dataset on disk is missing, damaged, or holds nothing that can be used.

    Args:
        text: what is wrong.
        short: the same on one line, if it is not the first of `text`.
    """

    def __init__(
        self, text: str, short: str = "", *, argument: str | None = None
    ) -> None:
        super().__init__(text, argument=argument)
        self.short = short or text.partition("\n")[0]


class SmallGroupWarning(UserWarning):
    """A figure rests on a group with few images."""


class SmallReferenceWarning(UserWarning):
    """A method was fitted on few images."""


class FeatureMismatchWarning(UserWarning):
    """Stored features do not seem to come from the model of the text features."""


class UnknownAnswerWarning(UserWarning):
    """Some answers are not among the classes; they count as wrong."""


def suggest_name(name: str, names: Collection[str]) -> str:
    """Return a sentence with the nearest of the known names; empty if none is near.

    Example:
        >>> suggest_name("fair-ttp", ["fair-tpt", "zero"])
        " Did you mean 'fair-tpt'?"
    """
    # Imported here, because commands that succeed should not wait for it.
    from difflib import get_close_matches

    spellings = {known.lower(): known for known in names}
    matches = get_close_matches(name.lower(), spellings, 1)
    if not matches or spellings[matches[0]] == name:
        return ""
    return f" Did you mean {spellings[matches[0]]!r}?"


def check_number(
    name: str, value: Any, should: str, fits: Callable[[Any], bool]
) -> None:
    """Raise unless an argument is a number that fits; `should` is, say, "lie in [0, 1]"."""
    if not isinstance(value, Real) or not fits(value):
        raise FairTTAError(f"`{name}` should {should} (got {value!r}).", argument=name)


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise unless an argument is an integer that is not below `least`."""

    def is_count(number: Any) -> bool:
        return isinstance(number, Integral) and int(number) >= least

    check_number(name, value, f"be an integer >= {least}", is_count)


def require(module: str, extra: str) -> Any:
    """Import an optional module, or raise an error with the pip line that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs the package {package!r}: pip install 'fair-tta[{extra}]'"
        ) from error
