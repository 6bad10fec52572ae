"""Methods that do not exist, that do not fit together, or that cannot use what they get."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from fits import fit_on, fit_on_features, save
from internals import (
    Chained,
    Needs,
    combine,
    parse_adapter,
    parse_adapters,
)
from random_task import DIM, EncodedClassifier, random_units, task_of

from fair_tta import (
    ELRA,
    TPT,
    FairTPT,
    FairTPTClassifier,
    FairTPTMO,
    FixedRate,
    LogitBalance,
    OrthCali,
    Templates,
    Zero,
)
from fair_tta.extend import Objective, Task
from fair_tta.methods import TIE, UMFC, BalancedHead, SLoss, load_adapter
from fair_tta.miniature import BIRDS

Case = Callable[[Path], object]
FEATURES = random_units(7, 9, 1, DIM)
LABELS = ["s0 0", "s0 1", "s0 1"] * 3


def classifier(*values_of_attributes: int) -> EncodedClassifier:
    """Return a classifier of random features: attributes s0, s1, .. with values "s0 0", .."""
    sensitive = {
        f"s{i}": random_units(i + 1, n, DIM) for i, n in enumerate(values_of_attributes)
    }
    return EncodedClassifier(task_of(random_units(0, 3, DIM), sensitive))


@cache
def miniature() -> FairTPTClassifier:
    return FairTPTClassifier("miniature", BIRDS.targets, BIRDS.sensitive)


def image() -> Any:
    return BIRDS.draw(1, seed=3)[0].image


def text(adapter: str) -> Case:
    return lambda _: parse_adapter(adapter)


def user_file(content: str, name: str) -> Case:
    """Return a case that takes a name from a file of this content."""

    def case(folder: Path) -> object:
        (folder / "mine.py").write_text(content)
        return parse_adapter(f"mine.py{name}", folder)

    return case


USER_METHODS = """
from dataclasses import dataclass
from fair_tta import ZeroShot
from fair_tta.extend import Adapter, UsesTexts

@dataclass(frozen=True)
class Mine(Adapter):
    steps: int = 1
    sizes: tuple = (1, 2)

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError("steps!")

    def adapt(self, task, features):
        return ZeroShot().adapt(task, features)

    def __repr__(self):
        return "Mine()"

class Bare(Mine):
    def __init__(self, share, *more):
        pass

class Foreign:
    adapt = Mine.adapt
    __repr__ = Mine.__repr__

class Nothing:
    __repr__ = Mine.__repr__
"""


def fit(method: Any, labels: Any, *values_of_attributes: int) -> Case:
    """Return a case that fits on nine images with labels."""
    return lambda _: fit_on(
        method, classifier(*values_of_attributes or (2,)), list(FEATURES), labels
    )


def fit_with(adapter: str, **labels: Any) -> Case:
    """Return a case that calls `fit` with arguments; no image should be read."""

    def unread() -> Iterator[Any]:
        raise AssertionError("no image should be read")
        yield

    return lambda _: miniature().with_adapter(adapter).fit(unread(), **labels)


def load_changed(folder: Path) -> object:
    """Load a file that was damaged."""
    path = folder / "fitted.safetensors"
    save(fit_on_features(LogitBalance(), classifier(2), FEATURES), path)
    path.write_bytes(path.read_bytes().replace(b"LogitBalance", b"LogitBelance"))
    return load_adapter(path)


def load_with_settings(**settings: Any) -> Case:
    def case(folder: Path) -> object:
        fitted = fit_on_features(LogitBalance(), classifier(2), FEATURES)
        assert fitted.reference is not None
        fitted.reference._save(folder / "fitted.safetensors", settings)
        return load_adapter(folder / "fitted.safetensors")

    return case


def use_with_other_settings(_: Path) -> object:
    fitted = fit_on_features(UMFC(clusters=2), classifier(2), FEATURES)
    return replace(fitted, clusters=3)._prepared(classifier(2)._task)


def use_reference_of_another_method(_: Path) -> object:
    fitted = fit_on_features(LogitBalance(), classifier(2), FEATURES)
    return UMFC(reference=fitted.reference)._prepared(classifier(2)._task)


def use_with_another(**settings: Any) -> Case:
    """Return a case that uses a fitted method with other prompts or another scale."""

    def case(_: Path) -> object:
        names: dict[str, Any] = {
            "targets": ["cat", "dog"],
            "sensitive": ["day", "night"],
            "scale": 30.0,
        }
        clf = FairTPTClassifier("miniature", **names, adapter="logit-balance")
        images = [drawn.image for drawn in BIRDS.draw(4)]
        return FairTPTClassifier(
            "miniature", **(names | settings), adapter=clf.fit(images).adapter
        )

    return case


class PixelsWithoutBase(Zero):
    needs = Needs(pixels=True)


class NoTerms:
    """A user-defined loss without terms."""

    def objective(self, _: Task) -> Objective:
        return Objective(())


@dataclass
class NotHashable:
    """A user-defined loss that is not frozen."""

    def objective(self, task: Task) -> Objective:
        return SLoss().objective(task)


class Starts:
    """A user-defined rate policy that starts with something, such as None."""

    def __init__(self, stepper: Any) -> None:
        self.stepper = stepper

    def start(self, *_: Any) -> Any:
        return self.stepper


class StepsNowhere:
    def __init__(self) -> None:
        self.rate = torch.ones(1)
        self.flags: dict[str, Any] = {}

    def step(self, _: Any) -> None:
        return None


def tune_with(**settings: Any) -> Case:
    return lambda _: (
        miniature().with_adapter(TPT(**settings)).with_views(2).predict(image())
    )


def aggregate(aggregator: Any) -> Case:
    return lambda _: combine(aggregator, torch.ones(1, 2, 2, 3))


CASES: dict[str, Case] = {
    # methods as text
    "an unknown method": text("fairtpt"),
    "a setting that a method does not have": text("zero:lam=1"),
    "a setting of a method without settings": text("zero-shot:rho=1"),
    "a setting of another class of setting": text("fair-tpt:rate.lr=1"),
    "a setting of a number": text("zero:rho.x=1"),
    "a setting without a value": text("zero:rho"),
    "a setting that came twice": text("zero:rho=1,rho=0.5"),
    "a text instead of a number": text("zero:rho=many"),
    "a number instead of an integer": text("tpt:steps=1.5"),
    "an unknown class of setting": text("fair-tpt:loss=x"),
    "a number instead of true or false": text("fair-tpt:loss.joint=1"),
    "a reference file that is missing": text("logit-balance:reference=x"),
    "a reference of a method that is not fitted": text("zero:reference=x"),
    "methods that come twice": lambda _: parse_adapters(["tpt,zero", "tpt"]),
    "an empty list of methods": lambda _: parse_adapters([" , "]),
    "a user file in Python": lambda _: miniature().with_adapter("mine.py:Mine"),
    # chains
    "a first method that cannot be first": text("zero+orthcali"),
    "a second method that cannot be second": text("tpt+zero"),
    "a chain of three": text("fair-tpt+orthcali+zero-shot"),
    "a chain of objects": lambda _: Chained(Zero(), OrthCali()),  # type: ignore[arg-type]
    # user files
    "a user file that is missing": lambda folder: parse_adapter("no.py:Mine", folder),
    "a user file without a name": user_file(USER_METHODS, ""),
    "a name that a user file does not have": user_file(USER_METHODS, ":Mime"),
    "an empty user file": user_file("", ":Mine"),
    "a user file with an error": user_file("\nx.y\n", ":Mine"),
    "a user file with a syntax error": user_file("# 1\nclass A(\n", ":Mine"),
    "a user file that exits": user_file("import sys\nsys.exit(2)\n", ":Mine"),
    "a user file with a bad setting": user_file(
        "from fair_tta import TPT\nA = TPT(rho=2)\n", ":A"
    ),
    "a class that is no method": user_file(USER_METHODS, ":Nothing"),
    "a class without the base": user_file(USER_METHODS, ":Foreign"),
    "a class with required arguments": user_file(USER_METHODS, ":Bare"),
    "an error in a user-defined class": user_file(USER_METHODS, ":Mine:steps=-1"),
    "a setting that cannot be written": user_file(USER_METHODS, ":Mine:sizes=3"),
    # settings
    "a share of no views": lambda _: Zero(rho=0),
    "a negative number of steps": lambda _: TPT(steps=-1),
    "a rate instead of a policy": lambda _: TPT(rate=5e-3),  # type: ignore[arg-type]
    "a negative weight": lambda _: FairTPT(lam=-1),
    "a weight that is no number": lambda _: FairTPTMO(lam=math.nan),
    "an infinite weight": lambda _: OrthCali(lam=math.inf),
    "an aim of zero": lambda _: ELRA(beta=0),
    "a negative bound": lambda _: ELRA(max_relative_step=-1),
    "a negative rate": lambda _: FixedRate(-1),
    "a rate that is too large": lambda _: FixedRate(1e38),
    "another optimizer": lambda _: FixedRate(0.1, torch.optim.LBFGS),
    "a class as aggregator": lambda _: FairTPTMO(aggregator=torch.nn.Identity),  # type: ignore[arg-type]
    "a pair that is no aggregator": lambda _: FairTPTMO(
        aggregator=(3, "gramian")  # type: ignore[arg-type]
    ),
    "an instance of no method": lambda _: miniature().with_adapter(3),  # type: ignore[arg-type]
    "pixels without the base": lambda _: miniature().with_adapter(PixelsWithoutBase()),
    "features for a method of pixels": lambda _: (
        miniature().with_adapter("tent")._predict_encoded(torch.ones(1, 1, 64))
    ),
    # prompts that a method needs
    "a method that needs attribute values": lambda _: FairTPTClassifier(
        "miniature", BIRDS.targets, adapter="fair-tpt"
    ),
    "several templates for a method that tunes one": lambda _: FairTPTClassifier(
        "miniature", BIRDS.targets, template=["a {}", "the {}"], adapter="tpt"
    ),
    "joint prompts that are missing": lambda _: FairTPTClassifier(
        "miniature",
        BIRDS.targets,
        BIRDS.sensitive,
        Templates("a {target}", "a {sensitive}"),
        adapter="orthcali",
    ),
    # user-defined rates, losses and aggregators
    "a policy that starts with nothing": tune_with(rate=Starts(None)),
    "a policy that steps nowhere": tune_with(rate=Starts(StepsNowhere())),
    "a number as loss": lambda _: miniature().with_adapter(FairTPT(loss=3)),  # type: ignore[arg-type]
    "a loss without terms": lambda _: miniature().with_adapter(FairTPT(loss=NoTerms())),
    "a loss that is not hashable": lambda _: miniature().with_adapter(
        FairTPT(loss=NotHashable())
    ),
    "an aggregator that returns a matrix": aggregate(lambda gradients: gradients),
    "an aggregator that returns nothing": aggregate(lambda gradients: None),
    "a weighting that returns a gradient": aggregate(
        (lambda gramian: torch.ones(6), "gramian")
    ),
    "something else than views": lambda _: miniature().with_views(True),
    # fitting
    "a method that is not fitted": lambda _: (
        miniature().with_adapter("tie").predict(image())
    ),
    "fitting a method that learns nothing": fit_with("zero-shot"),
    "fitting a chain that learns nothing": fit_with("fair-tpt+orthcali"),
    "classes for a method that learns without": fit_with(
        "logit-balance", labels=["cat"]
    ),
    "values for a method that learns without": fit_with(
        "logit-balance", sensitive=["day"]
    ),
    "no classes for a method that needs them": fit_with("balanced-head"),
    "no values for a method that needs them": fit_with("tie"),
    "one image to fit on": lambda _: miniature().with_adapter(LogitBalance()).fit(3),
    "no image to fit on": lambda _: miniature().with_adapter(LogitBalance()).fit([]),
    "few images": lambda _: (
        miniature().with_adapter(LogitBalance()).fit([image(), image()])
    ),
    "one value for all images": fit(TIE(), "s0 0"),
    "unknown values": fit(TIE(), ["s0 0", 4, "s0 9"] * 3),
    "a value that no image has": fit(TIE(), ["s0 0"] * 9),
    "fewer values than images": fit(TIE(), LABELS[:8]),
    "values of an unknown attribute": fit(TIE(), {"s0": LABELS, "s1": LABELS}),
    "values of no attribute": fit(TIE(), LABELS, 2, 2),
    "more values of one attribute": fit(
        TIE(), {"s0": LABELS, "s1": ["s1 0", "s1 1"]}, 2, 2
    ),
    "one class for all images": fit(BalancedHead(), "target 0"),
    "an unknown class": fit(BalancedHead(), ["target 0", "cat", None] * 3),
    "more classes than images": fit(BalancedHead(), ["target 0"] * 10),
    "a class of no image": fit(BalancedHead(), {-1: "target 0"}),
    # saved methods
    "a damaged file": load_changed,
    "a file with unknown settings": load_with_settings(strength=1.0, colour=3),
    "a file with bad settings": load_with_settings(strength=-1.0),
    "settings that cannot be saved": load_with_settings(strength=object()),
    "a setting that the fit depends on": use_with_other_settings,
    "the reference of another method": use_reference_of_another_method,
    "other classes than the fit had": use_with_another(targets=["cat", "bird"]),
    "another scale than the fit had": use_with_another(scale=31.0),
}
