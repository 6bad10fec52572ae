"""The paper's tables as data: which settings, on which pairs.

`section` and `row` are the words of the paper's own tables, so that our figures and the paper's
can be set side by side. The first setting of a grid is zero-shot, which the others are compared
with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fair_tta.adapters import TPT, FairTPT, FairTPTMO, OrthCali, Zero, ZeroShot
from fair_tta.data import MAIN_TASKS, MORE_TASKS, BenchmarkTask
from fair_tta.errors import FairTTAError
from fair_tta.runs.settings import Grid, Setting
from fair_tta.tuning.objectives import Loss, SLoss, SuperTSLoss, TSLoss
from fair_tta.tuning.rates import ELRA, FixedRate, RatePolicy

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


def find_grid(name: str) -> Grid:
    """The table of this name."""
    if name not in GRIDS:
        raise FairTTAError(f"`table` should be one of {', '.join(GRIDS)} (got {name!r}).")
    return GRIDS[name]


def of_datasets(grid: Grid, names: Sequence[str]) -> Grid:
    """The same table on these datasets, or on pairs by what they are asked for, only."""

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
