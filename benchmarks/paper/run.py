"""Run a table of the paper: our figures beside the paper's, cell by cell, with intervals.

    python benchmarks/paper/run.py main-L14 --data DATA
    python benchmarks/paper/run.py main-B32 --data DATA --dataset celeba --images 200 --seeds 1
    python benchmarks/paper/run.py main-B32 --data miniature --model miniature --images 48

DATA is a folder with the datasets in it; nothing is downloaded, and a dataset that is not there is
left out. Views of images are encoded once for all tables with the same --out; after a kill the same
command goes on. It writes OUT/TABLE/table.md and table.csv, and for `clip-bias` harm.csv.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # this folder is the package `paper`

from fair_tta import FairTTAError
from paper.answers import Options, answer_tasks, replace_file
from paper.figures import Figure, TaskFigures, average_figures, task_figures
from paper.images import (
    MINIATURE,
    Reader,
    miniature_readers,
    miniature_table,
    paper_readers,
    read_tasks,
)
from paper.output import harm_to_csv, to_csv, to_markdown
from paper.tables import CLIP_BIAS, FIELD, TABLES, Table, find_table, only_datasets

MODELS = {
    "ViT-B/32": "openai/clip-vit-base-patch32",
    "": "openai/clip-vit-base-patch16",
}
"""By the paper's names; tables that are not in the paper have none."""

LARGE = "openai/clip-vit-large-patch14"


def run_table(
    table: Table,
    readers: tuple[Reader, Reader | None],
    model: Any,
    out: Path,
    *,
    images: int = 1000,
    seeds: int = 5,
    views: int = 64,
    batch_size: int = 16,
    reference_images: int = 1000,
    device: str | None = None,
    dtype: str | None = None,
) -> tuple[list[Figure], dict[str, str]]:
    """Run a table, or what is left of it, and write its files.

    Returns:
        All figures, and ``{path: reason}`` of images that were left out.
    """
    read, read_others = readers
    parts, remarks = read_tasks(
        table,
        read,
        read_others,
        images=images,
        seeds=range(seeds),
        reference_images=reference_images,
    )
    remarks += [f"{part.task}: {part.remark}" for part in parts if part.remark]
    for remark in dict.fromkeys(remarks):
        say(remark)

    options = Options(model, views, batch_size, device, dtype)
    tasks: list[TaskFigures] = []
    unreadable: dict[str, str] = {}
    for answers in answer_tasks(table, parts, options, out, show_progress):
        if not all(answers.by_setting):
            path, reason = next(iter(answers.unreadable.items()))
            raise SystemExit(
                f"{answers.task}: no image can be read ({path}: {reason})."
            )
        unreadable |= answers.unreadable
        tasks.append(task_figures(table, answers))

    figures = [figure for task in tasks for figure in task.figures]
    if len(tasks) == len(table.tasks) > 1:
        figures += average_figures(table, tasks)
    home = out / table.name
    replace_file(home / "table.csv", to_csv(table, figures).encode())
    replace_file(home / "table.md", to_markdown(table, figures).encode())
    if any(task.harmful for task in table.tasks):
        harm = harm_to_csv(task.audit for task in tasks)
        replace_file(home / "harm.csv", harm.encode())
    return figures, unreadable


def say(text: str) -> None:
    """Print a remark where it is not part of the table."""
    print(text, file=sys.stderr)


def show_progress(done: int, total: int) -> None:
    """Print how many images are finished, on one line of a terminal."""
    if sys.stderr.isatty():
        print(
            f"\r{done} of {total} images", end="\n" * (done == total), file=sys.stderr
        )


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ", ".join([*TABLES, FIELD, CLIP_BIAS])
    parser.add_argument("table", help=f"one of {known}")
    parser.add_argument(
        "--data", required=True, help="folder of the datasets, or 'miniature'"
    )
    parser.add_argument(
        "--model", help="what FairTPTClassifier takes; the paper's if left out"
    )
    parser.add_argument(
        "--dataset", action="append", default=[], help="may be repeated"
    )
    parser.add_argument(
        "--images", type=int, default=1000, help="sampled for each seed"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument(
        "--reference-images", type=int, default=1000, help="to fit methods on"
    )
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--split", choices=["train", "validation", "test", "all"])
    parser.add_argument("--young-below", type=int, default=40, help="in years")
    parser.add_argument(
        "--old-from", type=int, help="in years; --young-below if left out"
    )
    parser.add_argument("--device")
    parser.add_argument("--dtype")
    parser.add_argument("--out", type=Path, default=Path("paper-tables"))
    options = parser.parse_args(words)
    for name in ("images", "seeds", "views", "reference_images", "batch_size"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} should be at least 1")

    table = find_table(options.table)
    if options.data == MINIATURE:
        table = miniature_table(table)
        drawn = options.out / "drawn"
        count = options.images * options.seeds
        readers = miniature_readers(drawn, count, options.reference_images)
    else:
        readers = paper_readers(
            options.data, options.split, options.young_below, options.old_from
        )
    if options.dataset:
        table = only_datasets(table, options.dataset)
    model = options.model or MODELS.get(table.model, LARGE)
    _, unreadable = run_table(
        table,
        readers,
        model,
        options.out,
        images=options.images,
        seeds=options.seeds,
        views=options.views,
        batch_size=options.batch_size,
        reference_images=options.reference_images,
        device=options.device,
        dtype=options.dtype,
    )
    home = options.out / table.name
    print((home / "table.md").read_text(encoding="utf-8"))
    say(f"Written to {home}.")
    for path, reason in unreadable.items():
        say(f"left out: {path}: {reason}")


if __name__ == "__main__":
    try:
        main()
    except FairTTAError as error:
        raise SystemExit(f"error: {error}") from None
