"""How exact answers are after long steps of ELRA.

    python tests/oracles/long_steps.py [--images 48] [--seeds 10] [--save FILE] [--against FILE]

FairTPT and FairTPT-MO with each loss at their defaults, on the drawn world and on small towers with
random weights: beside the literal algorithm in float64, and in a batch of others. With ``--save``
here and ``--against`` in another process the same of two settings of a processor, such as
``ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE``.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

if __name__ == "__main__":
    home = Path(__file__).parents[1]
    sys.path[:0] = [str(home / folder) for folder in ("helpers", "methods")]

import literal
from internals import LONG_RELATIVE_STEP, TASKS, Prompt, Task

from fair_tta import FairTPT, FairTPTClassifier, FairTPTMO, Templates
from fair_tta.methods import SLoss, SuperTSLoss, TSLoss

LOSSES: dict[str, Any] = {"S": SLoss(), "TS": TSLoss(), "super-TS": SuperTSLoss()}
SHORT_TOLERANCE = 1e-4
LONG_TOLERANCE = 1e-3  # five times the largest of 387 answers (docs/methods.md)
EDGES = (0.0, LONG_RELATIVE_STEP, 10.0, 100.0, math.inf)


def tolerance(relative_step: float) -> float:
    """How far a probability may be from that of exact arithmetic, or of another batch."""
    return SHORT_TOLERANCE if relative_step <= LONG_RELATIVE_STEP else LONG_TOLERANCE


@dataclass(frozen=True)
class Question:
    """A task of the library, the same for the literal algorithm, and views of images."""

    name: str
    task: Task
    text: literal.LiteralText
    plain: literal.Task
    views: Tensor


def parts(prompts: list[Prompt]) -> list[literal.Prompt]:
    """Prompts as the literal algorithm has them."""
    return [
        [(part.text, part.slot is not None) for part in prompt.parts]
        for prompt in prompts
    ]


def drawn_question(
    name: str, images: int, seed: int = 77, scale: float | None = None
) -> Question:
    """Return a task of the drawn world with a twin of its model in float64.

    Its inverse temperature is the model's own, 8.5; those of real CLIPs are 100.
    """
    world = TASKS[name]
    names = world.targets, world.sensitive, world.template
    clf = FairTPTClassifier("miniature", *names, scale=scale)
    backend: Any = clf._backend
    twin = copy.deepcopy(backend.model).double().eval()
    templates = Templates.from_sentence(world.template)
    attributes = clf._task.sensitive.values()
    joint = [
        [
            parts(templates._joint_prompts({y: y}, names))
            for y in clf._task.targets.values()
        ]
        for names in attributes
    ]
    plain = literal.Task(
        parts(templates._target_prompts(clf._task.targets)),
        [parts(templates._sensitive_prompts(names)) for names in attributes],
        joint,
    )
    views = clf.encode([drawn.image for drawn in world.draw(images, seed=seed)])
    text = literal.LiteralText(twin, "hf", backend.tokenizer)
    text.scale = text.scale if scale is None else scale
    return Question(name, clf._task, text, plain, views)


@dataclass(frozen=True)
class Answer:
    """Of one image: how far the step went, and its probabilities by three ways."""

    relative_step: float
    probabilities: list[float]
    alone: list[float]
    exact: list[float]


def answers(
    question: Question, method: type[FairTPT], loss: str, is_exact: bool = True
) -> Iterator[Answer]:
    """Of each image, at the defaults of the method."""
    adapter = method(loss=LOSSES[loss])
    together = adapter.adapt(question.task, question.views)
    assert together.relative_step is not None
    for i, views in enumerate(question.views):
        single = adapter.adapt(question.task, views[None])
        batched = together.probabilities[i].tolist()
        step = float(together.relative_step[i])
        exact = batched
        if is_exact:
            result = literal.fair_tpt(
                question.text,
                question.plain,
                views.double(),
                loss=loss,  # type: ignore[arg-type]
                upgrad=method is FairTPTMO,
            )
            step, exact = result.relative_step, result.probabilities.tolist()
        yield Answer(step, batched, single.probabilities[0].tolist(), exact)


def largest(first: list[float], second: list[float]) -> float:
    """The largest difference."""
    return max(abs(a - b) for a, b in zip(first, second, strict=True))


def _questions(images: int, seeds: int) -> Iterator[Question]:
    for name in TASKS:
        yield drawn_question(name, images)
    from test_against_literal import MODELS, case_of, views_of

    for name, attributes in product(MODELS, ("one", "two independent")):
        case = case_of(name, attributes)
        views = torch.stack([views_of(case.task, seed=seed) for seed in range(seeds)])
        yield Question(f"{name}, {attributes}", case.task, case.text, case.plain, views)


def _print(title: str, steps: list[float], errors: list[float]) -> None:
    print(title)
    for low, high in pairwise(EDGES):
        in_range = [
            e for step, e in zip(steps, errors, strict=True) if low < step <= high
        ]
        if in_range:
            median = np.median(in_range)
            figures = f"n {len(in_range)}, median {median:.1e}, max {max(in_range):.1e}"
            print(f"  steps {low:g} to {high:g}: {figures}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=48, help="of each drawn task")
    parser.add_argument("--seeds", type=int, default=10, help="of each tower")
    parser.add_argument("--save", type=Path, help="keep the answers here")
    parser.add_argument(
        "--against", type=Path, help="compare with answers that were kept"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = [
        answer
        for question in _questions(options.images, options.seeds)
        for method, loss in product((FairTPT, FairTPTMO), LOSSES)
        for answer in answers(question, method, loss, is_exact=options.against is None)
    ]
    steps = [answer.relative_step for answer in records]
    if options.save:
        options.save.write_text(
            json.dumps([[a.relative_step, a.probabilities] for a in records])
        )
    if options.against:
        kept = json.loads(options.against.read_text())
        slow_records = [
            largest(a.probabilities, p) for a, (_, p) in zip(records, kept, strict=True)
        ]
        _print(
            "beside the answers that were kept",
            [step for step, _ in kept],
            slow_records,
        )
        return
    print(f"longest step: {max(steps):.0f}")
    _print(
        "beside exact arithmetic",
        steps,
        [largest(a.probabilities, a.exact) for a in records],
    )
    _print(
        "alone and in a batch",
        steps,
        [largest(a.probabilities, a.alone) for a in records],
    )


if __name__ == "__main__":
    main()
