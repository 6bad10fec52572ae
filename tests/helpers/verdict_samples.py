"""Audits with so many right answers in each group, for tests of verdicts."""

from __future__ import annotations

from typing import Any

from fair_tta import ZeroShot, audit
from fair_tta.auditing import Audit

Rates = dict[tuple[str, str], tuple[int, int]]


def answers(rates: Rates) -> tuple[list[str], list[str], list[str]]:
    """Labels, answers and groups with so many right of so many in each cell."""
    truth, answers_given, group = [], [], []
    for (target, value), (right, n) in rates.items():
        wrong = "dog" if target == "cat" else "cat"
        truth += [target] * n
        answers_given += [target] * right + [wrong] * (n - right)
        group += [value] * n
    return truth, answers_given, group


EVEN = {("cat", "in"): (90, 100), ("cat", "out"): (90, 100), ("dog", "in"): (90, 100)}
CLEAR = {**EVEN, ("dog", "out"): (20, 100)}
BETTER = {**EVEN, ("dog", "out"): (80, 100)}
FAIRER = {**dict.fromkeys(EVEN, (400, 500)), ("dog", "out"): (330, 500)}


def made(
    rates: Rates, name: str = "ZeroShot", adapter: Any = None, **options: Any
) -> Audit:
    truth, answers_given, group = answers(rates)
    adapter = ZeroShot() if name == "ZeroShot" else adapter
    return audit(
        truth, answers_given, {"place": group}, name=name, adapter=adapter, **options
    )
