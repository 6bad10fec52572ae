"""Every method equals the literal algorithm of tests/literal.py, over models, losses and rates.

The literal implementation shares no code with the library: full-length text, autograd at every
step, torch.optim, an explicit probe step, one image at a time. It runs in float64, because ELRA
divides by a small difference of losses: in float32 the literal probe itself is off by up to 1e-3
(see `test_elra_is_well_conditioned`). The library runs in float32.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import families
import literal
import open_clip
import pytest
import torch
from internals import Task, unit_features
from long_steps import parts, tolerance
from torch import Tensor

from fair_tta import ELRA, TPT, FairTPT, FairTPTMO, FixedRate, OrthCali, Templates, Zero
from fair_tta.methods import SLoss, SuperTSLoss, TSLoss
from fair_tta.models import OpenClipBackend, TransformersBackend

TARGETS = {"cat": "cat", "dog": "black dog", "bird": "water bird"}
ONE = {"sex": {"m": "male", "f": "female"}}
TWO = {**ONE, "age": {"y": "young", "o": "old", "n": "not old"}}
TEMPLATE = "a photo of a {sensitive} {target} on water."
LOSSES: dict[str, Any] = {"S": SLoss, "TS": TSLoss, "super-TS": SuperTSLoss}
LAMBDAS = [0.0, 1.0, 100.0, math.inf]
ATTRIBUTES = ["one", "two independent", "two joint"]


@lru_cache
def backend_of(name: str) -> tuple[Any, literal.LiteralText]:
    if name == "open_clip CLIP":
        vision = {
            "image_size": 32,
            "layers": 2,
            "width": 32,
            "patch_size": 8,
            "head_width": 8,
        }
        text = {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 32,
            "heads": 4,
            "layers": 2,
        }
        model = families.seeded(lambda: (open_clip.CLIP(16, vision, text),))[0]
        twin = copy.deepcopy(model).double()
        tokenizer = open_clip.SimpleTokenizer()
        backend = OpenClipBackend(
            model, open_clip.image_transform(32, False), tokenizer
        )
        return backend, literal.LiteralText(twin, "openclip", tokenizer)
    build = {
        "CLIP": families.clip,
        "SigLIP": families.siglip,
        "BERT": families.chinese_clip,
    }[name]
    model, images, tokenizer = families.seeded(build)
    twin = copy.deepcopy(model).double()
    return (
        TransformersBackend(model, images, tokenizer),
        literal.LiteralText(twin, "hf", tokenizer),
    )


MODELS = ["CLIP", "open_clip CLIP", "SigLIP", "BERT"]


@dataclass(frozen=True)
class Case:
    task: Task
    text: literal.LiteralText
    plain: literal.Task


@lru_cache
def case_of(name: str, attributes: str) -> Case:
    backend, text = backend_of(name)
    sensitive = ONE if attributes == "one" else TWO
    templates = Templates.from_sentence(TEMPLATE)
    task = Task(backend, TARGETS, sensitive, templates, scale=30.0)
    text.scale = 30.0
    if attributes == "two joint":
        phrases = [f"{a} {b}" for a in TWO["sex"].values() for b in TWO["age"].values()]
        sensitive = {"both": {phrase: phrase for phrase in phrases}}
    plain = literal.Task(
        parts(templates._target_prompts(TARGETS)),
        [parts(templates._sensitive_prompts(names)) for names in sensitive.values()],
        [
            [parts(templates._joint_prompts({y: y}, names)) for y in TARGETS.values()]
            for names in sensitive.values()
        ],
    )
    return Case(task, text, plain)


def views_of(task: Task, count: int = 16, seed: int = 0) -> Tensor:
    """Features near the prompts', so that predictions are neither certain nor flat."""
    generator = torch.Generator().manual_seed(seed)
    dim = task.target_features.shape[-1]
    towards = task.target_features[seed % len(task.targets)]
    return unit_features(towards + 0.6 * torch.randn(count, dim, generator=generator))


def settings_of(third: int) -> list[tuple[float, bool, str, str]]:
    """A third of all settings, in which every pair of values occurs."""
    indices = product(range(len(LAMBDAS)), range(2), range(2), range(len(ATTRIBUTES)))
    return [
        (LAMBDAS[lam], bool(upgrad), ("fixed", "elra")[rate], ATTRIBUTES[attributes])
        for lam, upgrad, rate, attributes in indices
        if (lam + upgrad + rate + attributes) % 3 == third
    ]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2))]
)
def test_fair_tpt_equals_the_literal_algorithm(name: str, loss: str, part: int) -> None:
    """Each setting with one of the losses; if slow tests run too, with all of them."""
    grid = settings_of((part + [*LOSSES].index(loss)) % 3)
    if (
        name != "CLIP"
    ):  # other towers, the same formulas: every fourth setting, not the same ones
        grid = grid[MODELS.index(name) :: 4]
    for number, (lam, upgrad, rate, attributes) in enumerate(grid):
        case = case_of(name, attributes)
        views = views_of(case.task, seed=number % 5)
        method = FairTPTMO if upgrad else FairTPT
        adapter = method(
            lam=lam,
            loss=LOSSES[loss](joint=attributes == "two joint"),
            rate=FixedRate(5e-3) if rate == "fixed" else ELRA(),
        )
        ours = adapter.adapt(case.task, views[None])
        theirs = literal.fair_tpt(
            case.text,
            case.plain,
            views.double(),
            loss=loss,  # type: ignore[arg-type]
            lam=lam,
            upgrad=upgrad,
            rate=("fixed", 5e-3, torch.optim.AdamW)
            if rate == "fixed"
            else ("elra", 0.01, 0.01),
        )
        case_name = f"{name} {loss} lam={lam} upgrad={upgrad} {rate} {attributes}"
        assert not theirs.degenerate, case_name
        assert ours.views_kept == len(theirs.kept) == 12
        error = (ours.probabilities[0] - theirs.probabilities).abs().max()
        allowed = tolerance(theirs.relative_step)
        assert error < allowed, (case_name, float(error), theirs.relative_step)
        assert ours.relative_step is not None
        assert float(ours.relative_step[0]) == pytest.approx(
            theirs.relative_step, rel=10 * allowed
        )


def test_elra_is_well_conditioned() -> None:
    """In float32 the rate is right to 1e-3 where a difference of losses is off by percents."""
    case = case_of("SigLIP", "one")
    adapter = FairTPT(rate=ELRA())
    for seed in range(6):
        views = views_of(case.task, seed=seed)
        rate = adapter.adapt(case.task, views[None]).learning_rate
        theirs = literal.fair_tpt(case.text, case.plain, views.double())
        assert rate is not None
        assert float(rate[0]) == pytest.approx(theirs.learning_rate, rel=1e-3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("rate", ["adamw", "sgd", "elra"])
def test_tpt_equals_the_literal_algorithm(name: str, steps: int, rate: str) -> None:
    case = case_of(name, "one")
    views = views_of(case.task)
    policies: dict[str, tuple[Any, Any]] = {
        "adamw": (FixedRate(5e-3), ("fixed", 5e-3, torch.optim.AdamW)),
        "sgd": (FixedRate(0.3, torch.optim.SGD), ("fixed", 0.3, torch.optim.SGD)),
        "elra": (ELRA(), ("elra", 0.01, 0.01)),
    }
    ours = TPT(rate=policies[rate][0], steps=steps).adapt(case.task, views[None])
    theirs = literal.fair_tpt(
        case.text,
        case.plain,
        views.double(),
        loss="T",
        rate=policies[rate][1],
        rho=0.1,
        steps=steps,
    )
    torch.testing.assert_close(
        ours.probabilities[0].double(), theirs.probabilities, rtol=0, atol=1e-4
    )
    assert ours.learning_rate is not None
    assert float(ours.learning_rate[0]) == pytest.approx(theirs.learning_rate, rel=1e-3)


@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize("loss", LOSSES)
def test_several_steps(steps: int, loss: str) -> None:
    case = case_of("CLIP", "one")
    views = views_of(case.task)
    for upgrad in (False, True):
        method = FairTPTMO if upgrad else FairTPT
        ours = method(loss=LOSSES[loss](), rate=FixedRate(5e-3), steps=steps)
        theirs = literal.fair_tpt(
            case.text, case.plain, views.double(), loss=loss, upgrad=upgrad,  # type: ignore[arg-type]
            rate=("fixed", 5e-3, torch.optim.AdamW), steps=steps,
        )  # fmt: skip
        probabilities = ours.adapt(case.task, views[None]).probabilities[0]
        torch.testing.assert_close(
            probabilities.double(), theirs.probabilities, rtol=0, atol=1e-4
        )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rho", [0.01, 0.1, 0.3, 1.0])
def test_zero_equals_the_literal_algorithm(name: str, rho: float) -> None:
    case = case_of(name, "one")
    for seed in range(8):
        views = views_of(case.task, 20, seed)
        ours = Zero(rho).adapt(case.task, views[None])
        votes, label = literal.zero(case.text, case.plain, views.double(), rho)
        assert int(ours.probabilities[0].argmax()) == label
        torch.testing.assert_close(ours.probabilities[0], votes / votes.sum())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("attributes", ["one", "two independent"])
@pytest.mark.parametrize("lam", [0.0, 1.0, 1000.0])
def test_orthcali_equals_a_numerical_minimiser(
    name: str, attributes: str, lam: float
) -> None:
    case = case_of(name, attributes)
    views = views_of(case.task)
    ours = OrthCali(lam).adapt(case.task, views[None]).probabilities[0]
    theirs = literal.orthcali(case.text, case.plain, views.double(), lam)
    torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lam", [0.0, 10.0])
def test_projection_after_tuning(name: str, lam: float) -> None:
    case = case_of(name, "one")
    views = views_of(case.task)
    method = FairTPT(rate=ELRA()) >> OrthCali(lam)
    ours = method.adapt(case.task, views[None])
    tuned = literal.fair_tpt(case.text, case.plain, views.double())
    theirs = literal.orthcali(
        case.text, case.plain, views.double(), lam, context=tuned.context
    )
    torch.testing.assert_close(
        ours.probabilities[0], theirs.to(ours.probabilities.dtype), rtol=0, atol=1e-4
    )
