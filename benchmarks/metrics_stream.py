"""CPU seconds and memory of `MetricStream` on many rows, in batches.

    python benchmarks/metrics_stream.py [--rows 10000000] [--batch 100000] [--groups 7] [--text]

Labels and answers of two classes and groups are numpy arrays of integers, or with --text of names.
Batches are drawn one at a time and their time is not counted; half of the rows go through a second
stream whose state is merged. Memory is the peak of the process beyond what it held before the first
batch. Set OMP_NUM_THREADS=1 for one thread.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from fair_tta.metrics import MetricStream


def peak() -> float:
    """MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 10_000_000), ("batch", 100_000), ("groups", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--text", action="store_true")
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    classes, groups = np.arange(2), np.arange(options.groups)
    if options.text:
        classes, groups = (
            np.array(["cat", "dog"]),
            np.array([f"group {g}" for g in groups]),
        )
    streams = [MetricStream(), MetricStream()]
    before, counting = peak(), 0.0
    for start in range(0, options.rows, options.batch):
        n = min(options.batch, options.rows - start)
        truth, group = (
            generator.integers(0, 2, n),
            generator.integers(0, options.groups, n),
        )
        answer = np.where(generator.random(n) < 0.9 - 0.02 * group, truth, 1 - truth)
        clock = time.process_time()
        stream = streams[start // options.batch % 2]
        stream.update(classes[truth], classes[answer], groups[group])
        counting += time.process_time() - clock
    clock = time.process_time()
    figures = streams[0].merge(streams[1]).compute()
    computing = time.process_time() - clock
    odds = figures["equalized_odds_difference"]
    print(f"EOD {odds.value:.4f} [{odds.low:.4f}, {odds.high:.4f}], n = {odds.n}")
    print(
        f"update {counting:.1f} s, {len(figures)} metrics with intervals {computing:.2f} s,"
        f" peak memory +{peak() - before:.0f} MB"
    )


if __name__ == "__main__":
    main()
