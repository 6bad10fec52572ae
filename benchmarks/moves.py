"""How far answers move on the miniature world, and how far they would have to move to change.

    python benchmarks/moves.py [--seeds 2] [--pictures 120] [--results]

Distances are those of `fair_tta.metrics.simplex`, between probabilities before and after.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
from result_files import RESULTS, table, write_results
from rich.progress import track

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
HEAD = ("task", "method", "answers", "median margin", "median move", "90 % move less than",
        "could not change, %", "changed")  # fmt: skip
INTRODUCTION = """# How far answers move

`python benchmarks/moves.py --results` writes this file: the drawn world, seeds from 1000 on;
distances between probabilities before and after. What it says: docs/reproducing.md."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--pictures", type=int, default=120, help="for each seed and task"
    )
    parser.add_argument(
        "--results",
        type=Path,
        nargs="?",
        const=RESULTS,
        help="write the table to this folder",
    )
    options = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    work = run_episodes(TASKS.values(), METHODS, seeds=seeds, images=options.pictures)
    work = track(work, "running", total=len(TASKS) * options.seeds * len(METHODS))
    answers = {
        (episode.task.name, episode.method, episode.seed): episode.predictions
        for episode in work
    }
    rows = []
    for task, method in itertools.product(TASKS, METHODS):
        predictions = [p for seed in seeds for p in answers[task, method, seed]]
        middle, most = np.quantile([p.distance for p in predictions], [0.5, 0.9])
        margin = np.median([p.flip_margin for p in predictions])
        certain = 100 * np.mean([p.certified_unchanged for p in predictions])
        figures = f"{margin:.2f}", f"{middle:.3f}", f"{most:.3f}", f"{certain:.0f}"
        rows.append(
            [
                task,
                method,
                str(len(predictions)),
                *figures,
                str(sum(p.flipped for p in predictions)),
            ]
        )
    text = table(HEAD, rows)
    print(text)
    if options.results:
        write_results("moves", INTRODUCTION, {"moves": text}, options.results)


if __name__ == "__main__":
    main()
