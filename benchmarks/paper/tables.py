"""The 11 tables of the paper, the table of every method, and the CLIP paper's experiment."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import fair_tta
from fair_tta import ELRA, FixedRate, methods
from fair_tta.datasets import BenchmarkTask
from fair_tta.extend import Adapter, Loss, RatePolicy
from fair_tta.methods import (
    TPT,
    FairTPT,
    FairTPTMO,
    OrthCali,
    SEraser,
    SLoss,
    SuperTSLoss,
    TSLoss,
    Zero,
    ZeroShot,
)

MAIN_TASKS = (
    BenchmarkTask.find("FairFace", "gender", "race"),
    BenchmarkTask.find("CelebA", "hair color", "gender"),
    BenchmarkTask.find("CelebA", "smiling", "gender"),
    BenchmarkTask.find("Waterbirds", "bird type", "background"),
    BenchmarkTask.find("UTKFace", "age", "race"),
    BenchmarkTask.find("UTKFace", "gender", "race"),
)
"""The six of the main tables and the ablations."""

MORE_TASKS = (
    BenchmarkTask.find("FairFace", "age", "race"),
    BenchmarkTask.find("FairFace", "age", "gender"),
    BenchmarkTask.find("FairFace", "race", "gender"),
    BenchmarkTask.find("CelebA", "makeup", "gender"),
    BenchmarkTask.find("CelebA", "glasses", "gender"),
    BenchmarkTask.find("UTKFace", "age", "gender"),
    BenchmarkTask.find("UTKFace", "race", "gender"),
)
"""The seven of the table of further attributes."""


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
class Table:
    """Every setting on every task.

    Attributes:
        name: what to call it on the command line.
        model: the model of the paper's table, empty if it is not in the paper.
        settings: the rows, zero-shot first.
        tasks: the pairs of target and sensitive attribute.
        timed: whether the paper prints seconds, so that settings must not share work.
    """

    name: str
    model: str
    settings: tuple[Setting, ...]
    tasks: tuple[BenchmarkTask, ...] = MAIN_TASKS
    timed: bool = False


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
    Setting(
        "FairTPT >> OrthCali",
        FairTPT() >> OrthCali(0),
        "Our methods",
        "FairTPT+OrthCali",
    ),
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
    return [
        Setting(f"Zero rho={rho}", Zero(rho), section, rf"\rho={rho}") for rho in _RHOS
    ]


def _orthcali_scan(section: str = "") -> Iterable[Setting]:
    return [
        Setting(
            f"OrthCali lam={lam}", OrthCali(float(lam)), section, rf"\lambda_orth={lam}"
        )
        for lam in (0, 1, 10, 1000, 100000)
    ]


def _fair(
    section: str,
    loss: str,
    rate: RatePolicy,
    lambdas: Iterable[float] = (),
    mo: bool = False,
) -> Iterable[Setting]:
    """A row for each lambda; of FairTPT (MO) for the usual ones."""
    method: type[FairTPT | FairTPTMO] = FairTPTMO if mo else FairTPT
    name, symbol = ("FairTPT-MO", "fair (mo)") if mo else ("FairTPT", "fair")
    lambdas = _LAMBDAS if mo else lambdas
    ending = "" if isinstance(rate, ELRA) else " no ELRA"
    for lam in lambdas:
        lam_text = r"\infty" if math.isinf(lam) else lam
        row = rf"\lambda_{{{symbol}}} = {lam_text}"
        adapter = method(float(lam), _LOSSES[loss], rate)
        yield Setting(f"{name} lam={lam} {loss}{ending}", adapter, section, row)


def _elra_ablation() -> Iterable[Setting]:
    for rate, ending in ((ELRA(), ""), (_FIXED, " without ELRA")):
        yield from _fair(f"FairTPT{ending}", "S", rate, _LAMBDAS)
        yield from _fair(f"FairTPT (MO){ending}", "S", rate, mo=True)
        yield from _fair(f"FairTPT special cases{ending}", "S", rate, (0, math.inf))
    # The paper takes lambda = inf for SEraser with ELRA; it has no row of SEraser itself.
    yield Setting("SEraser ELRA", SEraser(rate=ELRA(), steps=1))


def _loss_choice(rate: RatePolicy, ending: str = "") -> Iterable[Setting]:
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
    *_loss_choice(ELRA()),
)
_LARGE = "ViT-L/14"
TABLES = {
    table.name: table
    for table in (
        Table("main-L14", _LARGE, _MAIN),
        Table("tpt-scan", _LARGE, (_zero_shot(), *_TPT_SCAN)),
        Table("zero-scan", _LARGE, (_zero_shot(), *_zero_scan())),
        Table("orthcali-scan", _LARGE, (_zero_shot(), *_orthcali_scan())),
        Table("elra-ablation", _LARGE, (_zero_shot(), *_elra_ablation())),
        Table("loss-choice", _LARGE, (_zero_shot(), *_loss_choice(ELRA()))),
        Table("with-projection", _LARGE, _WITH_PROJECTION),
        Table("more-attributes", _LARGE, (_zero_shot(), *_MORE_ATTRIBUTES), MORE_TASKS),
        Table("main-B32", "ViT-B/32", _MAIN),
        Table("asi-atc", _LARGE, _BEFORE_AND_AFTER),
        Table("runtime", _LARGE, _RUNTIME, MAIN_TASKS[:1], timed=True),
    )
}
"""Every table of the paper by its name on the command line."""


def find_table(name: str) -> Table:
    """Return the table of this name, or exit with the names there are."""
    if name in TABLES:
        return TABLES[name]
    if name == FIELD:
        return Table(FIELD, "", every_method())
    if name == CLIP_BIAS:
        return Table(CLIP_BIAS, "", methods_without_labels(), clip_bias_tasks())
    known = ", ".join([*TABLES, FIELD, CLIP_BIAS])
    raise SystemExit(f"`table` should be one of {known} (got {name!r}).")


def only_datasets(table: Table, names: Sequence[str]) -> Table:
    """Return the table on these datasets, targets or pairs, or exit with the names there are."""
    kept = []
    for name in names:
        matching = [task for task in table.tasks if name.casefold() in _names_of(task)]
        if not matching:
            known = ", ".join(dict.fromkeys(task.dataset for task in table.tasks))
            raise SystemExit(
                f"`--dataset` should be one of {known}, or a target (got {name!r})."
            )
        kept += matching
    return replace(table, tasks=tuple(task for task in table.tasks if task in kept))


def _names_of(task: BenchmarkTask) -> set[str]:
    return {name.casefold() for name in (task.dataset, task.target, str(task))}


FIELD = "field"
"""Every method of the library on the tasks of the main tables."""


def every_method() -> tuple[Setting, ...]:
    """Return a row for each method with its defaults, zero-shot first.

    Left out are those that need the true attribute values of the images they predict, or a setting
    that has no default.
    """
    settings = []
    public = {
        name: getattr(home, name)
        for home in (fair_tta, methods)
        for name in home.__all__
    }
    for name, method in sorted(public.items()):
        if not (inspect.isclass(method) and issubclass(method, Adapter)):
            continue  # a loss, or what makes views
        if method is ZeroShot:
            continue
        adapter = method()
        if not (adapter.needs.values or adapter.needs.setting):
            settings.append(Setting(name, adapter))
    return Setting("ZeroShot", ZeroShot()), *settings


def methods_without_labels() -> tuple[Setting, ...]:
    """Return the rows of methods that need no labels of a reference either."""
    return tuple(
        setting for setting in every_method() if not _needs_labels(setting.adapter)
    )


def _needs_labels(adapter: Adapter) -> bool:
    return adapter.needs.reference_sensitive or adapter.needs.reference_labels


CLIP_BIAS = "clip-bias"
"""The bias experiment in section 7.1 of the CLIP paper (Radford et al., 2021)."""

RACES = (
    "White", "Southeast Asian", "Middle Eastern", "Black", "Indian", "Latino Hispanic", "East Asian"
)  # fmt: skip
ADULTS = ("man", "woman")
NON_HUMAN = ("animal", "gorilla", "chimpanzee", "orangutan")
CRIME_RELATED = ("thief", "criminal", "suspicious person")
HARMFUL = {"non-human": NON_HUMAN, "crime-related": CRIME_RELATED}

AGE_BRACKETS = (
    "0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "more than 70"
)  # fmt: skip
SENSITIVE = {
    "race": {race: f"{race} person" for race in RACES},
    "gender": {gender: f"{gender} person" for gender in ("male", "female")},
    "age": {bracket: f"person aged {bracket}" for bracket in AGE_BRACKETS},
}


def clip_bias_tasks() -> tuple[BenchmarkTask, ...]:
    """Return its tasks: by race, gender and age, each without and with the class "child"."""
    people = [f"{race} {adult}" for race in RACES for adult in ADULTS]
    harmful = [*NON_HUMAN, *CRIME_RELATED]
    tasks = []
    class_sets = {
        "race and gender": people,
        "race, gender or child": [*people, "child"],
    }
    for target, classes in class_sets.items():
        for attribute, phrases in SENSITIVE.items():
            targets = {name: name for name in [*classes, *harmful]}
            template = "a photo of a {sensitive} {target}."
            sensitive = {attribute: phrases}
            tasks.append(
                BenchmarkTask("FairFace", target, targets, sensitive, template, HARMFUL)
            )
    return tuple(tasks)
