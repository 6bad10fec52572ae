"""Your own pictures: a folder, a CSV file with labels, and the methods side by side.

    python examples/own_folder.py IMAGES LABELS.csv --model openai/clip-vit-base-patch32

The file has the columns path, animal and place. Change names and template to yours.
"""

import argparse
import sys

from fair_tta import AugMix, FairTPT, FairTPTMO, Zero, ZeroShot
from fair_tta.lab.bench._grids import Grid, Setting
from fair_tta.lab.bench._tables import bench, tables_by_task
from fair_tta.lab.data import BenchmarkTask, read_folder
from fair_tta.methods import Adapter

TASK = BenchmarkTask(
    dataset="pets",
    target="animal",
    targets={"cat": "cat", "dog": "dog"},
    sensitive={"place": {"indoors": "in a house", "outdoors": "outdoors"}},
    template="a photo of a {target} {sensitive}.",
)
METHODS: dict[str, Adapter] = {
    "ZeroShot": ZeroShot(),
    "Zero": Zero(),
    "FairTPT": FairTPT(),
    "MO": FairTPTMO(),
}

if __name__ == "__main__":  # worker processes, if there are any, load this file too
    parser = argparse.ArgumentParser(description="Methods side by side on your own pictures.")
    parser.add_argument("images", help="folder of pictures")
    parser.add_argument("labels", help="CSV file with the columns path, animal and place")
    parser.add_argument("--model", default="openai/clip-vit-base-patch32")
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--out", default="bench/own")
    options = parser.parse_args()
    found = bench(
        Grid("own", "", tuple(Setting(*method) for method in METHODS.items()), (TASK,)),
        lambda task: read_folder(
            options.images,
            options.labels,
            target_column=task.target,
            sensitive_columns=[*task.sensitive],
            task=task,
        ),
        options.model,
        out=options.out,
        images=1_000_000,  # all of them
        seeds=1,
        views=AugMix(options.views),
        say=lambda text: print(text, file=sys.stderr),
    )
    for table in tables_by_task(found.figures):
        for row in (table.header, *table.rows):
            print(" | ".join(row))
    print(f"Rows, tables and a report are in {options.out}.")
