"""What a bound of two relative steps changes on the drawn world.

    python benchmarks/elra_bound.py [--seeds 2] [--images 60]

Answers the same images with `ELRA()`, the paper's rule, and with `ELRA(max_relative_step=2)`, and
writes benchmarks/results/elra-bound.md and elra-bound/.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from itertools import product

import numpy as np
import torch
import transformers
from result_files import table, write_results
from rich.progress import track

from fair_tta import ELRA, FairTPT, FairTPTClassifier, FairTPTMO, Prediction
from fair_tta.extend import Loss
from fair_tta.methods import SLoss, SuperTSLoss, TSLoss
from fair_tta.miniature._world import TASKS, MiniatureTask

FIRST_SEED = 1000  # as in claims.py
BOUND = 2.0
METHODS: dict[str, type[FairTPT]] = {"FairTPT": FairTPT, "FairTPT-MO": FairTPTMO}
LOSSES: dict[str, Loss] = {"S": SLoss(), "TS": TSLoss(), "super-TS": SuperTSLoss()}
INTRODUCTION = """# What a bound on ELRA's steps changes

`python benchmarks/elra_bound.py` writes this file. The same drawn images with `ELRA()`, the paper's
rule, and with `ELRA(max_relative_step=2)`. Steps are relative to the norm of the context. What it
says: docs/reproducing.md."""
HEAD = (
    "task",
    "method",
    "loss",
    "median step",
    "longest",
    "steps beyond 2, %",
    "labels changed by the bound, %",
    "largest change of a probability",
    "accuracy, %",
    "with the bound, %",
)


def rows_of(task: MiniatureTask, seeds: range, images: int) -> Iterator[list[str]]:
    """A row for each method and loss."""
    clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
    drawn = [
        drawn_image for seed in seeds for drawn_image in task.draw(images, seed=seed)
    ]
    for (name, method), (loss_name, loss) in product(METHODS.items(), LOSSES.items()):
        free, bounded = (
            clf.with_adapter(
                method(loss=loss, rate=ELRA(max_relative_step=bound))
            ).predict([drawn_image.image for drawn_image in drawn])
            for bound in (float("inf"), BOUND)
        )
        steps = np.array([p.relative_step or 0.0 for p in free])
        pairs = list(zip(free, bounded, strict=True))
        differ = [first.label != second.label for first, second in pairs]
        distances = [farthest(first, second) for first, second in pairs]
        right, right_bounded = (
            np.mean(
                [
                    p.label == drawn_image.target
                    for p, drawn_image in zip(answers, drawn, strict=True)
                ]
            )
            for answers in (free, bounded)
        )
        yield [
            task.name,
            name,
            loss_name,
            f"{np.median(steps):.2f}",
            f"{steps.max():.3g}",
            f"{100 * np.mean(steps > BOUND):.0f}",
            f"{100 * np.mean(differ):.1f}",
            f"{max(distances):.2f}",
            f"{100 * right:.1f}",
            f"{100 * right_bounded:.1f}",
        ]


def farthest(one: Prediction, other: Prediction) -> float:
    """The largest difference of two answers' probabilities."""
    return max(
        abs(p - other.probabilities[label]) for label, p in one.probabilities.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--images", type=int, default=60, help="for each seed and task")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    work = (
        row for task in TASKS.values() for row in rows_of(task, seeds, options.images)
    )
    rows = list(track(work, "running", total=len(TASKS) * len(METHODS) * len(LOSSES)))
    text = (
        f"{table(HEAD, rows)}\n\n"
        f"n = {options.seeds * options.images} images of each task ({options.seeds} seeds from "
        f"{FIRST_SEED} on), 64 views, lambda 100; one thread of {platform.machine()}, torch "
        f"{torch.__version__}, float32."
    )
    print(text)
    write_results("elra-bound", INTRODUCTION, {"bound": text})


if __name__ == "__main__":
    main()
