"""Kills, full and read-only disks, vanishing folders, two writers, clocks that jump: the rows at
the end are those of an undisturbed run.

    python tests/heavy/chaos/chaos.py  # `make chaos`: 100 kills and the rest
    python tests/heavy/chaos/chaos.py --kills 300 --first 100    # others
    python tests/heavy/chaos/chaos.py --only "full disk" "two writers, fit"

One line for each scenario; the exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

# A script of its own, for which no pytest sets the path.
sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

# isort: split
from disturbed import COMMANDS, Disturbed, make_world
from killing import kill_often
from scenarios import SCENARIOS
from stage import Skipped, Stage

Scenario = Callable[[Stage], object]

PRELOADED = (
    "matplotlib.figure open_clip pyarrow.parquet fair_tta.lab.cli._options fair_tta.lab._folder "
    "fair_tta.lab.report"
).split()


def preload() -> None:
    """All that children need, before they are forked; no model, no thread."""
    for name in PRELOADED:
        import_module(name)
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()


def turn(number: int) -> Disturbed:
    """Return the command that this kill is for: they take turns."""
    return COMMANDS[number % len(COMMANDS)]


def planned(kills: int, first: int) -> Iterator[tuple[str, Scenario]]:
    """All scenarios by name."""
    numbers: dict[Disturbed, list[int]] = {}
    for number in range(first, first + kills):
        numbers.setdefault(turn(number), []).append(number)
    for command, numbers_of_command in numbers.items():
        yield (
            f"kills of {command.name}",
            partial(kill_often, command=command, numbers=numbers_of_command),
        )
    for name, scenario in SCENARIOS.items():
        for command in COMMANDS:
            yield f"{name}, {command.name}", _on(scenario, command)


def _on(scenario: Callable[[Stage, Disturbed], str], command: Disturbed) -> Scenario:
    return lambda stage: scenario(stage, command)


def main() -> int:
    """Run all, and say what became of each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=100, help="in all")
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first kill"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="scenarios with one of these in their names",
    )
    options = parser.parse_args()
    if sys.platform != "linux":
        print("skipped: only Linux forks a process that has loaded torch")
        return 0
    preload()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(make_world(Path(folder) / "world"), Path(folder) / "scratch")
        for name, scenario in planned(options.kills, options.first):
            if not any(part in name for part in options.only):
                continue
            start = time.monotonic()
            try:
                line = f"{scenario(stage)}: the same at the end"
            except Skipped as why:
                line = f"skipped: {why}"
            except AssertionError as error:
                line, failed = f"FAILED: {error}", failed + 1
            print(f"{name:34} {line} ({time.monotonic() - start:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
