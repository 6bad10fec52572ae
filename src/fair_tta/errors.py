"""What fair-tta raises when the input, not the code, is at fault, or a package is missing."""

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
    """Base class: catch it to catch everything fair-tta raises on purpose."""

    def __init__(self, *texts: object, argument: str | None = None) -> None:
        super().__init__(*texts)
        self._argument = argument

    @property
    def argument(self) -> str | None:
        """The argument at fault, None if no argument is."""
        return self._argument

    def _named(self, names: Mapping[str, str]) -> str:
        """The message with other names for arguments, such as those of options.

        Example:
            >>> FairTTAError("`model='x'` could not be loaded.")._named({"model": "--model"})
            "`--model 'x'` could not be loaded."
        """
        text = str(self)
        for name, other in names.items():
            for end, then in ("`", "`"), ("=", " "), (" ", " "):
                text = text.replace(f"`{name}{end}", f"`{other}{then}")
        return text


class ImageError(FairTTAError):
    """An image could not be read. The message has the path (if there is one) and the reason."""


class PromptError(FairTTAError):
    """Template or names cannot be made into prompts for this model."""


class ModelError(FairTTAError):
    """The object passed as `model` cannot be used, or its processor or tokenizer is missing."""


class TowerError(ModelError):
    """A tower does not let embeddings or weights be replaced, or has no features of patches."""


class DatasetError(FairTTAError):
    """A dataset on disk is missing, is not what it should be, or holds nothing that can be used.

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
    """Some answers are none of the classes; they count as wrong."""


def near(name: str, names: Collection[str]) -> str:
    """A sentence with what may be meant by a name that is not one of these; empty if none is near.

    Example:
        >>> near("fair-ttp", ["fair-tpt", "zero"])
        " Did you mean 'fair-tpt'?"
    """
    from difflib import get_close_matches  # commands that succeed do not wait for it

    folded = {other.lower(): other for other in names}
    found = get_close_matches(name.lower(), folded, 1)
    return (
        f" Did you mean {folded[found[0]]!r}?"
        if found and folded[found[0]] != name
        else ""
    )


def check_number(
    name: str, value: Any, should: str, fits: Callable[[Any], bool]
) -> None:
    """Raise unless an argument is a number that fits; it `should`, say, "lie in [0, 1]"."""
    if not isinstance(value, Real) or not fits(value):
        raise FairTTAError(f"`{name}` should {should} (got {value!r}).", argument=name)


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise unless an argument is a whole number, not below `least`."""
    should = f"be a whole number from {least} on"
    check_number(
        name, value, should, lambda x: isinstance(x, Integral) and int(x) >= least
    )


def require(module: str, extra: str) -> Any:
    """Import an optional module, or say which pip line installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs the package {module.partition('.')[0]!r}: pip install 'fair-tta[{extra}]'"
        ) from error
