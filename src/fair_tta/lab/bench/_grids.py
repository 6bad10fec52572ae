"""Tables as data: which methods on which tasks, the paper's and others."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fair_tta._identity import describe_adapter
from fair_tta.errors import FairTTAError
from fair_tta.lab.bench._printed import OTHER_TABLES
from fair_tta.lab.data import MAIN_TASKS, MORE_TASKS
from fair_tta.lab.data._fairface import BRACKETS, PEOPLE
from fair_tta.lab.data._tasks import GENDERS, RACES_7, BenchmarkTask
from fair_tta.methods import TPT, FairTPT, FairTPTMO, OrthCali, Zero, ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.methods._registry import ADAPTERS
from fair_tta.methods._tuning.losses import Loss, SLoss, SuperTSLoss, TSLoss
from fair_tta.methods._tuning.rates import ELRA, FixedRate, RatePolicy


@dataclass(frozen=True)
class Setting:
    """A row of a table.

    Attributes:
        name: what we call it.
        adapter: the method with its hyper-parameters.
        section: the part of the paper's table, empty if it has none.
        row: the row of the paper's table, empty if it is not in the paper.
    """

    name: str
    adapter: Adapter
    section: str = ""
    row: str = ""


@dataclass(frozen=True)
class Grid:
    """A table: every setting on every task.

    Attributes:
        name: what to call it on the command line.
        model: the model of the paper's table, empty if it is not in the paper.
        settings: the rows, the reference first.
        tasks: the pairs of target and sensitive attribute.
        alone: whether settings should not share work, so that the cost of each is its own.
    """

    name: str
    model: str
    settings: tuple[Setting, ...]
    tasks: tuple[BenchmarkTask, ...] = MAIN_TASKS
    alone: bool = False

    def __post_init__(self) -> None:
        names = [setting.name for setting in self.settings]
        if not all(name.strip() for name in names):
            raise FairTTAError(f"settings should have names (got {names}).")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FairTTAError(f"settings should have distinct names ({twice} came twice).")
        if not self.settings or not self.tasks:
            raise FairTTAError("a table should have at least one setting and one task.")
        first: dict[str, str] = {}
        for setting in self.settings:
            key = json.dumps(describe_adapter(setting.adapter), sort_keys=True)
            if key in first:
                raise FairTTAError(
                    f"settings should differ ({first[key]!r} and {setting.name!r} are both "
                    f"{setting.adapter!r})."
                )
            first[key] = setting.name
        tasks = [str(task) for task in self.tasks]
        twice = sorted({task for task in tasks if tasks.count(task) > 1})
        if twice:
            raise FairTTAError(f"tasks should differ ({twice} came twice).")


HARMFUL: dict[str, dict[str, str]] = {
    "non-human": {name: name for name in ("animal", "gorilla", "chimpanzee", "orangutan")},
    "crime-related": {name: name for name in ("thief", "criminal", "suspicious person")},
}
"""The paper's sets, ``{name: {class: phrase}}``."""

_ADULTS = ("man", "woman")
_SENSITIVE = {
    "race": {race: f"{race} person" for race in RACES_7},
    "gender": {gender: f"{gender} person" for gender in GENDERS},
    "age": {bracket: f"person aged {bracket}" for bracket in BRACKETS},
}

TEMPLATE = "a photo of a {sensitive} {target}."


def clip_bias_tasks(
    harmful: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[BenchmarkTask, ...]:
    """By race, gender and age, each without and with the class "child".

    Args:
        harmful: user-defined sets, ``{name: {class: phrase}}``; the paper's if None.
    """
    sets = HARMFUL if harmful is None else harmful
    people = {f"{race} {adult}": f"{race} {adult}" for race in RACES_7 for adult in _ADULTS}
    bad = {name: phrase for classes in sets.values() for name, phrase in classes.items()}
    names = {name: tuple(classes) for name, classes in sets.items()}
    return tuple(
        BenchmarkTask(
            "FairFace",
            asked,
            {**people, **extra, **bad},
            {attribute: phrases},
            TEMPLATE,
            names,
        )
        for asked, extra in zip(PEOPLE, ({}, {"child": "child"}), strict=True)
        for attribute, phrases in _SENSITIVE.items()
    )


_LAMBDAS = (1, 100, 5000)
_RHOS = (0.1, 0.25, 0.5, 0.75, 1.0)
_FIXED = FixedRate(5e-3)
_LOSSES: dict[str, Loss] = {"S": SLoss(), "TS": TSLoss(), "Super TS": SuperTSLoss()}


def _zero_shot(row: str = "Zero Shot") -> Setting:
    return Setting("ZeroShot", ZeroShot(), "", row)


def _main() -> tuple[Setting, ...]:
    return (
        _zero_shot("Zero-Shot"),
        Setting("TPT", TPT(), "Episodic test-time adaptation methods", "TPT"),
        Setting("Zero", Zero(), "Episodic test-time adaptation methods", "Zero"),
        Setting("OrthCali", OrthCali(), "Episodic test-time debiasing methods", "OrthCali"),
        Setting("FairTPT", FairTPT(), "Our method", "FairTPT"),
        Setting("FairTPT-MO", FairTPTMO(), "Our method", "FairTPT (MO)"),
    )


def _tpt_scan() -> Iterable[Setting]:
    for power in range(-5, 0):
        for rho in _RHOS:
            row = rf"\rho = {rho}" if rho == 0.75 else rf"\rho={rho}"
            adapter = TPT(rate=FixedRate(float(f"1e{power}")), rho=rho)
            yield Setting(f"TPT 1e{power} rho={rho}", adapter, rf"\eta = 1e{power}", row)


def _zero_scan(section: str = "") -> Iterable[Setting]:
    for rho in _RHOS:
        row = rf"\rho = {rho}" if rho == 0.75 and not section else rf"\rho={rho}"
        yield Setting(f"Zero rho={rho}", Zero(rho), section, row)


def _orthcali_scan() -> Iterable[Setting]:
    for lam in (0, 1, 10, 1000, 100000):
        row = rf"\lambda_orth = {lam}" if lam == 1000 else rf"\lambda_orth={lam}"
        yield Setting(f"OrthCali lam={lam}", OrthCali(float(lam)), "", row)


def _fair(section: str, loss: str, rate: RatePolicy, lambdas: Iterable[float]) -> Iterable[Setting]:
    for lam in lambdas:
        adapter = FairTPT(float(lam), _LOSSES[loss], rate)
        shown = r"\infty" if math.isinf(lam) else lam
        yield Setting(_called("FairTPT", lam, loss, rate), adapter, section,
                      rf"\lambda_{{fair}} = {shown}")  # fmt: skip


def _fair_mo(section: str, loss: str, rate: RatePolicy) -> Iterable[Setting]:
    for lam in _LAMBDAS:
        adapter = FairTPTMO(float(lam), _LOSSES[loss], rate)
        yield Setting(_called("FairTPT-MO", lam, loss, rate), adapter, section,
                      rf"\lambda_{{fair (mo)}} = {lam}")  # fmt: skip


def _called(method: str, lam: float, loss: str, rate: RatePolicy) -> str:
    return f"{method} lam={lam} {loss}{'' if isinstance(rate, ELRA) else ' no ELRA'}"


def _elra_ablation() -> Iterable[Setting]:
    yield _zero_shot()
    for rate, ending in ((ELRA(), ""), (_FIXED, " without ELRA")):
        yield from _fair(f"FairTPT{ending}", "S", rate, _LAMBDAS)
        yield from _fair_mo(f"FairTPT (MO){ending}", "S", rate)
        yield from _fair(f"FairTPT special cases{ending}", "S", rate, (0, math.inf))


def _loss_choice(rate: RatePolicy = ELRA(), ending: str = "") -> Iterable[Setting]:
    for loss in _LOSSES:
        section = f"FairTPT and FairTPT (MO) with {loss} loss{ending}"
        yield from _fair(section, loss, rate, (*_LAMBDAS, math.inf))
        yield from _fair_mo(section, loss, rate)


def _with_projection() -> tuple[Setting, ...]:
    return (
        _zero_shot("Zero-Shot"),
        Setting("OrthCali", OrthCali(), "Episodic test-time debiasing methods", "OrthCali"),
        Setting("FairTPT", FairTPT(), "Our methods", "FairTPT"),
        Setting("FairTPT >> OrthCali", FairTPT() >> OrthCali(0), "Our methods", "FairTPT+OrthCali"),
    )


def _more_attributes() -> Iterable[Setting]:
    section = "Episodic test-time adaptation methods"
    yield _zero_shot()
    yield Setting("TPT", TPT(), section, "TPT")
    yield Setting("TPT ELRA", TPT(rate=ELRA()), section, "TPT with ELRA")
    yield from _zero_scan("Zero")
    for lam in (0.0, 1.0, 10.0, 1000.0, 100000.0):
        row = r"\lambda_orth=100000" if lam == 100000 else rf"\lambda_orth={lam}"
        yield Setting(f"OrthCali lam={lam:g}", OrthCali(lam), "OrthCali", row)
    yield from _loss_choice(_FIXED, " and no ELRA")
    yield from _loss_choice()


def _before_and_after() -> tuple[Setting, ...]:
    return (
        _zero_shot("Before Update"),
        Setting("FairTPT", FairTPT(), "", "FairTPT"),
        Setting("FairTPT-MO", FairTPTMO(), "", "FairTPT (MO)"),
        Setting("TPT", TPT(), "", "TPT"),
    )


def _runtime() -> tuple[Setting, ...]:
    return (
        Setting("ZeroShot", ZeroShot()),
        Setting("TPT", TPT(), "", "TPT"),
        Setting("Zero", Zero(), "", "Zero"),
        Setting("FairTPT", FairTPT(), "", "FairTPT"),
        Setting("FairTPT-MO", FairTPTMO(), "", "FairTPT (MO)"),
    )


_LARGE = "ViT-L/14"
GRIDS = {
    grid.name: grid
    for grid in (
        Grid("main-L14", _LARGE, _main()),
        Grid("tpt-scan", _LARGE, (_zero_shot(), *_tpt_scan())),
        Grid("zero-scan", _LARGE, (_zero_shot(), *_zero_scan())),
        Grid("orthcali-scan", _LARGE, (_zero_shot(), *_orthcali_scan())),
        Grid("elra-ablation", _LARGE, tuple(_elra_ablation())),
        Grid("loss-choice", _LARGE, (_zero_shot(), *_loss_choice())),
        Grid("with-projection", _LARGE, _with_projection()),
        Grid("more-attributes", _LARGE, tuple(_more_attributes()), MORE_TASKS),
        Grid("main-B32", "ViT-B/32", _main()),
        Grid("asi-atc", _LARGE, _before_and_after()),
        Grid("runtime", _LARGE, _runtime(), MAIN_TASKS[:1], alone=True),
    )
}
"""Every table of the paper by its name on the command line."""


def of_datasets(grid: Grid, names: Sequence[str]) -> Grid:
    """The same table on these datasets or targets only."""

    def called(task: BenchmarkTask) -> set[str]:
        return {name.casefold() for name in (task.dataset, task.target, str(task))}

    known = list(dict.fromkeys(task.dataset for task in grid.tasks))
    for name in names:
        if not any(name.casefold() in called(task) for task in grid.tasks):
            raise FairTTAError(
                f"`dataset` should be one of {', '.join(known)}, or one of their targets "
                f"(got {name!r})."
            )
    wanted = {name.casefold() for name in names}
    return replace(grid, tasks=tuple(task for task in grid.tasks if called(task) & wanted))


FIELD, CLIP_BIAS = OTHER_TABLES


_ONE_VIEW, _VIEWS, _IMAGES = "One view", "Views", "The images themselves"
_REFERENCE, _LABELS = "A reference without labels", "A reference with labels"
_SECTIONS = (_ONE_VIEW, _VIEWS, _IMAGES, _REFERENCE, _LABELS)


def every_method(adapters: Mapping[str, Adapter] | None = None) -> tuple[Setting, ...]:
    """A row for each method, zero-shot first; sections say what methods need.

    Args:
        adapters: by their names; if None every method of the library with its defaults, except
            those that need the true attribute values of the images they predict.
    """
    if adapters is None:
        every = [m for m in (kind() for kind in ADAPTERS.values()) if not m.needs.values]
        adapters = {type(adapter).__name__: adapter for adapter in every}
    others = [
        Setting(name, adapter, _section(adapter))
        for name, adapter in adapters.items()
        if adapter != ZeroShot()
    ]
    order = [*_SECTIONS, *(setting.section for setting in others)]
    others.sort(key=lambda setting: order.index(setting.section))
    return Setting("ZeroShot", ZeroShot()), *others


def clip_bias_grid(
    adapters: Mapping[str, Adapter] | None = None,
    harmful: Mapping[str, Mapping[str, str]] | None = None,
) -> Grid:
    """Every method that needs no labels on the bias experiment of the CLIP paper.

    Args:
        adapters: by their names.
        harmful: user-defined sets, ``{name: {class: phrase}}``.
    """
    settings = every_method(adapters)
    if adapters is None:
        settings = tuple(s for s in settings if not s.adapter.needs.labels)
    return Grid(CLIP_BIAS, "", settings, clip_bias_tasks(harmful))


def _section(adapter: Any) -> str:
    if adapter.needs.labels:
        return _LABELS
    if adapter.needs.reference:
        return _REFERENCE
    if adapter.needs.pixels:
        return _IMAGES
    return _VIEWS if adapter.needs.views else _ONE_VIEW


def find_grid(
    name: str,
    adapters: Mapping[str, Adapter] | None = None,
    harmful: Mapping[str, Mapping[str, str]] | None = None,
) -> Grid:
    """The table of this name.

    Raises:
        FairTTAError: there is none, or it takes no user-defined methods or sets.
    """
    check_name(name)
    if harmful and name != CLIP_BIAS:
        raise FairTTAError(f"`harmful` is for the table {CLIP_BIAS!r} (got {name!r}).")
    if name == CLIP_BIAS:
        return clip_bias_grid(adapters, harmful)
    if name == FIELD:
        return Grid(FIELD, "", every_method(adapters))
    if adapters is not None:
        raise FairTTAError(
            f"`adapters` is for the tables {FIELD!r} and {CLIP_BIAS!r} (got {name!r}): other "
            "settings go into a TOML file."
        )
    return GRIDS[name]


def check_name(name: str) -> None:
    """Raise unless there is a table of this name."""
    names = (*GRIDS, *OTHER_TABLES)
    if name not in names:
        raise FairTTAError(f"`table` should be one of {', '.join(names)} (got {name!r}).")
