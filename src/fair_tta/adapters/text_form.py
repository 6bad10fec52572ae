"""Adapters as text: ``fair-tpt:lam=10,rate.beta=0.05+orthcali:lam=0``.

A name, and after a colon its settings, which are the fields of the class. A setting of a setting
has a dot. ``+`` (or ``>>``, which a shell must be kept from reading) chains two. The name of a
method is that of its file in `fair_tta.adapters`; ``path/to/my_file.py:SoftVote`` is one of a file
of your own, which is run. Of a method that is fitted ``reference=FILE`` is what its `save` or
``fair-tta fit`` has written, and what else is written changes the settings in the file.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from fair_tta import adapters
from fair_tta.adapters import Adapter, Chained
from fair_tta.adapters.checks import check_fitted
from fair_tta.adapters.contract import needs_pixels
from fair_tta.adapters.fitting import FittedMethod
from fair_tta.adapters.own_files import cannot_run, load_own
from fair_tta.adapters.setting_values import read_settings, with_settings
from fair_tta.errors import FairTTAError


def _methods() -> dict[str, type[Any]]:
    """What `fair_tta.adapters` exports and has defaults; what needs least comes first."""
    found: dict[str, Any] = {}
    for kind in (getattr(adapters, name) for name in adapters.__all__):
        if not dataclasses.is_dataclass(kind) or not hasattr(kind, "adapt"):
            continue
        fields = dataclasses.fields(kind)
        if not any(f.default is f.default_factory is dataclasses.MISSING for f in fields):
            found[kind.__module__.rpartition(".")[2].replace("_", "-")] = kind

    def needs(name: str) -> tuple[bool, bool, bool, bool, bool, bool, str]:
        one = found[name]()
        reference, pixels = getattr(one, "needs_reference", False), needs_pixels(one)
        tuned = one.needs_prompt_gradient
        first = name != "zero-shot"
        return one.needs_sensitive, tuned, reference, pixels, one.needs_views, first, name

    return {name: found[name] for name in sorted(found, key=needs)}


ADAPTERS = _methods()
"""Every method by its name on the command line and in tables of one's own."""

_CHAIN = r">>|\+(?=\s*(?:[A-Za-z]|[^,=+:]*\.py\s*(?::|$)))"
_REFERENCE = re.compile(r"[:,]\s*reference\s*=\s*([^,]+)")
_IN_REFERENCE = re.compile(rf"{_REFERENCE.pattern}$")
_FILE = re.compile(r"((?:[A-Za-z]:[\\/])?[^:]*\.py)\s*(?::([^:]*))?(?::(.*))?", re.DOTALL)


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
    first, *others = _stages(text)
    adapter = _one(first, folder)
    for other in others[1::2]:
        if not hasattr(adapter, "find_texts"):
            raise FairTTAError(f"nothing can come after {first.strip()!r} (got {text!r}).")
        adapter = Chained(adapter, _one(other, folder))
    checked: Adapter = adapter
    return checked


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
        for path in (*found, *_REFERENCE.findall(piece)):
            piece = piece.replace(path, PureWindowsPath(path).name, 1)
        return piece

    return "".join(map(short, _stages(text)))


def _stages(text: str) -> list[str]:
    """The methods of a chain with the signs between them; a sign in a reference's path is none."""
    first, *others = re.split(f"({_CHAIN})", text)
    stages = [first]
    for sign, other in zip(others[::2], others[1::2], strict=True):
        is_method = other.partition(":")[0].strip() in ADAPTERS or _FILE.fullmatch(other.strip())
        if sign == "+" and _IN_REFERENCE.search(stages[-1]) and not is_method:
            stages[-1] += sign + other
        else:
            stages += [sign, other]
    return stages


def _one(text: str, folder: Path) -> Any:
    file = _FILE.fullmatch(text.strip())
    if "\0" in text:
        raise FairTTAError(f"an adapter has no null characters in its name (got {text!r:.80}).")
    if file:
        path, name = (folder / os.path.expanduser(file[1])).resolve(), (file[2] or "").strip()
        return _own(path, name, file[3] or "", folder)
    name, _, settings = (part.strip() for part in text.partition(":"))
    if name not in ADAPTERS:
        raise FairTTAError(
            f"there is no adapter {name!r}: choose from {', '.join(ADAPTERS)}, or a class of a "
            "file of your own, 'my_file.py:MyMethod'."
        )
    return _set(name, ADAPTERS[name](), settings, folder)


def _set(name: str, default: Any, text: str, folder: Path) -> Any:
    """A method with settings, and with what it has learnt if that is among them."""
    settings = read_settings(name, text)
    if "reference" not in settings or not isinstance(default, FittedMethod):
        return with_settings(name, default, settings)
    file = folder / os.path.expanduser(settings.pop("reference"))
    method = with_settings(name, type(default).load(file), settings)
    check_fitted(method)
    return method


def _own(path: Path, name: str, settings: str, folder: Path) -> Any:
    what = f"{path.name}:{name}"
    default = load_own(path, name)
    try:
        return _set(what, default, settings, folder)
    except FairTTAError:
        raise
    except Exception as error:
        raise cannot_run(what, path, error) from error
