"""What a grid costs when features are kept, and what several processes gain.

    python benchmarks/bank.py                        everything, about an hour on two cores
    python benchmarks/bank.py --part miniature       the elra-ablation grid against Zero alone
    python benchmarks/bank.py --part large           ViT-B/32: the bank, then 60 settings
    python benchmarks/bank.py --part workers         two workers against one with two threads
    python benchmarks/bank.py --images 20            fewer images, for a quick look

ViT-B/32 has random weights: time does not depend on them. Nothing here is asserted in a test; run
it on a quiet machine. Threads that wait for one another on busy cores can make small models ten
times slower; then --threads 1 still gives a fair ratio for the first two parts.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

from fair_tta import ZeroShot
from fair_tta.lab._runs.local import Local
from fair_tta.lab._runs.runner import Engine
from fair_tta.lab.bench._grids import GRIDS, Grid, Setting
from fair_tta.lab.bench._run import prepare
from fair_tta.lab.bench._sources import (
    Reader,
    TaskSamples,
    gather,
    miniature_reader,
    miniature_tasks,
)
from fair_tta.lab.data import BenchmarkTask, read_folder

ZERO_ALONE = Grid("zero-alone", "", (GRIDS["main-L14"].settings[2],))


def timed(
    grid: Grid,
    parts: list[TaskSamples],
    model: Any,
    out: Path,
    bank: Path,
    engine: Engine | None = None,
) -> float:
    """Seconds of a run; loading the model does not count, starting processes does."""
    prepared = prepare(replace(grid, tasks=tuple(p.task for p in parts)), parts, model,
                       out=out, bank=bank, engine=engine)  # fmt: skip
    start = time.perf_counter()
    prepared.run()
    return time.perf_counter() - start


def grid_of_miniature(home: Path, images: int) -> None:
    (birds, *_) = miniature_tasks()
    parts, _ = gather([birds], miniature_reader(home / "pictures", images), images=images,
                      seeds=[0])  # fmt: skip
    timed(ZERO_ALONE, gather([birds], miniature_reader(home / "warm", 16), images=16, seeds=[0])[0],
          "miniature", home / "warm-out", home / "warm-bank")  # fmt: skip
    zero = timed(ZERO_ALONE, parts, "miniature", home / "zero", home / "bank-1")
    whole = timed(GRIDS["elra-ablation"], parts, "miniature", home / "whole", home / "bank-2")
    more = replace(GRIDS["elra-ablation"], settings=GRIDS["loss-choice"].settings)
    added = timed(more, parts, "miniature", home / "whole", home / "bank-2")
    count = len(GRIDS["elra-ablation"].settings)
    print(f"miniature, {images} images: Zero alone {zero:.1f} s; elra-ablation ({count} settings) "
          f"{whole:.1f} s, {whole / zero:.2f} times; loss-choice added {added:.1f} s")  # fmt: skip


def photos(folder: Path, images: int, others: int = 0) -> tuple[list[TaskSamples], Reader]:
    """Smooth random pictures of 500 x 375 pixels, as Waterbirds (2 x 2 names), FairFace (2 x 7).

    And a reader of them and of so many others.
    """
    tasks = [t for t in GRIDS["main-L14"].tasks if t.dataset in ("Waterbirds", "FairFace")]
    tasks.sort(key=lambda t: sum(len(names) for names in t.sensitive.values()))
    columns = {t.target: list(t.targets) for t in tasks}
    columns |= {a: list(names) for t in tasks for a, names in t.sensitive.items()}
    lines = [",".join(["path", *columns])]
    folder.mkdir(parents=True)
    for i in range(images + others):
        random = np.random.default_rng(i)
        pixels = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        picture = Image.fromarray(pixels).resize((500, 375), Image.Resampling.BICUBIC)
        picture.save(folder / f"{i}.jpg")
        lines.append(",".join([f"{i}.jpg", *(v[i % len(v)] for v in columns.values())]))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")

    def read(task: BenchmarkTask) -> Any:
        return read_folder(folder, folder / "labels.csv", target_column=task.target,
                           sensitive_columns=[*task.sensitive], task=task)  # fmt: skip

    return gather(tasks, read, images=images, seeds=[0])[0], read


def sixty() -> Grid:
    """Sixty settings: the scans of Zero, OrthCali and TPT, the ELRA ablation, the TS loss."""
    names = ("zero-scan", "orthcali-scan", "tpt-scan", "elra-ablation", "loss-choice")
    found: dict[str, Setting] = {}
    for name in names:
        for setting in GRIDS[name].settings:
            found.setdefault(repr(setting.adapter), setting)
    return Grid("sixty", "", tuple(found.values())[:60])


def vit_b_32() -> Any:
    import open_clip

    logging.disable(logging.WARNING)
    model, _, preprocess = open_clip.create_model_and_transforms("ViT-B-32")
    return model.eval(), preprocess, open_clip.get_tokenizer("ViT-B-32")


def grid_of_large(home: Path, images: int) -> None:
    model, (parts, _) = vit_b_32(), photos(home / "photos", images)
    only = Grid("bank", "", (Setting("ZeroShot", ZeroShot()),))
    bank = timed(only, parts[:1], model, home / "bank-out", home / "bank")
    print(f"ViT-B/32, {images} images: bank {bank:.1f} s ({bank / images:.2f} s per image)")
    grid = sixty()
    for part in parts:
        settings = timed(grid, [part], model, home / f"sixty-{part.task.target}", home / "bank")
        print(f"  {len(grid.settings)} settings on {part.task}: {settings:.1f} s; together "
              f"{(bank + settings) / bank:.2f} times the bank")  # fmt: skip


def workers(home: Path, images: int, name: str, engines: list[Engine]) -> None:
    """Throughput without the start: the same run with few and with many images."""
    (birds, *_) = miniature_tasks()
    seconds = []
    for i, engine in enumerate(engines):
        torch.set_num_threads(2)
        times = []
        for n in (32, 32 + images):
            parts, _ = gather([birds], miniature_reader(home / f"pictures{n}", n), images=n,
                              seeds=[0])  # fmt: skip
            place = home / f"workers-{i}-{n}"
            times.append(
                timed(GRIDS["main-B32"], parts, "miniature", place, place / "bank", engine)
            )
        seconds.append(times[1] - times[0])
    print(f"miniature, {images} images, 6 settings, {name}: one worker with two threads "
          f"{seconds[0]:.1f} s, two workers with one thread {seconds[1]:.1f} s, throughput "
          f"{seconds[0] / seconds[1]:.2f} times")  # fmt: skip


def on_this_machine(home: Path, images: int) -> None:
    workers(home, images, "local", [Local(1), Local(2)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=["miniature", "large", "workers"])
    parser.add_argument("--images", type=int)
    parser.add_argument("--threads", type=int, help="1 if other processes keep the cores busy")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    transformers.utils.logging.disable_progress_bar()
    print(
        f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    for part, work, usual in (
        ("miniature", grid_of_miniature, 500),
        ("large", grid_of_large, 200),
        ("workers", on_this_machine, 500),
    ):
        if options.part in (None, part):
            with tempfile.TemporaryDirectory() as folder:
                work(Path(folder), options.images or usual)
