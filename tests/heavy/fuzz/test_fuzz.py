"""The first inputs of `make fuzz`, by every door."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from doors import DOORS
from fuzzing import outcome

INPUTS = 25


@pytest.mark.parametrize("door", DOORS)
def test_every_outcome_is_an_answer_a_refusal_or_a_reason(
    door: str, tmp_path: Path
) -> None:
    outcomes = Counter(outcome(door, number, tmp_path) for number in range(INPUTS))
    assert outcomes.total() == INPUTS
    assert set(outcomes) <= {"answer", "FairTTAError", "row with a reason"}
