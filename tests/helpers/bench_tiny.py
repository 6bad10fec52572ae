"""A tiny model on disk, a tiny dataset and a small table, for the tests of benchmarks."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fair_tta import FairTPT, OrthCali, Zero, ZeroShot
from fair_tta._images.views import AugMix
from fair_tta.lab._runs.job import load_backend
from fair_tta.lab._runs.store import StoredRow
from fair_tta.lab.bench._grids import Grid, Setting
from fair_tta.lab.bench._run import TableRun, prepare
from fair_tta.lab.bench._sources import TaskSamples, gather
from fair_tta.lab.data import BenchmarkTask, read_folder

TASK = BenchmarkTask(
    "pets",
    "animal",
    {"cat": "cat", "dog": "dog"},
    {"place": {"indoors": "in a house", "outdoors": "on land"}},
    "a photo of a {target} {sensitive}.",
)
OTHER = BenchmarkTask(
    "pets", "place", TASK.sensitive["place"], {"animal": TASK.targets}, TASK.template
)
GRID = Grid(
    "tiny",
    "",
    (
        Setting("ZeroShot", ZeroShot()),
        Setting("Zero", Zero(0.5)),
        Setting("OrthCali", OrthCali()),
        Setting("FairTPT", FairTPT()),
    ),
    (TASK, OTHER),
)


def save_model(folder: Path) -> str:
    """A random CLIP in a folder."""
    import families
    import transformers

    if not folder.exists():
        model, images, tokenizer = families.seeded(families.clip)
        model.save_pretrained(folder)
        transformers.CLIPProcessor(images, tokenizer).save_pretrained(folder)
    return str(folder)


def save_pets(folder: Path, n: int = 24) -> Path:
    """Noise with labels."""
    from checks import picture
    from dataset_fixtures import write_csv

    rows = [
        [f"{i}.png", ("cat", "dog")[i % 2], ("indoors", "outdoors")[i // 2 % 2]] for i in range(n)
    ]
    (folder / "images").mkdir(parents=True)
    for i, (name, *_) in enumerate(rows):
        picture(i).save(folder / "images" / name)
    write_csv(folder / "labels.csv", [["path", "animal", "place"], *rows])
    return folder


def read_parts(
    folder: Path,
    tasks: Sequence[BenchmarkTask] = GRID.tasks,
    images: int = 10,
    seeds: int = 2,
    check_images: bool = True,
) -> list[TaskSamples]:
    """Both tasks on the same pictures."""
    parts, _ = gather(
        tasks,
        lambda task: read_folder(
            folder / "images",
            folder / "labels.csv",
            target_column=task.target,
            sensitive_columns=[*task.sensitive],
            task=task,
            check_images=check_images,
        ),
        images=images,
        seeds=range(seeds),
    )
    return parts


def tiny_run(
    model: object,
    pets: Path,
    out: Path,
    grid: Grid = GRID,
    *,
    check_images: bool = True,
    **options: object,
) -> TableRun:
    """Six views, units of four images; one thread, so that all processes have the same bits."""
    settings: dict[str, object] = {"views": AugMix(6), "batch_size": 4, "threads": 1, **options}
    parts = read_parts(pets, grid.tasks, check_images=check_images)
    return prepare(grid, parts, model, out=out, **settings)  # type: ignore[arg-type]


def with_workers_model(table: TableRun, model: Any) -> TableRun:
    """Workers load another model than the driver, which knows nothing of it."""
    job = replace(table.job, model=model)
    for name in ("backend", "facts", "digests"):
        job.__dict__[name] = getattr(table.job, name)
    return replace(table, job=job)


def finished(table: TableRun) -> list[list[StoredRow]]:
    """For each part of the table, in the order of the plan, its answers, without times."""
    with table.open() as store:
        return [
            [replace(row, seconds=0.0, by="", file="") for rows in by_setting for _, row in rows]
            for _, by_setting in table.rows(store)
        ]


class Mortal:
    """A model for two workers, one of which dies in the middle of its work."""

    def __init__(self, backend: Any, marks: Path) -> None:
        self.backend, self.marks, self.home = backend, marks, os.getpid()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "backend":  # before it is unpickled
            raise AttributeError(name)
        return getattr(self.backend, name)

    def encode_pixels(self, pixels: Any) -> Any:
        """Wait for the other worker; the first to come back dies."""
        if os.getpid() != self.home:
            (self.marks / f"worker-{os.getpid()}").touch()
            end = time.monotonic() + 60
            while len(list(self.marks.glob("worker-*"))) < 2 and time.monotonic() < end:
                time.sleep(0.05)
            with suppress(FileExistsError):
                (self.marks / "dead").touch(exist_ok=False)
                os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return self.backend.encode_pixels(pixels)


def serve(model: str, pets: str) -> None:
    """Fork a run for every line of stdin, ``folder patience``, and kill it when that is over.

    Everything is loaded before, so that a run takes no time to start. Says how each has ended.
    """
    torch.set_num_threads(1)
    backend = load_backend(model)
    for line in sys.stdin:
        out, patience = line.rsplit(maxsplit=1)
        child = os.fork()
        if child == 0:
            try:
                prepared = tiny_run(backend, Path(pets), Path(out))
                prepared.run(progress=lambda *_: time.sleep(0.02))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        end = time.monotonic() + float(patience)
        ended, status = 0, 0
        while not ended and time.monotonic() < end:
            time.sleep(0.002)
            ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
