"""What is to be run: settings of methods, and tables of settings on tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fair_tta.adapters import Adapter
from fair_tta.data import MAIN_TASKS, BenchmarkTask
from fair_tta.errors import FairTTAError
from fair_tta.runs.plain_form import adapter_settings


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
        names = [setting.name for setting in self.settings]
        if not all(name.strip() for name in names):
            raise FairTTAError(f"settings should have names (got {names}).")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FairTTAError(f"settings should have distinct names ({twice} came twice).")
        if not self.settings or not self.tasks:
            raise FairTTAError("a table should have at least one setting and one task.")
        first: dict[str, str] = {}
        for setting in self.settings:
            key = json.dumps(adapter_settings(setting.adapter), sort_keys=True)
            if key in first:
                raise FairTTAError(
                    f"settings should differ ({first[key]!r} and {setting.name!r} are both "
                    f"{setting.adapter!r})."
                )
            first[key] = setting.name
        tasks = [str(task) for task in self.tasks]
        twice = sorted({task for task in tasks if tasks.count(task) > 1})
        if twice:
            raise FairTTAError(f"tasks should differ ({twice} came twice).")
