"""Methods as text, ``fair-tpt:lam=10+orthcali:lam=0``, from user files, and from fitted files.

A name, and after a colon its settings, which are the fields of the class; a setting of a setting
has a dot. ``+`` (or ``>>``) chains two. ``path/to/my_file.py:SoftVote`` is a user-defined method,
whose file is run. ``path/to/fitted.safetensors`` is what `FairTPTClassifier.save`, ``fair-tta fit``
or ``fair-tta mitigate`` has written, and so is ``reference=FILE`` as a setting.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import pickle
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from hashlib import sha256
from pathlib import Path, PureWindowsPath
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch

from fair_tta.errors import FairTTAError, suggest_name
from fair_tta.methods._base import Adapter, Chained, check_instance
from fair_tta.methods._fitting import FittedMethod, load_saved_method
from fair_tta.methods.corrections._association_correction import (
    AssociationCorrection,
)
from fair_tta.methods.corrections._balanced_head import BalancedHead
from fair_tta.methods.corrections._logit_balance import LogitBalance
from fair_tta.methods.field._bend_vlm import BendVLM
from fair_tta.methods.field._deyo import DeYO
from fair_tta.methods.field._entropy_baselines import MEMO, SAR, Tent
from fair_tta.methods.field._partial_projection import PartialProjection
from fair_tta.methods.field._perception_clip import PerceptionCLIP
from fair_tta.methods.field._roboshot import RoboShot
from fair_tta.methods.field._sage import SAGE
from fair_tta.methods.field._sem import SEM
from fair_tta.methods.field._seraser import DistortedViews, KLFromUniform, SEraser
from fair_tta.methods.field._tie import TIE, EpisodicTIE, TIEStar
from fair_tta.methods.field._ttr import TTR
from fair_tta.methods.field._umfc import UMFC
from fair_tta.methods.paper._fair_tpt import FairTPT, FairTPTMO
from fair_tta.methods.paper._orthcali import OrthCali
from fair_tta.methods.paper._tpt import TPT
from fair_tta.methods.paper._zero import Zero
from fair_tta.methods.paper._zero_shot import ZeroShot
from fair_tta.methods.tuning._losses import SLoss, SuperTSLoss, TSLoss
from fair_tta.methods.tuning._rates import ELRA, FixedRate

_CHOICES: tuple[dict[str, type[Any]], ...] = (
    {"elra": ELRA, "fixed": FixedRate},
    {"s": SLoss, "ts": TSLoss, "super-ts": SuperTSLoss},
    {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD, "adam": torch.optim.Adam},
    {"from-uniform": KLFromUniform},
    {"distorted": DistortedViews},
)


def read_settings(name: str, text: str) -> dict[str, str]:
    """``{"lam": "10", "rate.beta": "0.05"}``."""
    settings: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise FairTTAError(
                f"a setting of {name!r} is written 'name=value' (got {part!r})."
            )
        if key in settings:
            raise FairTTAError(f"the setting {key!r} of {name!r} came twice.")
        settings[key] = value
    return settings


def with_settings(name: str, default: Any, settings: Mapping[str, str]) -> Any:
    """A copy of `default` with other settings."""
    fields = {field.name: field for field in _settable(default)}
    values: dict[str, Any] = {}
    inner: dict[str, dict[str, str]] = {}
    for written, text in settings.items():
        key, dot, rest = written.partition(".")
        if key not in fields:
            allowed = (
                f"its settings are {', '.join(fields)}"
                if fields
                else "it has no settings"
            )
            raise FairTTAError(
                f"{name!r} has no setting {key!r}: {allowed}.{suggest_name(key, fields)}"
            )
        if dot:
            inner.setdefault(key, {})[rest] = text
            continue
        before = "" if fields[key].default is None else getattr(default, key)
        if fields[key].type in ("float", float) and isinstance(before, int):
            before = float(before)
        is_none = (
            fields[key].default is None and text == "none"
        )  # as `describe_settings` has it
        values[key] = None if is_none else _value(f"{name}:{key}", before, text)
    for key, deeper in inner.items():
        value = values.get(key, getattr(default, key))
        if not dataclasses.is_dataclass(value):
            raise FairTTAError(
                f"the setting {key!r} of {name!r} has no settings of its own."
            )
        values[key] = with_settings(f"{name}:{key}", value, deeper)
    return dataclasses.replace(default, **values) if values else default


def describe_settings(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Settings of a class and their defaults, as they are written."""
    for field in _settable(kind):
        default = field.default
        yield field.name, _written(default)
        if dataclasses.is_dataclass(default):
            for inner in dataclasses.fields(default):
                yield (
                    f"{field.name}.{inner.name}",
                    _written(getattr(default, inner.name)),
                )


def _settable(method: Any) -> list[dataclasses.Field[Any]]:
    """The fields that can be written; functions, which are None by default, cannot."""
    fields = dataclasses.fields(method) if dataclasses.is_dataclass(method) else ()
    written = (
        f for f in fields if f.default is not None or str(f.type).startswith("str ")
    )
    return [field for field in written if field.init]


def _value(where: str, default: Any, text: str) -> Any:
    """Read a value of the kind that the default is of."""
    kind = default if isinstance(default, type) else type(default)
    for choices in _CHOICES:
        if kind in choices.values():
            if text not in choices:
                raise FairTTAError(
                    f"`{where}` should be one of {', '.join(choices)} (got {text}).",
                    argument=where,
                )
            return choices[text] if isinstance(default, type) else choices[text]()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise FairTTAError(
                f"`{where}` should be true or false (got {text}).", argument=where
            )
        return text.lower() == "true"
    kinds = {int: "a whole number", float: "a number", str: "a text"}
    if kind not in kinds:
        raise FairTTAError(
            f"`{where}` cannot be written (its default is {default!r}): choose it in Python.",
            argument=where,
        )
    try:
        return kind(text)
    except ValueError:
        raise FairTTAError(
            f"`{where}` should be {kinds[kind]} (got {text}).", argument=where
        ) from None


def _written(value: Any) -> str:
    for choices in _CHOICES:
        for name, kind in choices.items():
            if value is kind or type(value) is kind:
                return name
    if isinstance(value, float) and math.isfinite(value):
        return np.format_float_positional(value, trim="-")  # 0.00001, not 1e-05
    return str(value).lower()


_MODULE = "fair_tta_user_file_"  # and the SHA-256 of the content and of the path


def load_file(path: str, digest: str | None = None) -> ModuleType:
    """Run a user file, once for each content, which should have this SHA-256.

    Nothing is written beside it.
    """
    source = Path(path).read_bytes()
    found = sha256(source).hexdigest()
    if digest not in (None, found):
        raise FairTTAError(
            f"{path!r} was changed while it was in use: run the same command again."
        )
    name = f"{_MODULE}{found}_{sha256(os.fsencode(path)).hexdigest()}"
    if name not in sys.modules:
        module = sys.modules[name] = ModuleType(name)
        module.__file__ = path
        try:
            exec(compile(source, path, "exec", dont_inherit=True), vars(module))
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


class Packed:
    """Objects for another process, which runs the user files that define them first.

    Args:
        value: what to send, held as it is where no user file was run.
    """

    def __init__(self, value: Any) -> None:
        names = [name for name in sys.modules if name.startswith(_MODULE)]
        self._value = pickle.dumps(value) if names else value
        used = [name for name in names if name.encode() in self._value]
        self._files = [
            (
                str(sys.modules[name].__file__),
                name.removeprefix(_MODULE).partition("_")[0],
            )
            for name in used
        ]

    def unpack(self) -> Any:
        """The objects."""
        for path, digest in self._files:
            load_file(path, digest)
        return (
            pickle.loads(self._value) if isinstance(self._value, bytes) else self._value
        )


def load_user_method(path: Path, name: str) -> Any:
    """A user-defined adapter with its defaults.

    Args:
        path: of the file, which is run.
        name: in the file: an adapter, or a class or function that makes one without arguments.
    """
    if not os.path.isfile(path):
        raise FairTTAError(f"there is no file {str(path)!r}: check the path.")
    with _running(path.name, path):
        module = load_file(str(path))
    if not hasattr(module, name):
        offers = ", ".join(_candidates(module)) or "nothing with a method `adapt`"
        raise FairTTAError(
            f"{path.name!r} has no {name!r}: it has {offers}."
            if name
            else f"write what to take from {path.name!r} after a colon: it has {offers}."
        )
    what, found = f"{path.name}:{name}", getattr(module, name)
    if isinstance(found, type) or inspect.isroutine(found):
        with _running(what, path):
            found = found()
    try:
        return check_instance(found)
    except FairTTAError as error:
        raise FairTTAError(f"{what!r} is not a method: {error}") from None


@contextmanager
def _running(
    what: str, path: Path, passes: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Errors of a user file, but for those that pass, with the line where they come from."""
    try:
        yield
    except passes:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        line, text = None, str(error)
        if isinstance(error, SyntaxError):
            line, text = error.lineno, error.msg
        elif lines := [frame.lineno for frame in frames if frame.filename == str(path)]:
            line = lines[-1]
        place = "" if line is None else f", line {line}"
        raise FairTTAError(
            f"{what!r} cannot be run: {type(error).__name__}: {text} ({path}{place})."
        ) from error


def _candidates(module: ModuleType) -> list[str]:
    """What the file itself defines and looks like an adapter."""
    return [
        name
        for name, value in vars(module).items()
        if callable(getattr(value, "adapt", None))
        and (not isinstance(value, type) or value.__module__ == module.__name__)
    ]


ADAPTERS: dict[str, type[Any]] = {
    "zero-shot": ZeroShot,
    "sage": SAGE,
    "zero": Zero,
    "memo": MEMO,
    "sar": SAR,
    "tent": Tent,
    "ttr": TTR,
    "umfc": UMFC,
    "tpt": TPT,
    "seraser": SEraser,
    "deyo": DeYO,
    "association-correction": AssociationCorrection,
    "episodic-tie": EpisodicTIE,
    "orthcali": OrthCali,
    "partial-projection": PartialProjection,
    "perception-clip": PerceptionCLIP,
    "roboshot": RoboShot,
    "sem": SEM,
    "bend-vlm": BendVLM,
    "logit-balance": LogitBalance,
    "balanced-head": BalancedHead,
    "tie": TIE,
    "tie-star": TIEStar,
    "fair-tpt": FairTPT,
    "fair-tpt-mo": FairTPTMO,
}
"""Every method by its name on the command line; what needs least comes first."""

_PATH = r"(?:[A-Za-z]:[\\/])?[^,=+:]*\.py"
_CHAIN = re.compile(
    rf"(>>|\+(?=\s*(?:(?:{'|'.join(ADAPTERS)})\s*(?:[:+>]|$)|{_PATH}\s*(?::|$))))"
)  # a plus may also stand in a number or in the path of a reference
_REFERENCE = re.compile(r"[:,]\s*reference\s*=\s*([^,]+)")
_SAVED = ".safetensors"
_FILE = re.compile(
    r"((?:[A-Za-z]:[\\/])?[^:]*\.py)\s*(?::([^:]*))?(?::(.*))?", re.DOTALL
)


def parse_adapter(text: str, folder: Path = Path()) -> Adapter:
    """Make an adapter from text.

    Args:
        text: what was written.
        folder: what paths of files are relative to.

    Example:
        >>> parse_adapter("fair-tpt:lam=10,rate.beta=0.05").rate.beta
        0.05
        >>> type(parse_adapter("fair-tpt+orthcali:lam=0")).__name__
        'Chained'
    """
    first, *others = (_one(stage, folder) for stage in _CHAIN.split(text)[::2])
    adapter: Adapter = reduce(Chained, others, first)
    return adapter


AnyAdapter: TypeAlias = Adapter | str | os.PathLike[str]
"""A method, its name on the command line, or the path of a saved one."""

Adapters: TypeAlias = Iterable[AnyAdapter] | Mapping[str, AnyAdapter]
"""Methods in any of these ways, or these by name."""


def resolve_adapter(adapter: Any) -> Any:
    """Return the method of a text, as on the command line but for user files, or of a path."""
    if isinstance(adapter, os.PathLike):
        return load_adapter(adapter)
    if not isinstance(adapter, str):
        return adapter
    if any(_FILE.fullmatch(stage.strip()) for stage in _CHAIN.split(adapter)[::2]):
        raise FairTTAError(
            f"`adapter` as a text should name a method of this library (got {adapter!r}): import "
            "the file and pass the object.",
            argument="adapter",
        )
    return parse_adapter(adapter)


def parse_adapters(texts: Sequence[str]) -> dict[str, Adapter]:
    """Make adapters from lists with commas, by `short_name`.

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
    names = [short_name(part) for part in parts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FairTTAError(f"adapters should differ ({twice} came twice).")
    if not parts:
        raise FairTTAError(f"at least one adapter is needed: {', '.join(ADAPTERS)}.")
    return {name: parse_adapter(part) for name, part in zip(names, parts, strict=True)}


def short_name(text: str) -> str:
    """What an adapter is called in results: as it is written, without the folders of files.

    Example:
        >>> short_name("tpt+/home/me/stages.py:Sharper:factor=3")
        'tpt+stages.py:Sharper:factor=3'
    """

    def short(piece: str) -> str:
        file = _FILE.fullmatch(piece.strip())
        found = [file[1]] if file else []
        if piece.strip().endswith(_SAVED) and "=" not in piece:
            found.append(piece.strip())
        for path in (*found, *_REFERENCE.findall(piece)):
            piece = piece.replace(path, PureWindowsPath(path).name, 1)
        return piece

    return "".join(map(short, _CHAIN.split(text)))


def _one(text: str, folder: Path) -> Any:
    file = _FILE.fullmatch(text.strip())
    if file:
        path = Path(os.path.abspath(folder / os.path.expanduser(file[1])))
        name = (file[2] or "").strip()
        default, what = load_user_method(path, name), f"{path.name}:{name}"
        with _running(what, path, (FairTTAError,)):
            return _set(what, default, file[3] or "", folder)
    if text.strip().endswith(_SAVED) and "=" not in text:
        return load_adapter(folder / os.path.expanduser(text.strip()))
    name, _, settings = (part.strip() for part in text.partition(":"))
    if name not in ADAPTERS:
        file_of_method = folder / os.path.expanduser(text.strip())
        if os.path.isfile(file_of_method):  # saved under a name of the user's choice
            return load_adapter(file_of_method)
        raise FairTTAError(
            f"there is no adapter {name!r}: choose from {', '.join(ADAPTERS)}, a saved one, "
            f"'fitted.safetensors', or a class of a file, 'my_file.py:MyMethod'."
            f"{suggest_name(name, ADAPTERS)}"
        )
    return _set(name, ADAPTERS[name](), settings, folder)


def _set(name: str, default: Any, text: str, folder: Path) -> Any:
    """A method with settings, and with what it has learnt if that is among them."""
    settings = read_settings(name, text)
    if "reference" not in settings or not isinstance(default, FittedMethod):
        return with_settings(name, default, settings)
    file = folder / os.path.expanduser(settings.pop("reference"))
    method = with_settings(name, load_adapter(file, type(default)), settings)
    method._check_fitted()
    return method


def load_adapter(path: str | os.PathLike[str], *classes: type[Any]) -> Any:
    """Return the method of a file that `FairTPTClassifier.save` or a command has written.

    The file says which method it is. No code is run: of other classes than those of this library,
    or those that are named, a file is refused.

    Args:
        path: of the file.
        classes: what it may be of, such as a class of your own; any method of this library if none.

    Raises:
        FairTTAError: there is no such file, it is damaged, or not of such a method.
    """
    return load_saved_method(path, classes or ADAPTERS.values())
