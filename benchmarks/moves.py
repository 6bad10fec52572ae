"""How far answers move on the miniature world, and how far they would have to move to change.

    python benchmarks/moves.py [--seeds 2] [--pictures 120]

Distances are those of `fair_tta.metrics.simplex`, between probabilities before and after.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fair_tta import ELRA, TPT, FairTPT, FairTPTMO, OrthCali
from fair_tta.extend import Adapter
from fair_tta.lab._demo import run_episodes
from fair_tta.miniature._world import TASKS

FIRST_SEED = 1000  # as in claims.py
METHODS: dict[str, Adapter] = {
    "TPT": TPT(),
    "OrthCali 0": OrthCali(lam=0),
    "FairTPT": FairTPT(),
    "FairTPT, beta 0.05": FairTPT(rate=ELRA(beta=0.05)),
    "FairTPT, beta 0.2": FairTPT(rate=ELRA(beta=0.2)),
    "FairTPT-MO": FairTPTMO(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--pictures", type=int, default=120, help="for each seed and task")
    options = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    work = run_episodes(TASKS.values(), METHODS, seeds=seeds, images=options.pictures)
    work = track(work, "running", total=len(TASKS) * options.seeds * len(METHODS))
    answers = {
        (episode.task.name, episode.method, episode.seed): episode.predictions for episode in work
    }
    table = Table("task", "method", "answers", "median margin", "median move")
    for column in ("90 % move less than", "could not change, %", "changed"):
        table.add_column(column)
    for task, method in itertools.product(TASKS, METHODS):
        found = [p for seed in seeds for p in answers[task, method, seed]]
        middle, most = np.quantile([p.distance for p in found], [0.5, 0.9])
        margin = np.median([p.flip_margin for p in found])
        certain = 100 * np.mean([p.certified_unchanged for p in found])
        figures = f"{margin:.2f}", f"{middle:.3f}", f"{most:.3f}", f"{certain:.0f}"
        table.add_row(task, method, str(len(found)), *figures, str(sum(p.flipped for p in found)))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
