"""Kills at moments spread over the whole run, several in a row, and then the end."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from random import Random

from disturbed import Disturbed
from stage import Stage

CHAINS = (1, 2, 3, 4)
"""How many kills in a row before a run is let to its end."""


@dataclass
class Killed:
    """What became of the kills of a command."""

    kills: int = 0
    finished: int = 0
    quarters: Counter[int] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        """One line."""
        within = sum(self.quarters.values())
        spread = "/".join(str(self.quarters[quarter]) for quarter in range(4))
        kinds = ", ".join(f"{n} at a {kind}" for kind, n in sorted(self.kinds.items()))
        return (
            f"{self.kills} kills, {within} within the run (quarters {spread}; {kinds}), "
            f"{self.finished} runs ended"
        )


def kill_often(stage: Stage, command: Disturbed, numbers: Sequence[int]) -> Killed:
    """Kill a command, go on, kill it again, and compare what it leaves in the end.

    Args:
        stage: where.
        command: which.
        numbers: of the kills; a number always gives the same moment.
    """
    killed, total = Killed(), stage.whole(command).moments
    for chain in _chains(numbers):
        out, position = stage.folder(), 0.0
        chosen = [Random(f"{command.name} {number}") for number in chain]
        for place in sorted(moment.random() for moment in chosen):
            at = max(1, round((place - position) * total))
            moments = stage.moments(at)
            ended = stage.run(command, out, moments)
            killed.kills += 1
            if ended.code == -signal.SIGKILL:
                killed.quarters[min(3, int(4 * place))] += 1
                killed.kinds[ended.note["kind"]] += 1
            else:
                assert ended.code == 0, (
                    f"kills {chain}: exit code {ended.code}: {ended.errors}"
                )
            position = place
        try:
            stage.finish(command, out)
        except AssertionError as error:
            raise AssertionError(f"kills {chain}: {error}") from error
        killed.finished += 1
    return killed


def _chains(numbers: Sequence[int]) -> Iterator[list[int]]:
    remaining = iter(numbers)
    for length in cycle(CHAINS):
        chain = list(islice(remaining, length))
        if not chain:
            return
        yield chain
