"""Tables as data: which methods on which tasks, the paper's and others."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fair_tta._identity import describe_adapter
from fair_tta.errors import FairTTAError, near
from fair_tta.lab.bench._printed import OTHER_TABLES
from fair_tta.lab.data import MAIN_TASKS, MORE_TASKS
from fair_tta.lab.data._fairface import BRACKETS, PEOPLE
from fair_tta.lab.data._tasks import GENDERS, RACES_7, BenchmarkTask
from fair_tta.methods import TPT, FairTPT, FairTPTMO, OrthCali, SEraser, Zero, ZeroShot
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
        if not self.settings or not self.tasks:
            raise FairTTAError("a table should have at least one setting and one task.")
        names = [setting.name for setting in self.settings]
        if not all(name.strip() for name in names):
            raise FairTTAError(f"settings should have names (got {names}).")
        for what, every in (("settings", names), ("tasks", [*map(str, self.tasks)])):
            twice = sorted({name for name in every if every.count(name) > 1})
            if twice:
                raise FairTTAError(f"{what} should have distinct names ({twice} came twice).")
        first: dict[str, str] = {}
        for setting in self.settings:
            key = json.dumps(describe_adapter(setting.adapter), sort_keys=True)
            if key in first:
                raise FairTTAError(
                    f"settings should differ ({first[key]!r} and {setting.name!r} are both "
                    f"{setting.adapter!r})."
                )
            first[key] = setting.name


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
    """By race, gender and age, each without and with the class "child"; see `find_grid`."""
    sets = HARMFUL if harmful is None else harmful
    people = {f"{race} {adult}": f"{race} {adult}" for race in RACES_7 for adult in _ADULTS}
    bad = {name: phrase for classes in sets.values() for name, phrase in classes.items()}
    names = {name: tuple(classes) for name, classes in sets.items()}
    return tuple(
        BenchmarkTask(
            "FairFace", asked, people | extra | bad, {attribute: phrases}, TEMPLATE, names
        )
        for asked, extra in zip(PEOPLE, ({}, {"child": "child"}), strict=True)
        for attribute, phrases in _SENSITIVE.items()
    )


_LAMBDAS = (1, 100, 5000)
_RHOS = (0.1, 0.25, 0.5, 0.75, 1.0)
_FIXED = FixedRate(5e-3)
_LOSSES: dict[str, Loss] = {"S": SLoss(), "TS": TSLoss(), "Super TS": SuperTSLoss()}


_ADAPTING = "Episodic test-time adaptation methods"
_DEBIASING = "Episodic test-time debiasing methods"


def _zero_shot(row: str = "Zero Shot") -> Setting:
    return Setting("ZeroShot", ZeroShot(), "", row)


_MAIN = (
    _zero_shot("Zero-Shot"),
    Setting("TPT", TPT(), _ADAPTING, "TPT"),
    Setting("Zero", Zero(), _ADAPTING, "Zero"),
    Setting("OrthCali", OrthCali(), _DEBIASING, "OrthCali"),
    Setting("FairTPT", FairTPT(), "Our method", "FairTPT"),
    Setting("FairTPT-MO", FairTPTMO(), "Our method", "FairTPT (MO)"),
)
_WITH_PROJECTION = (
    *(_MAIN[0], _MAIN[3]),
    Setting("FairTPT", FairTPT(), "Our methods", "FairTPT"),
    Setting("FairTPT >> OrthCali", FairTPT() >> OrthCali(0), "Our methods", "FairTPT+OrthCali"),
)
_PLAIN = {s.name: replace(s, section="") for s in _MAIN}
_BEFORE_AND_AFTER = (
    _zero_shot("Before Update"),
    *(_PLAIN[name] for name in ("FairTPT", "FairTPT-MO", "TPT")),
)
_RUNTIME = (
    Setting("ZeroShot", ZeroShot()),
    *(_PLAIN[name] for name in ("TPT", "Zero", "FairTPT", "FairTPT-MO")),
)
_TPT_SCAN = tuple(
    Setting(
        f"TPT 1e{power} rho={rho}",
        TPT(rate=FixedRate(float(f"1e{power}")), rho=rho),
        rf"\eta = 1e{power}",
        rf"\rho={rho}",
    )
    for power in range(-5, 0)
    for rho in _RHOS
)


def _zero_scan(section: str = "") -> Iterable[Setting]:
    return [Setting(f"Zero rho={rho}", Zero(rho), section, rf"\rho={rho}") for rho in _RHOS]


def _orthcali_scan(section: str = "") -> Iterable[Setting]:
    return [
        Setting(f"OrthCali lam={lam}", OrthCali(float(lam)), section, rf"\lambda_orth={lam}")
        for lam in (0, 1, 10, 1000, 100000)
    ]


def _fair(
    section: str, loss: str, rate: RatePolicy, lambdas: Iterable[float] = (), mo: bool = False
) -> Iterable[Setting]:
    """A row for each lambda; of FairTPT (MO) for the usual ones."""
    kind: type[FairTPT | FairTPTMO] = FairTPTMO if mo else FairTPT
    name, symbol = ("FairTPT-MO", "fair (mo)") if mo else ("FairTPT", "fair")
    lambdas = _LAMBDAS if mo else lambdas
    ending = "" if isinstance(rate, ELRA) else " no ELRA"
    for lam in lambdas:
        shown = r"\infty" if math.isinf(lam) else lam
        row = rf"\lambda_{{{symbol}}} = {shown}"
        adapter = kind(float(lam), _LOSSES[loss], rate)
        yield Setting(f"{name} lam={lam} {loss}{ending}", adapter, section, row)


def _elra_ablation() -> Iterable[Setting]:
    for rate, ending in ((ELRA(), ""), (_FIXED, " without ELRA")):
        yield from _fair(f"FairTPT{ending}", "S", rate, _LAMBDAS)
        yield from _fair(f"FairTPT (MO){ending}", "S", rate, mo=True)
        yield from _fair(f"FairTPT special cases{ending}", "S", rate, (0, math.inf))
    # The paper takes lambda = inf for SEraser with ELRA; it has no row of SEraser itself.
    yield Setting("SEraser ELRA", SEraser(rate=ELRA(), steps=1))


def _loss_choice(rate: RatePolicy = ELRA(), ending: str = "") -> Iterable[Setting]:
    for loss in _LOSSES:
        section = f"FairTPT and FairTPT (MO) with {loss} loss{ending}"
        yield from _fair(section, loss, rate, (*_LAMBDAS, math.inf))
        yield from _fair(section, loss, rate, mo=True)


_MORE_ATTRIBUTES = (
    _MAIN[1],
    Setting("TPT ELRA", TPT(rate=ELRA()), _ADAPTING, "TPT with ELRA"),
    *_zero_scan("Zero"),
    *_orthcali_scan("OrthCali"),
    *_loss_choice(_FIXED, " and no ELRA"),
    *_loss_choice(),
)
_LARGE = "ViT-L/14"
GRIDS = {
    grid.name: grid
    for grid in (
        Grid("main-L14", _LARGE, _MAIN),
        Grid("tpt-scan", _LARGE, (_zero_shot(), *_TPT_SCAN)),
        Grid("zero-scan", _LARGE, (_zero_shot(), *_zero_scan())),
        Grid("orthcali-scan", _LARGE, (_zero_shot(), *_orthcali_scan())),
        Grid("elra-ablation", _LARGE, (_zero_shot(), *_elra_ablation())),
        Grid("loss-choice", _LARGE, (_zero_shot(), *_loss_choice())),
        Grid("with-projection", _LARGE, _WITH_PROJECTION),
        Grid("more-attributes", _LARGE, (_zero_shot(), *_MORE_ATTRIBUTES), MORE_TASKS),
        Grid("main-B32", "ViT-B/32", _MAIN),
        Grid("asi-atc", _LARGE, _BEFORE_AND_AFTER),
        Grid("runtime", _LARGE, _RUNTIME, MAIN_TASKS[:1], alone=True),
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
_SECTIONS = (
    "One view",
    "Views",
    "The images themselves",
    "A reference without labels",
    "A reference with labels",
)


def every_method(adapters: Mapping[str, Adapter] | None = None) -> tuple[Setting, ...]:
    """A row for each method, zero-shot first; sections say what methods need.

    If none are given: every method of the library with its defaults, except those that need the
    true attribute values of the images they predict, or a setting.
    """
    if adapters is None:
        every = [kind() for kind in ADAPTERS.values()]
        every = [m for m in every if not (m.needs.values or m.needs.setting)]
        adapters = {type(adapter).__name__: adapter for adapter in every}
    others = []
    for name, adapter in adapters.items():
        needs = adapter.needs
        has = True, needs.views, needs.pixels, needs.reference, needs.labels or needs.class_labels
        if adapter != ZeroShot():
            others.append(Setting(name, adapter, _SECTIONS[max(np.flatnonzero(has))]))
    others.sort(key=lambda setting: _SECTIONS.index(setting.section))
    return Setting("ZeroShot", ZeroShot()), *others


def find_grid(
    name: str,
    adapters: Mapping[str, Adapter] | None = None,
    harmful: Mapping[str, Mapping[str, str]] | None = None,
) -> Grid:
    """A table of the paper; "field" for every method; "clip-bias" for every method that needs no
    labels on the bias experiment of the CLIP paper.

    The last two may have user-defined rows (`adapters`), the last one sets of classes (`harmful`).
    """
    check_name(name)
    if harmful and name != CLIP_BIAS:
        raise FairTTAError(f"`harmful` is for the table {CLIP_BIAS!r} (got {name!r}).")
    if name == CLIP_BIAS:
        settings = every_method(adapters)
        if adapters is None:
            needs = ((s, s.adapter.needs) for s in settings)
            settings = tuple(s for s, of in needs if not (of.labels or of.class_labels))
        return Grid(CLIP_BIAS, "", settings, clip_bias_tasks(harmful))
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
        text = f"`table` should be one of {', '.join(names)} (got {name!r})."
        raise FairTTAError(f"{text}{near(name, names)}")
