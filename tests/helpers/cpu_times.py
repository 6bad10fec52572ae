"""``pytest -p cpu_times``: CPU seconds of tests and files, children included.

The first test that uses a shared fixture pays for it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

_SPENT: Counter[str] = Counter()
_STARTED = pytest.StashKey[float]()


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    if call.when == "teardown":
        item.user_properties.append(
            ("cpu", _cpu_seconds() - item.config.stash[_STARTED])
        )
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    item.config.stash[_STARTED] = _cpu_seconds()
    return (yield)


def pytest_runtest_logreport(report: Any) -> None:
    _SPENT[report.nodeid] += sum(
        n for name, n in report.user_properties if name == "cpu"
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    files: Counter[str] = Counter()
    for test, seconds in _SPENT.items():
        files[test.partition("::")[0]] += seconds
    for title, spent in (("files", files), ("tests", _SPENT)):
        terminalreporter.section(
            f"CPU seconds of {title}, {sum(spent.values()):.0f} in all"
        )
        for name, seconds in spent.most_common(60):
            terminalreporter.write_line(f"{seconds:8.2f}  {name}")
