"""What the whole field costs over one feature bank, for methods that need no gradient.

    OMP_NUM_THREADS=1 python benchmarks/field_cost.py                      both models
    OMP_NUM_THREADS=1 python benchmarks/field_cost.py --part miniature     one of them

The bank is a table with one method on a fresh bank: pictures are decoded, 64 views of each are made
and encoded, and written. The field is what `fair-tta bench field` adds to it: fitting on as many
reference pictures as there are test pictures, and the answers of every method. Both take turns, the
processor's time counts, medians of some rounds. ViT-B/32 has random weights.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from bank import ZERO_ALONE, photos, vit_b_32

from fair_tta._models import resolve
from fair_tta.lab.bench._grids import Grid, every_method
from fair_tta.lab.bench._run import TableReference, prepare
from fair_tta.lab.bench._sources import TaskSamples, gather, miniature_reader, miniature_tasks


def without_gradient() -> Grid:
    """The methods of `fair-tta bench field` that need none."""
    settings = [s for s in every_method() if not s.adapter.needs.prompt_gradient]
    return Grid("field", "", tuple(s for s in settings if not s.adapter.needs.pixels))


def seconds(grid: Grid, part: TaskSamples, model: Any, out: Path, bank: Path, reference) -> float:
    """Of the processor, from fitting to the finished table."""
    start = time.process_time()
    tasks = replace(grid, tasks=(part.task,))
    prepare(tasks, [part], model, out=out, bank=bank, reference=reference).run()
    return time.process_time() - start


def measure(name: str, model: Any, parts: TaskSamples, read, images: int, rounds: int) -> None:
    grid, found = without_gradient(), []
    for k in range(rounds + 1):  # the first warms up
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            reference = TableReference(read, images=images, seed=k)
            bank = seconds(ZERO_ALONE, parts, model, home / "one", home / "bank", None)
            field = seconds(grid, parts, model, home / "field", home / "bank", reference)
            found.append((bank, field, (bank + field) / bank))
    bank, field, ratio = (median(column) for column in zip(*found[1:], strict=True))
    low, high = min(r for *_, r in found[1:]), max(r for *_, r in found[1:])
    print(f"{name}, {images} pictures: bank {1000 * bank / images:.0f} ms per picture, "
          f"{len(grid.settings)} methods {1000 * field / images:.1f} ms more; together "
          f"{ratio:.3f} times the bank ({low:.3f} to {high:.3f}, {rounds} rounds)",
          flush=True)  # fmt: skip


def on_miniature(home: Path, images: int, rounds: int) -> None:
    (birds, *_) = miniature_tasks()
    read = miniature_reader(home / "pictures", 2 * images)
    (part,), _ = gather([birds], read, images=images, seeds=[0])
    measure("miniature", resolve("miniature"), part, read, images, rounds)


def on_vit(home: Path, images: int, rounds: int) -> None:
    (part, *_), read = photos(home / "photos", images, others=images)
    measure("ViT-B/32", vit_b_32(), part, read, images, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["miniature", "ViT-B/32"])
    parser.add_argument("--images", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # small references
    transformers.utils.logging.disable_progress_bar()
    print(f"torch {torch.__version__}, one thread, load {os.getloadavg()[0]:.1f}")
    for name, run, usual in (("miniature", on_miniature, 100), ("ViT-B/32", on_vit, 4)):
        if options.part in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                run(Path(folder), options.images or usual, options.rounds)
