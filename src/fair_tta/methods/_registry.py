"""Methods as text, ``fair-tpt:lam=10+orthcali:lam=0``, from user files, and from saved files.

A name, and after a colon its settings, which are the fields of the class; a setting of a setting
has a dot. ``+`` (or ``>>``) chains two. ``path/to/my_file.py:SoftVote`` is a user-defined method,
whose file is run. ``path/to/fitted.safetensors`` was written by `FairTPTClassifier.save`,
``fair-tta fit`` or ``fair-tta mitigate``, and so was ``reference=FILE`` as a setting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, TypeAlias

from fair_tta.errors import FairTTAError, suggest_name
from fair_tta.methods._base import Adapter, Chained
from fair_tta.methods._fitting import FittedMethod, load_saved_method
from fair_tta.methods._settings import split_settings, with_settings
from fair_tta.methods._user_files import load_user_method, user_code
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
from fair_tta.methods.field._seraser import SEraser
from fair_tta.methods.field._tie import TIE, EpisodicTIE, TIEStar
from fair_tta.methods.field._ttr import TTR
from fair_tta.methods.field._umfc import UMFC
from fair_tta.methods.paper._fair_tpt import FairTPT, FairTPTMO
from fair_tta.methods.paper._orthcali import OrthCali
from fair_tta.methods.paper._tpt import TPT
from fair_tta.methods.paper._zero import Zero
from fair_tta.methods.paper._zero_shot import ZeroShot

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
"""Every method by its name on the command line; those with the fewest needs come first."""

# The path of a Python file, which may begin with a Windows drive, and the file as a method:
# ``path.py:Class:settings``.
_PATH = r"(?:[A-Za-z]:[\\/])?[^,=+:]*\.py"
_FILE = re.compile(
    r"(?P<path>(?:[A-Za-z]:[\\/])?[^:]*\.py)\s*(?::(?P<name>[^:]*))?(?::(?P<settings>.*))?",
    re.DOTALL,
)
# A plus may also stand in a number or in a path, so it is a separator only before a method.
_CHAIN = re.compile(
    rf"(>>|\+(?=\s*(?:(?:{'|'.join(ADAPTERS)})\s*(?:[:+>]|$)|{_PATH}\s*(?::|$))))"
)
_REFERENCE = re.compile(r"[:,]\s*reference\s*=\s*([^,]+)")
_SAVED_SUFFIX = ".safetensors"


def _chain_parts(text: str) -> list[str]:
    """Return the methods of a chain."""
    # `split` returns the separators between them, too.
    return _CHAIN.split(text)[::2]


def parse_adapter(text: str, folder: Path = Path()) -> Adapter:
    """Return the adapter that a text describes.

    Args:
        text: as on the command line.
        folder: what paths of files are relative to.

    Example:
        >>> parse_adapter("fair-tpt:lam=10,rate.beta=0.05").rate.beta
        0.05
        >>> type(parse_adapter("fair-tpt+orthcali:lam=0")).__name__
        'Chained'
    """
    methods = [_parse_method(part, folder) for part in _chain_parts(text)]
    adapter: Any = methods[0]
    for method in methods[1:]:
        adapter = Chained(adapter, method)
    checked: Adapter = adapter
    return checked


AnyAdapter: TypeAlias = Adapter | str | os.PathLike[str]
"""A method, its name on the command line, or the path of a saved one."""

Adapters: TypeAlias = Iterable[AnyAdapter] | Mapping[str, AnyAdapter]
"""Methods in any of these ways, or these by name."""


def resolve_adapter(adapter: Any) -> Any:
    """Return the method of a text or of a path; texts may not name user files here."""
    if isinstance(adapter, os.PathLike):
        return load_adapter(adapter)
    if not isinstance(adapter, str):
        return adapter
    # Strings in Python never run foreign code (SECURITY.md); only the command line does.
    if any(_FILE.fullmatch(part.strip()) for part in _chain_parts(adapter)):
        raise FairTTAError(
            f"`adapter` as a text should name a method of this library (got {adapter!r}): import "
            "the file and pass the object.",
            argument="adapter",
        )
    return parse_adapter(adapter)


def parse_adapters(texts: Sequence[str]) -> dict[str, Adapter]:
    """Return adapters from lists with commas, by `short_name`.

    Example:
        >>> list(parse_adapters(["zero-shot,fair-tpt:lam=10,rho=0.5", "tpt"]))
        ['zero-shot', 'fair-tpt:lam=10,rho=0.5', 'tpt']
    """
    methods: list[str] = []
    for text in texts:
        for part in text.split(","):
            part = part.strip()
            is_setting = re.match(r"[\w.]+\s*=", part) is not None
            if is_setting and methods:
                methods[-1] += f",{part}"
            elif part:
                methods.append(part)
    if not methods:
        raise FairTTAError(f"at least one adapter is needed: {', '.join(ADAPTERS)}.")
    names = [short_name(method) for method in methods]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise FairTTAError(f"adapters should differ ({repeated} came twice).")
    adapters = [parse_adapter(method) for method in methods]
    return dict(zip(names, adapters, strict=True))


def short_name(text: str) -> str:
    """Return the name of an adapter in results: its text without the folders of files.

    Example:
        >>> short_name("tpt+/home/me/stages.py:Sharper:factor=3")
        'tpt+stages.py:Sharper:factor=3'
    """
    return "".join(_without_folders(part) for part in _CHAIN.split(text))


def _without_folders(method: str) -> str:
    """Return the text of one method with file names instead of paths."""
    paths = _REFERENCE.findall(method)
    user_file = _FILE.fullmatch(method.strip())
    if user_file:
        paths.insert(0, user_file["path"])
    elif _is_saved_file(method):
        paths.insert(0, method.strip())
    for path in paths:
        # A Windows path has both kinds of slashes, a POSIX path one of them.
        method = method.replace(path, PureWindowsPath(path).name, 1)
    return method


def _is_saved_file(method: str) -> bool:
    """Return whether a text is the path of a saved method, and not a setting with one."""
    return method.strip().endswith(_SAVED_SUFFIX) and "=" not in method


def _parse_method(text: str, folder: Path) -> Any:
    """Return the method of a text without ``+``."""
    text = text.strip()
    user_file = _FILE.fullmatch(text)
    if user_file:
        return _parse_user_method(user_file, folder)
    name, _, settings = text.partition(":")
    name = name.strip()
    if name in ADAPTERS and not _is_saved_file(text):
        return _with_settings_and_reference(name, ADAPTERS[name](), settings, folder)

    # A saved method may have any file name, but not that of a method.
    file = folder / os.path.expanduser(text)
    if _is_saved_file(text) or os.path.isfile(file):
        return load_adapter(file)
    raise FairTTAError(
        f"there is no adapter {name!r}: choose from {', '.join(ADAPTERS)}, a saved one, "
        f"'fitted.safetensors', or a class of a file, 'my_file.py:MyMethod'."
        f"{suggest_name(name, ADAPTERS)}"
    )


def _parse_user_method(user_file: re.Match[str], folder: Path) -> Any:
    """Return the method of a text that matches ``path.py:name:settings``.

    The name is that of an adapter, of its class, or of a function that returns one. Without a name
    the error names what the file offers.
    """
    path = Path(os.path.abspath(folder / os.path.expanduser(user_file["path"])))
    name = (user_file["name"] or "").strip()
    settings = user_file["settings"] or ""
    default = load_user_method(path, name)
    title = f"{path.name}:{name}"
    with user_code(title, path, let_through=(FairTTAError,)):
        return _with_settings_and_reference(title, default, settings, folder)


def _with_settings_and_reference(
    name: str, default: Any, text: str, folder: Path
) -> Any:
    """Return a method with settings, one of which may be the file of its reference."""
    settings = split_settings(name, text)
    if "reference" not in settings or not isinstance(default, FittedMethod):
        return with_settings(name, default, settings)
    file = folder / os.path.expanduser(settings.pop("reference"))
    method = with_settings(name, load_adapter(file, type(default)), settings)
    # A setting that the fit depends on may now be another one.
    method._check_fitted()
    return method


def load_adapter(path: str | os.PathLike[str], *classes: type[Any]) -> Any:
    """Return the method in a file that `FairTPTClassifier.save` or a command has written.

    The file names its method. No code is run: a file is refused unless its method is one of this
    library, or one of `classes`.

    Args:
        path: of the file.
        classes: classes that the method may have, such as your own; if there are none, any method
            of this library is loaded.

    Raises:
        FairTTAError: there is no such file, it is damaged, or it holds another method.
    """
    return load_saved_method(path, classes or ADAPTERS.values())
