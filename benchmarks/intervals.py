"""CPU seconds of all intervals of an audit of ten runs: figures, changes, changes judged together.

    python benchmarks/intervals.py [--rows 10000] [--groups 10] [--classes 2] [--runs 10]

Interleaved with nothing, repeated five times, median; set OMP_NUM_THREADS=1 for one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import numpy as np

from fair_tta.auditing._run import corrected_differences
from fair_tta.metrics import Bootstrap
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._scores import Scores
from fair_tta.metrics.definitions import METRICS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("rows", 10_000),
        ("groups", 10),
        ("classes", 2),
        ("runs", 10),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    truth = generator.integers(0, options.classes, options.rows)
    group = generator.integers(0, options.groups, options.rows)
    rates = generator.uniform(0.5, 0.95, (options.groups, options.classes))[
        group, truth
    ]
    wrong = (
        truth + generator.integers(1, options.classes, options.rows)
    ) % options.classes
    first = np.where(generator.random(options.rows) < rates, truth, wrong)
    other_runs = [
        np.where(generator.random(options.rows) < 0.1, truth, first)
        for _ in range(options.runs - 1)
    ]
    columns = AnswerTable(
        tuple(range(options.classes)),
        {"group": tuple(range(options.groups))},
        truth,
        group,
        (first, *other_runs),
        (Scores(),) * options.runs,
    )
    bootstrap, parts = Bootstrap(), ("figures", "changes", "together")
    seconds: dict[str, list[float]] = {part: [] for part in (*parts, "all")}
    for _ in range(5):
        columns = replace(columns)  # nothing is kept from before
        clock = [time.process_time()]
        for run in range(options.runs):
            for metric in METRICS.values():
                metric.estimate(columns, run, bootstrap)
        clock.append(time.process_time())
        for run in range(1, options.runs):
            for metric in METRICS.values():
                if metric.is_compared:
                    metric.difference(columns, 0, run, bootstrap)
        clock.append(time.process_time())
        corrected_differences(columns, bootstrap)
        clock.append(time.process_time())
        for part, start, end in zip(parts, clock[:-1], clock[1:], strict=True):
            seconds[part].append(end - start)
        seconds["all"].append(clock[-1] - clock[0])
    print(
        ", ".join(
            f"{part} {statistics.median(part_seconds):.2f} s"
            for part, part_seconds in seconds.items()
        )
    )


if __name__ == "__main__":
    main()
