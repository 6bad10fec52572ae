"""On the drawn world, at the defaults: answers are those of exact arithmetic, in any batch.

To 1e-4 for steps of ELRA up to twice the norm of the context, to 1e-3 beyond: see
``tests/oracles/long_steps.py``, which measures it on more cases.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import long_steps
import pytest
from internals import LONG_RELATIVE_STEP, TASKS

from fair_tta import FairTPT, FairTPTMO

METHODS = [(FairTPT, "super-TS"), *product([FairTPTMO], long_steps.LOSSES)]


@lru_cache
def question(name: str, scale: float | None = None) -> long_steps.Question:
    return long_steps.drawn_question(name, 4, scale=scale)


@pytest.mark.parametrize(
    ("name", "scale"), [*product(TASKS, [None]), ("birds", 40.0), ("birds", 100.0)]
)
@pytest.mark.parametrize(("method", "loss"), METHODS)
def test_answers_are_those_of_exact_arithmetic(
    name: str, scale: float | None, method: type[FairTPT], loss: str
) -> None:
    """With gradients in float32 a quarter of the answers at 100 were off by more than 1e-3."""
    for answer in long_steps.answers(question(name, scale), method, loss):
        allowed = long_steps.tolerance(answer.relative_step)
        for expected in (answer.exact, answer.alone):
            assert long_steps.largest(answer.probabilities, expected) <= allowed, answer


def test_steps_are_long() -> None:
    """So that the test above is about them."""
    found = long_steps.answers(question("scenes"), FairTPTMO, "S", is_exact=False)
    assert max(answer.relative_step for answer in found) > 2 * LONG_RELATIVE_STEP
