"""A table from beginning to end: what ``fair-tta bench`` and the examples call."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fair_tta.errors import FairTTAError, require
from fair_tta.paper.publish import Published, publish
from fair_tta.paper.references import ReferencePictures
from fair_tta.paper.table_run import prepare
from fair_tta.runs.runner import Engine, Progress
from fair_tta.runs.samples import Reader, gather
from fair_tta.runs.settings import Grid
from fair_tta.vision.views import AugMix


def bench(
    grid: Grid,
    read: Reader,
    model: Any,
    *,
    out: str | os.PathLike[str],
    bank: str | os.PathLike[str] | None = None,
    images: int = 1000,
    seeds: int = 5,
    limit: int | None = None,
    sample: int | None = None,
    engine: Engine | None = None,
    views: AugMix = AugMix(),
    batch: int = 16,
    device: str | None = None,
    dtype: str | None = None,
    restart: bool = False,
    reference: ReferencePictures | None = None,
    say: Callable[[str], None] = lambda _: None,
    progress: Progress = lambda *_: None,
) -> Published:
    """Run a table, or go on with it, and write its results.

    Args:
        grid: one of `fair_tta.paper.grids.GRIDS`, or your own.
        read: reads the dataset of a task, such as ``paper_reader("data")``.
        model: what `FairTPTClassifier` takes.
        out: the folder of the results.
        bank: the folder of features, which tables may share; ``out/bank`` if None, and for tables
            that measure costs.
        images: how many are sampled for each seed.
        seeds: how many, from 0 on; they choose the images and their views.
        limit: of each seed's images the first so many only.
        sample: of each seed's images so many only, of each group its share and at least one.
        engine: `Local()`, `Local(workers=2)` or `OnRay()`.
        views: how views are made.
        batch: how many images are worked on at once.
        device: where to move the model, None to leave it where it is.
        dtype: in which precision, None for its own.
        restart: throw away the finished rows.
        reference: where methods that need a reference and are not fitted find it.
        say: is told what was left out and how much disk is needed.
        progress: is told how many answers are finished, and of how many.
    """
    for name, value in (("images", images), ("seeds", seeds)):
        if not isinstance(value, int) or value < 1:
            raise FairTTAError(f"`{name}` should be at least 1 (got {value!r}).")
    require("pyarrow", "bench")  # before any work is done
    parts, remarks = gather(
        grid.tasks, read, images=images, seeds=range(seeds), limit=limit, sample=sample
    )
    for remark in remarks:
        say(remark)
    table = prepare(
        grid,
        parts,
        model,
        out=out,
        bank=bank,
        views=views,
        batch=batch,
        device=device,
        dtype=dtype,
        engine=engine,
        reference=reference,
    )
    with table.open(restart) as store:
        needed = sum(table.disk(store))
        left = sum(len(unit.pictures) for unit in table.left(store))
        say(
            f"{grid.name}: {len(grid.settings)} settings, {len(parts)} tasks, {seeds} seeds; "
            f"{left} images to go. Features go to {table.job.bank}, up to "
            f"{needed / 1e6:,.0f} MB on disk in all; results to {Path(out)}."
        )
        table.go(store, progress)
        return publish(table, store)
