"""Pseudo-EOD, which needs no labels, beside the true EOD, on validation pictures of the miniature.

    python benchmarks/perceived.py [--seeds 4] [--pictures 360]

For each attribute on its own and each method: both figures of the same answers, and how they change
from zero-shot; then the rank correlation of the two changes.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fair_tta import OrthCali, metrics
from fair_tta.errors import SmallGroupWarning
from fair_tta.extend import Adapter
from fair_tta.lab._demo import DEMO_METHODS, Episode, run_episodes
from fair_tta.metrics._perceived import pseudo_equalized_odds_difference
from fair_tta.metrics._types import Floats
from fair_tta.miniature._world import TASKS

TRIED: dict[str, Adapter] = {**DEMO_METHODS, "orthcali:lam=0": OrthCali(lam=0)}


def true_and_pseudo(episodes: list[Episode], attribute: str) -> tuple[float, float]:
    """Pseudo-EOD and EOD of the answers of a method to pictures of several seeds, in percent."""
    targets = list(episodes[0].task.targets)
    answers = [answer for episode in episodes for answer in episode.predictions]
    pictures = [picture for episode in episodes for picture in episode.images]
    labels = [answer.label for answer in answers]
    pseudo = pseudo_equalized_odds_difference(
        [targets.index(label) for label in labels],
        [list(answer.zero_shot.values()) for answer in answers],
        [list(answer.sensitive_zero_shot[attribute].values()) for answer in answers],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        true = metrics.equalized_odds_difference(
            [picture.target for picture in pictures],
            labels,
            [picture.sensitive[attribute] for picture in pictures],
        )
    return 100 * pseudo, 100 * float(true)


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Spearman's; what is tied shares its ranks."""
    columns: list[Floats] = [np.round(x, 9) for x in (a, b)]
    ranks = [(x < x[:, None]).sum(1) + (x == x[:, None]).sum(1) / 2 for x in columns]
    return float(np.corrcoef(*ranks)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument(
        "--pictures", type=int, default=360, help="for each seed and task"
    )
    options = parser.parse_args()
    work = run_episodes(
        TASKS.values(),
        TRIED,
        seeds=range(options.seeds),
        images=options.pictures,
        split="validation",
    )
    episodes: dict[tuple[str, str], list[Episode]] = {}
    for episode in track(
        work, "running", total=len(TASKS) * options.seeds * len(TRIED)
    ):
        episodes.setdefault((episode.task.name, episode.method), []).append(episode)
    table = Table("attribute", "method", "pseudo-EOD", "EOD", "change", "true change")
    changes: dict[str, list[tuple[float, float]]] = {}
    for task in TASKS.values():
        for attribute in task.sensitive:
            base = true_and_pseudo(episodes[task.name, "zero-shot"], attribute)
            for method in TRIED:
                figures = true_and_pseudo(episodes[task.name, method], attribute)
                moved = [
                    figure - first for figure, first in zip(figures, base, strict=True)
                ]
                if method != "zero-shot":
                    changes.setdefault(attribute, []).append((moved[0], moved[1]))
                cells = [f"{x:.1f}" for x in figures] + [f"{x:+.1f}" for x in moved]
                table.add_row(f"{task.name}: {attribute}", method, *cells)
    console = Console(width=100)
    console.print(table)
    together = [pair for pairs in changes.values() for pair in pairs]
    for name, pairs in {**changes, "all together": together}.items():
        pseudo, true = map(list, zip(*pairs, strict=True))
        same_sign = sum(np.sign(round(a, 9)) == np.sign(round(b, 9)) for a, b in pairs)
        console.print(
            f"{name}: rank correlation {rank_correlation(pseudo, true):.2f}, "
            f"same sign {same_sign} of {len(pairs)}"
        )


if __name__ == "__main__":
    main()
