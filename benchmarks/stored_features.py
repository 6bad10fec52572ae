"""What a million stored features cost, next to a plain softmax over the same file.

    OMP_NUM_THREADS=1 python benchmarks/stored_features.py                 a million rows, 1 GB
    OMP_NUM_THREADS=1 python benchmarks/stored_features.py --rows 20000    a try

The file holds rows of 512 numbers in float16, memory-mapped: unit vectors of a cone, as CLIP's are.
There are two classes and one attribute of two values. The plain call is numpy's
``softmax(scale * V @ T.T)`` over chunks of 8,192 rows cast to float32. Jobs take turns, processor
time of one thread counts, medians of some rounds. Memory is what a process of its own needs at most
above what it held before the job; pages of the file, which the system may drop, are not counted
where the system (Linux) tells them apart.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from fair_tta import AssociationCorrection, FairTPTClassifier, Features, ZeroShot

DIM, SCALE, CHUNK = 512, 100.0, 8192
NAMES = {"targets": ["tie", "necklace"], "sensitive": ["man", "woman"]}
JOBS = (
    "plain",
    "zero-shot",
    "association-correction",
    "logit-balance",
    "fit of logit-balance",
)


def cone(rows: int, seed: int, dim: int = DIM) -> np.ndarray:
    """Unit vectors with a common part, in float32."""
    generator = np.random.default_rng(seed)
    common = np.random.default_rng(0).standard_normal(dim, np.float32)
    vectors = common + generator.standard_normal((rows, dim), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def texts() -> dict[str, np.ndarray]:
    """The prompts' features."""
    words = [*NAMES["targets"], *NAMES["sensitive"]]
    return dict(zip((f"a {word}" for word in words), cone(len(words), 1), strict=True))


def write(path: Path, rows: int) -> None:
    """The file of features, some rows at a time."""
    file = np.lib.format.open_memmap(path, "w+", np.float16, (rows, DIM))
    for start in range(0, rows, CHUNK):
        file[start : start + CHUNK] = cone(min(CHUNK, rows - start), 2 + start)
    file.flush()


def plain(array: np.ndarray, target: np.ndarray) -> np.ndarray:
    """What somebody without this library writes."""
    parts = []
    for start in range(0, len(array), CHUNK):
        logits = SCALE * array[start : start + CHUNK].astype(np.float32) @ target.T
        powers = np.exp(logits - logits.max(1, keepdims=True))
        parts.append(powers / powers.sum(1, keepdims=True))
    return np.concatenate(parts)


def jobs(path: Path) -> dict[str, Callable[[], Any]]:
    """What is measured, by name; fitted on some rows."""
    array, table = np.load(path, mmap_mode="r"), texts()
    target = np.stack([table[f"a {name}"] for name in NAMES["targets"]])
    clf = FairTPTClassifier.from_features(
        table, **NAMES, template="a {sensitive} {target}"
    )
    balance = clf.with_adapter("logit-balance")
    fitted = balance.fit(Features(array[:4096])).adapter
    methods = [ZeroShot(), AssociationCorrection(), fitted]

    def asked(adapter: Any) -> Callable[[], Any]:
        return lambda: clf.with_adapter(adapter).predict_proba(Features(array))

    calls = [
        lambda: plain(array, target),
        *map(asked, methods),
        lambda: clf.with_adapter("logit-balance").fit(Features(array)),
    ]
    return dict(zip(JOBS, calls, strict=True))


def _status(field: str) -> int:
    """Bytes that the system reports of this process; 0 where it does not."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next(
        (1024 * int(x.split()[1]) for x in text.splitlines() if x.startswith(field)), 0
    )


def _peak(path: Path, job: str, answer: Any) -> None:
    """Most memory of a job besides pages of files, looked at every few milliseconds."""
    call, done, peaks = jobs(path)[job], threading.Event(), [_status("RssAnon")]

    def watch() -> None:
        while not done.wait(0.005):
            peaks.append(_status("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    answer.put(max(peaks) - peaks[0])


def peak(path: Path, job: str) -> int:
    """The same in a process of its own."""
    context: Any = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_peak, args=(path, job, answer))
    process.start()
    message = answer.get()
    process.join()
    return int(message)


def measure(
    rows: int, rounds: int, folder: Path
) -> dict[str, tuple[float, float, float, int]]:
    """Of each job: median seconds, median ratio to the plain call, largest ratio, bytes."""
    path = folder / "features.npy"
    write(path, rows)
    calls, rows_of_results = jobs(path), []
    for _ in range(rounds + 1):  # the first warms up
        seconds = []
        for call in calls.values():
            start = time.process_time()
            call()
            seconds.append(time.process_time() - start)
        rows_of_results.append(seconds)
    rounds_of = list(zip(*rows_of_results[1:], strict=True))
    result = {}
    for job, job_seconds in zip(calls, rounds_of, strict=True):
        ratios = [a / b for a, b in zip(job_seconds, rounds_of[0], strict=True)]
        result[job] = median(job_seconds), median(ratios), max(ratios), peak(path, job)
    return result


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the file goes for a while")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measurements = measure(options.rows, options.rounds, Path(folder))
    print(f"{options.rows:,} rows of {DIM} float16, medians of {options.rounds} rounds, "
          f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS')}")  # fmt: skip
    print("job                      seconds   times plain (largest)   memory above")
    for job, (seconds, ratio, largest, memory) in measurements.items():
        print(
            f"{job:24} {seconds:7.2f}   {ratio:11.2f} ({largest:.2f})   {memory / 2**20:9.0f} MiB"
        )


if __name__ == "__main__":
    main()
